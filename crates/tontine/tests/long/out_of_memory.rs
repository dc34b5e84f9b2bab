//! A member of a shared heap that the kernel really gives no more memory: it is in a memory cgroup
//! that is full. It gets an error, nothing is half allocated, and once it may have more it goes on.
//!
//! No file's limit would do: a heap has its size from the beginning, so that `RLIMIT_FSIZE` lets
//! all of its `fallocate` pass, and a memfd lies on no tmpfs with a size. Whoever exceeds a cgroup
//! is killed, unless that is forbidden: then the call fails. The machine lacks nothing meanwhile,
//! and other processes notice nothing.

#![allow(unsafe_code, reason = "fork, and joining a heap in the child")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::common::{Signal, fork, kill, reap, until};
use tontine::heap::shared::Heap;
use tontine::heap::{HeapError, Result};

const MIB: usize = 1 << 20;
const SLAB: usize = 64 << 10;
/// What the member may take in all.
const LIMIT: usize = 8 * MIB;
/// What it may take besides at the end.
const AMPLE: usize = 256 * MIB;
/// Where there is not even a page for its tables, the kernel has it sleep: it gets a crumb then.
const CRUMB: usize = 16 << 10;
const PATIENCE_MS: i32 = 500;
/// Blocks of the heap: many times the limit.
const HEAP: usize = 64 * MIB;
/// Bytes of a block: 64 of them fill a slab.
const BLOCK: usize = 1_000;

/// Where cgroups lie.
const CGROUPS: &str = "/sys/fs/cgroup";

/// This process's memory cgroup, and what a limit is called there: in the first version, which has
/// a tree for memory alone, or in the second.
fn own_cgroup() -> io::Result<(PathBuf, &'static str)> {
    let all = fs::read_to_string("/proc/self/cgroup")?;
    let of = |controller: &str| {
        let lines = all.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
        let mut lines = lines.filter(|parts| parts.len() == 3);
        let line = lines.find(|parts| parts[1].split(',').any(|one| one == controller))?;
        Some(line[2].trim_start_matches('/').to_owned())
    };
    let root = Path::new(CGROUPS);
    if let Some(path) = of("memory") {
        return Ok((root.join("memory").join(path), "memory.limit_in_bytes"));
    }
    let path = of("").ok_or_else(|| io::Error::other("this process is in no cgroup"))?;
    Ok((root.join(path), "memory.max"))
}

/// A memory cgroup of this test's own.
struct Cgroup {
    folder: PathBuf,
    limit: &'static str,
    bytes: usize,
}

impl Cgroup {
    /// One in which nobody is, with a limit of so many bytes, below that of this process, or below
    /// the nearest one above it that may have more below itself.
    fn new(bytes: usize) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        let (own, limit) = own_cgroup()?;
        for above in own.ancestors().take_while(|above| above.starts_with(CGROUPS)) {
            let folder = above.join(format!("tontine-{}", std::process::id()));
            last = match fs::create_dir(&folder) {
                Ok(()) => {
                    let cgroup = Self { folder, limit, bytes };
                    match cgroup.set_limit(bytes) {
                        Ok(()) => {
                            // Blocks that are swapped out would make room for more.
                            for swap in ["memory.swap.max", "memory.swappiness"] {
                                let _ = fs::write(cgroup.folder.join(swap), "0");
                            }
                            return Ok(cgroup);
                        }
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
        }
        Err(last)
    }

    /// Lets those in it have more.
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.set_limit(self.bytes).expect("a limit can be raised");
    }

    fn set_limit(&self, bytes: usize) -> io::Result<()> {
        fs::write(self.folder.join(self.limit), bytes.to_string())
    }

    /// Takes a process in that is not to be killed where there is no memory: nobody in here is, or,
    /// where that cannot be said, this one is not.
    fn take_in(&self, pid: i32) -> io::Result<()> {
        fs::write(self.folder.join("memory.oom_control"), "1")
            .or_else(|_| fs::write(format!("/proc/{pid}/oom_score_adj"), "-1000"))?;
        fs::write(self.folder.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Whoever was in it has ended, and may not have left yet.
        until("the cgroup has nobody", || match fs::remove_dir(&self.folder) {
            Err(error) => error.kind() != io::ErrorKind::ResourceBusy,
            Ok(()) => true,
        });
    }
}

/// Kills and reaps a child, should the test fail before it does.
struct Member(Option<i32>);

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(pid) = self.0.take() {
            kill(pid);
        }
    }
}

fn is_out_of_memory<T>(found: &Result<T>) -> bool {
    let Err(HeapError::System { call, errno }) = found else { return false };
    *call == "fallocate" && [libc::ENOMEM, libc::ENOSPC].contains(errno)
}

/// Bytes in use, of a heap in order.
fn sound(heap: &Heap) -> usize {
    let report = heap.check().expect("not forked");
    assert_eq!(report.faults, [], "{report}");
    report.in_use()
}

/// Slabs that have memory.
fn slabs(heap: &Heap) -> usize {
    heap.check().expect("not forked").committed() / SLAB
}

#[test]
fn a_member_whose_memory_is_used_up_gets_an_error_and_goes_on_when_it_may_have_more() {
    alone!();
    let heap = Heap::create(HEAP).expect("there is memory");
    let mut cgroup = match Cgroup::new(LIMIT) {
        Ok(cgroup) => cgroup,
        Err(error) => {
            eprintln!("skipped: no memory cgroup can be made: {error}");
            return;
        }
    };
    let (go, done) = (Signal::new(), Signal::new());
    // SAFETY: the inherited descriptor stays open.
    let pid = fork(|| member(&unsafe { heap.rejoin() }.expect("it can be joined"), &go, &done));
    let mut member = Member(Some(pid));
    let answer = |cgroup: &mut Cgroup| loop {
        if let Some(word) = done.take_within(PATIENCE_MS, pid) {
            break usize::try_from(word).expect("a number");
        }
        cgroup.add(CRUMB);
    };
    answer(&mut cgroup);
    if let Err(error) = cgroup.take_in(pid) {
        eprintln!("skipped: a process cannot be limited here: {error}");
        return;
    }

    // As many blocks as there is memory for, and none is half allocated.
    go.give(0);
    let blocks = answer(&mut cgroup);
    assert!((LIMIT / BLOCK / 4..LIMIT / BLOCK).contains(&blocks), "{blocks} blocks");
    let full = slabs(&heap);
    assert_eq!(sound(&heap), blocks * 1_024);
    assert_eq!(full, blocks.div_ceil(SLAB / 1_024), "none that has no block");

    // A block of many slabs, of which some can be had once a few are given back: all or none.
    go.give(0);
    let freed = answer(&mut cgroup);
    assert_eq!(sound(&heap), (blocks - freed) * 1_024);
    let fewer = slabs(&heap);
    assert!(fewer < full, "{fewer} slabs, of {full}");

    // What is free can be had again, without any memory.
    go.give(0);
    let again = answer(&mut cgroup);
    assert!(again > 0, "the slab that it keeps has room");
    assert!(slabs(&heap) <= full);
    sound(&heap);

    // It may have more, and has it.
    cgroup.add(AMPLE);
    go.give(0);
    let large = answer(&mut cgroup);
    assert_eq!(large, 4 * LIMIT);
    assert!(sound(&heap) >= large);

    // And leaves nothing behind.
    go.give(0);
    member.0 = None;
    assert_eq!(reap(pid), 0, "its assertions hold");
    assert_eq!(sound(&heap), 0);
    heap.recover_and_trim().expect("dead members are recovered");
    assert_eq!(slabs(&heap), 0);
}

/// What the limited one does: a step for each word. It says numbers, and others look at the heap:
/// where there is no memory, none of its own may be missing.
fn member(heap: &Heap, go: &Signal, done: &Signal) {
    let mut blocks = Vec::with_capacity(HEAP / BLOCK);
    // Memory of its own is there before it is limited.
    for block in blocks.spare_capacity_mut() {
        block.write(None);
    }
    drop(heap.alloc(BLOCK).expect("space is free"));
    done.give(0);

    go.take();
    // It is not the first time only; in between the kernel may find a page that it had put aside.
    let mut refused = 0;
    while refused < 10 {
        match heap.alloc(BLOCK) {
            Ok(block) => blocks.push(Some(block)),
            found => {
                assert!(is_out_of_memory(&found), "{found:?}");
                refused += 1;
            }
        }
    }
    done.give(i32::try_from(blocks.len()).expect("a small number"));

    go.take();
    let freed = blocks.len() / 4;
    blocks.truncate(blocks.len() - freed);
    let found = heap.alloc(2 * LIMIT).map(drop);
    assert!(is_out_of_memory(&found), "{found:?}");
    done.give(i32::try_from(freed).expect("a small number"));

    go.take();
    let before = blocks.len();
    while let Ok(block) = heap.alloc(BLOCK) {
        blocks.push(Some(block));
    }
    done.give(i32::try_from(blocks.len() - before).expect("a small number"));

    go.take();
    let large = heap.alloc(4 * LIMIT).expect("there is memory again");
    done.give(i32::try_from(large.len()).expect("it fits"));

    go.take();
}

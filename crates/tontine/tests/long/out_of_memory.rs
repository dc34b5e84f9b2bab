//! A member of a shared heap to which the kernel grants no more memory, because its memory cgroup
//! is full. The member receives an error, nothing is half allocated, and it continues once its
//! limit is raised.
//!
//! A file size limit would not work: a heap has its full size from the beginning, so `RLIMIT_FSIZE`
//! lets all of its `fallocate` calls pass, and a memfd is not on a tmpfs with a size limit. A
//! process that exceeds a cgroup's limit is killed, unless the OOM killer is disabled; then the
//! call fails. The machine itself has enough memory, and other processes are not affected.

#![allow(unsafe_code, reason = "fork, and joining a heap in the child")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::common::{Signal, fork, kill, reap, until};
use tontine::heap::shared::Heap;
use tontine::heap::{HeapError, Result};

const MIB: usize = 1 << 20;
const SLAB: usize = 64 << 10;
/// Memory limit of the member.
const LIMIT: usize = 8 * MIB;
/// Additional memory granted at the end.
const AMPLE: usize = 256 * MIB;
/// Memory added while the member sleeps because not even a page for its tables is left.
const CRUMB: usize = 16 << 10;
const TIMEOUT_MS: u64 = 500;
/// Size of the heap, many times the limit.
const HEAP: usize = 64 * MIB;
/// Bytes of a block; 64 blocks fill a slab.
const BLOCK: usize = 1_000;

/// Mount point of cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Returns this process's memory cgroup and the name of its limit file. Cgroups version 1 have a
/// separate tree for memory; version 2 does not.
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

/// This test's own memory cgroup.
struct Cgroup {
    folder: PathBuf,
    limit: &'static str,
    bytes: usize,
}

impl Cgroup {
    /// Creates an empty cgroup with a limit of `bytes`, below that of this process or below its
    /// nearest ancestor that permits children.
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
                            // Without these limits, swapping blocks out would free memory for more
                            // blocks.
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

    /// Raises the limit.
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.set_limit(self.bytes).expect("a limit can be raised");
    }

    fn set_limit(&self, bytes: usize) -> io::Result<()> {
        fs::write(self.folder.join(self.limit), bytes.to_string())
    }

    /// Moves a process into the cgroup and protects it from the OOM killer, either through the
    /// cgroup or, if that cannot be set, for this process alone.
    fn take_in(&self, pid: i32) -> io::Result<()> {
        fs::write(self.folder.join("memory.oom_control"), "1")
            .or_else(|_| fs::write(format!("/proc/{pid}/oom_score_adj"), "-1000"))?;
        fs::write(self.folder.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that has ended may not have left the cgroup yet.
        until("the cgroup is empty", || match fs::remove_dir(&self.folder) {
            Err(error) => error.kind() != io::ErrorKind::ResourceBusy,
            Ok(()) => true,
        });
    }
}

/// A child that is killed and reaped on drop if the test fails before it reaps the child.
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

/// Returns the bytes in use of a heap without faults.
fn sound(heap: &Heap) -> usize {
    let report = heap.check().expect("not forked");
    assert_eq!(report.faults, [], "{report}");
    report.in_use()
}

/// Returns the number of slabs that have memory.
fn slabs(heap: &Heap) -> usize {
    heap.check().expect("not forked").committed() / SLAB
}

#[test]
fn heap_member_at_memory_limit_fails_then_continues() {
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
    let pid =
        fork(|| member(&unsafe { heap.rejoin() }.expect("the heap can be joined"), &go, &done));
    let mut member = Member(Some(pid));
    let answer = |cgroup: &mut Cgroup| loop {
        if let Some(word) = done.take_within(TIMEOUT_MS, pid) {
            break usize::try_from(word).expect("a number");
        }
        cgroup.add(CRUMB);
    };
    answer(&mut cgroup);
    if let Err(error) = cgroup.take_in(pid) {
        eprintln!("skipped: a process cannot be limited here: {error}");
        return;
    }

    // The member allocates as many blocks as fit into memory, and none is half allocated.
    go.give(0);
    let blocks = answer(&mut cgroup);
    assert!((LIMIT / BLOCK / 4..LIMIT / BLOCK).contains(&blocks), "{blocks} blocks");
    let full = slabs(&heap);
    assert_eq!(sound(&heap), blocks * 1_024);
    assert_eq!(full, blocks.div_ceil(SLAB / 1_024), "no slab without a block");

    // The member frees a few blocks and requests a block of many slabs, only some of which are
    // available: it receives none of them.
    go.give(0);
    let freed = answer(&mut cgroup);
    assert_eq!(sound(&heap), (blocks - freed) * 1_024);
    let fewer = slabs(&heap);
    assert!(fewer < full, "{fewer} slabs, of {full}");

    // Freed space can be allocated again, without any memory.
    go.give(0);
    let again = answer(&mut cgroup);
    assert!(again > 0, "the slab that the heap keeps has space");
    assert!(slabs(&heap) <= full);
    sound(&heap);

    // With a higher limit, the large allocation succeeds.
    cgroup.add(AMPLE);
    go.give(0);
    let large = answer(&mut cgroup);
    assert_eq!(large, 4 * LIMIT);
    assert!(sound(&heap) >= large);

    // The member leaves nothing behind.
    go.give(0);
    member.0 = None;
    assert_eq!(reap(pid), 0, "the assertions of the child hold");
    assert_eq!(sound(&heap), 0);
    heap.recover_and_trim().expect("dead members are recovered");
    assert_eq!(slabs(&heap), 0);
}

/// Runs the limited member: one step per received word. The member reports numbers, and the parent
/// checks the heap, because an assertion here would need memory.
fn member(heap: &Heap, go: &Signal, done: &Signal) {
    let mut blocks = Vec::with_capacity(HEAP / BLOCK);
    // The memory of the vector is touched before the limit applies.
    for block in blocks.spare_capacity_mut() {
        block.write(None);
    }
    drop(heap.alloc(BLOCK).expect("space is free"));
    done.give(0);

    go.take();
    // Ten attempts must fail, because after the first the kernel may find a page that it had
    // reserved.
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
    done.give(i32::try_from(large.len()).expect("an i32"));

    go.take();
}

//! Failures of a shared heap: misuse by programs, invalid files, lack of memory, members that end
//! in unusual ways. Each yields an error that names the cause and the owner, and leaves no
//! operation half done.

#![allow(unsafe_code, reason = "fork, descriptors, and deliberate overruns")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Barrier;
use std::thread;

use crate::common::*;
use crate::fuse::mount_privately;
use rustix::fs::{MemfdFlags, SealFlags};
use seccompiler::SeccompCmpOp;
use tontine::heap::shared::{Handle, Heap, HeapOptions, Parcel};
use tontine::heap::{HeapError, Result};

const MIB: usize = 1 << 20;
const SLAB: usize = 64 << 10;
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

fn heap(bytes: usize) -> Heap {
    Heap::create(bytes).expect("there is memory")
}

fn sound(heap: &Heap) -> usize {
    let report = heap.check().expect("not forked");
    assert_eq!(report.faults, [], "{report}");
    report.in_use()
}

fn rejoin(heap: &Heap) -> Heap {
    // SAFETY: the inherited descriptor stays open.
    unsafe { heap.rejoin() }.expect("the heap can be joined")
}

#[test]
fn wrong_handle_error_names_block_and_owner() {
    alone!();
    let heap = heap(MIB);
    let me = std::process::id();
    let handle = heap.alloc(1_000).expect("space is free").into_handle();
    let names = |error: HeapError, parts: &[&str]| {
        let text = error.to_string();
        for part in parts {
            assert!(text.contains(part), "{part} in: {text}");
        }
    };
    let at = format!("{:#x}", handle.offset);
    // The handle has the wrong generation.
    let wrong = Handle { generation: handle.generation + 1, ..handle };
    let owner = format!("held by pid {me} ");
    names(heap.free(wrong).expect_err("stale"), &[&at, "stale", &owner]);
    // Another process uses the handle.
    let child = fork(|| {
        let heap = rejoin(&heap);
        names(heap.free(handle).expect_err("foreign"), &[&at, "stale", &owner]);
        names(heap.claim(handle).expect_err("foreign"), &[&at, &owner]);
    });
    assert_eq!(reap(child), 0);
    heap.free(handle).expect("ours");
    names(
        heap.free(handle).expect_err("the block is free"),
        &[&at, "the block is free", "generation 2"],
    );
    // A parcel is accepted twice, and again after it was taken back.
    let sent = Signal::new();
    let child = fork(|| {
        let heap = rejoin(&heap);
        sent.give(0);
        let _heap = heap;
        sleep_indefinitely();
    });
    sent.take();
    let parcel =
        heap.alloc(10).expect("space is free").hand_over(heap.member()).expect("this member lives");
    let block = heap.take_back(parcel).expect("not accepted");
    names(heap.accept(parcel).expect_err("taken back"), &["stale", &owner]);
    drop(block);
    kill(child);
    assert_eq!(sound(&heap), 0);
}

#[test]
fn overrun_report_names_preceding_block_and_owner() {
    alone!();
    let heap = HeapOptions::new(MIB).canaries(true).create().expect("there is memory");
    let done = Signal::new();
    let child = fork(|| {
        let heap = rejoin(&heap);
        let mut blocks: Vec<_> = (0..2).map(|_| heap.alloc(100).expect("space is free")).collect();
        blocks.sort_by_key(tontine::heap::shared::Block::offset);
        // SAFETY: the write stays within the mapping. It reaches the neighbouring block, whose
        // words are not changed.
        unsafe { blocks[0].as_mut_ptr().write_bytes(0xee, 200) };
        done.give(0);
        sleep_indefinitely();
    });
    done.take();
    let report = heap.check().expect("not forked");
    let fault = report.faults.first().expect("the overrun is reported");
    assert!(fault.what.contains(&format!("pid {child}")), "{fault}");
    assert!(fault.what.contains("written beyond its end"), "{fault}");
    kill(child);
    heap.recover_and_trim().expect("dead members are recovered");
    assert_eq!(sound(&heap), 0, "the block itself was freed");
}

/// Runs `body` in a thread in which `fallocate` with this mode fails with ENOSPC.
fn without_memory<T: Send>(mode: i32, body: impl FnOnce() -> T + Send) -> T {
    let when = (1, SeccompCmpOp::Eq, u64::from(mode.cast_unsigned()));
    without_call(libc::SYS_fallocate, libc::ENOSPC, Some(when), body)
}

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

fn lacks_memory<T>(found: Result<T>) -> bool {
    let Err(HeapError::System { call, errno }) = found else { return false };
    (call, errno) == ("fallocate", libc::ENOSPC)
}

#[test]
fn failed_commit_leaves_no_partial_allocation() {
    alone!();
    let heap = heap(MIB);
    without_memory(0, || {
        for len in [1, 30_000, SLAB, 5 * SLAB] {
            assert!(lacks_memory(heap.alloc(len).map(drop)), "{len}");
            let report = heap.check().expect("not forked");
            assert_eq!((report.faults, report.slabs.iter().map(|s| s.free).sum()), (vec![], 0));
        }
    });
    // No space is lost.
    let blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(SLAB).ok()).collect();
    assert_eq!(blocks.len(), 16);
    drop(blocks);
    // The program can keep a block that cannot be sent.
    let block = heap.alloc(10).expect("space is free");
    without_memory(0, || {
        let (error, block) =
            block.hand_over(heap.member()).expect_err("no memory for the transfer");
        assert!(lacks_memory::<()>(Err(error)));
        block.free().expect("the block is still owned");
    });
    assert_eq!(sound(&heap), 0);
}

/// Regression: a member without its own slab that could not allocate memory for one failed before
/// it checked the blocks left by ended threads and dead members.
#[test]
fn failed_commit_still_uses_space_freed_by_others() {
    alone!();
    let heap = heap(MIB);
    let kept = thread::scope(|scope| {
        scope.spawn(|| heap.alloc(1_000).expect("space is free")).join().expect("no panic")
    });
    let large = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let _empty = heap.alloc(3 * SLAB).expect("space is free");
            heap.alloc(2_000).expect("space is free")
        });
        thread.join().expect("no panic")
    });
    without_memory(0, || {
        let blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(1_000).ok()).collect();
        assert_eq!(blocks.len(), SLAB / 1_024 - 1);
        let blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(2_000).ok()).collect();
        assert_eq!(blocks.len(), SLAB / 2_048 - 1);
    });
    drop((kept, large));
    assert_eq!(sound(&heap), 0);
}

/// Regression: a member that could not release a dead member's memory kept that member's record
/// lock, and no other member could recover the dead member any more.
#[test]
fn failed_recovery_is_completed_by_second_member() {
    alone!();
    let heap = heap(MIB);
    let child = fork(|| {
        let heap = rejoin(&heap);
        heap.alloc(100).map(std::mem::forget).expect("space is free");
        std::mem::forget(heap);
    });
    assert_eq!(reap(child), 0);
    without_memory(PUNCH, || {
        let error = heap.recover_and_trim().expect_err("hole punching fails");
        assert!(matches!(error, HeapError::System { .. }), "{error}");
    });
    let child = fork(|| {
        let heap = rejoin(&heap);
        // Recovery happens either on joining or here.
        heap.recover_and_trim().expect("dead members are recovered");
        assert_eq!(sound(&heap), 0);
        assert_eq!(heap.check().expect("not forked").committed(), 0);
    });
    assert_eq!(reap(child), 0);
}

/// Returns a file of `size` bytes that looks like a heap file and begins with `words`.
fn forged(size: u64, words: &[u64], seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("forged", flags).expect("a memfd"));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    file.write_all(&bytes).expect("written");
    file.set_len(size).expect("the file has this size");
    rustix::fs::fcntl_add_seals(&file, seals).expect("sealed");
    file.into()
}

fn size_of_a_heap() -> u64 {
    let heap = heap(4 * SLAB);
    // SAFETY: the descriptor stays open.
    rustix::fs::fstat(unsafe { heap.descriptor() }).expect("a size").st_size.cast_unsigned()
}

/// Returns the reason why a file is refused.
fn refusal(file: impl Into<OwnedFd>) -> String {
    // SAFETY: the descriptor has no other owner.
    unsafe { Heap::open(file.into()) }.expect_err("not a heap").to_string()
}

#[test]
fn non_heap_file_is_refused() {
    alone!();
    let size = size_of_a_heap();
    let magic = u64::from_le_bytes(*b"tontheap");
    let whole = [magic, 1, 4, 0, 1];
    let cases = [
        (
            forged(size, &[magic, 2, 4, 0, 1], SEALS),
            "has layout version 2, and this library supports version 1",
        ),
        (forged(size, &[magic, 9, 4], SEALS), "has layout version 9"),
        (forged(size - 4096, &whole, SEALS), "a size that no heap has"),
        (forged(0, &[], SEALS), "a size that no heap has"),
        (forged(size, &[magic, 1, 5, 0, 1], SEALS), "as many slabs as the file's size holds"),
        (forged(size, &[0x1234, 77, 3, 9, 5], SEALS), "expected a heap's first bytes"),
        // A foreign file whose word happens to be zero is not overwritten.
        (forged(size, &[0x1234, 77, 3, 9, 0], SEALS), "expected a heap's first bytes"),
        (forged(size, &whole, SealFlags::GROW), "found a seal missing"),
        (forged(size, &whole, SEALS | SealFlags::WRITE), "found it sealed against writing"),
        (forged(size, &whole, SEALS | SealFlags::FUTURE_WRITE), "found it sealed against writing"),
    ];
    for (file, why) in cases {
        let text = refusal(file);
        assert!(text.contains(why), "{why}: {text}");
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let regular: OwnedFd = tempfile::tempfile().expect("a file").into();
    for file in [
        reader.into(),
        writer.into(),
        regular,
        File::open("/dev/null").expect("still present").into(),
    ] {
        let text = refusal(file);
        assert!(text.contains("expected a memfd"), "{text}");
    }
    let file = forged(size, &whole, SEALS);
    let reading =
        File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("opened for reading");
    let text = refusal(reading);
    assert!(text.contains("for reading and writing"), "{text}");
    // This file has the correct form.
    // SAFETY: the descriptor has no other owner.
    let heap = unsafe { Heap::open(file) }.expect("a heap");
    drop(heap.alloc(100).expect("space is free"));
}

#[test]
fn heap_of_dead_creator_is_initialised_again() {
    alone!();
    let size = size_of_a_heap();
    let magic = u64::from_le_bytes(*b"tontheap");
    // The initialising member died before the first step, or after one or several steps, in any
    // order.
    for words in [&[][..], &[magic], &[magic, 1], &[magic, 1, 4], &[0, 1], &[0, 0, 4]] {
        // SAFETY: the descriptor has no other owner.
        let heap = unsafe { Heap::open(forged(size, words, SEALS)) }.expect("initialised again");
        let blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(SLAB).ok()).collect();
        assert_eq!(blocks.len(), 4);
        sound(&heap);
    }
    // Another member is initialising the heap and makes no progress.
    let file = forged(size, &[magic, 1], SEALS);
    let locked = Signal::new();
    let child = fork(|| {
        assert!(record_lock(&file, 1));
        locked.give(0);
        sleep_indefinitely();
    });
    locked.take();
    let text = refusal(file.as_fd().try_clone_to_owned().expect("a copy"));
    assert!(text.contains("found one that is still being created"), "{text}");
    kill(child);
    // SAFETY: the descriptor has no other owner.
    let heap = unsafe { Heap::open(file) }.expect("no member initialises it any more");
    assert_eq!(sound(&heap), 0);
}

/// Regression: a descriptor that was refused for its mode was closed, which dropped the process's
/// record locks. Other members considered the living member dead, and reused its blocks.
#[test]
fn refused_second_descriptor_keeps_record_locks() {
    alone!();
    let heap = heap(MIB);
    let mut block = heap.alloc(1_000).expect("space is free");
    block.fill(1);
    // SAFETY: only the library, whose behaviour is tested, closes the descriptor.
    let number = unsafe { heap.descriptor() }.as_raw_fd();
    let reading = File::open(format!("/proc/self/fd/{number}")).expect("opened for reading");
    // SAFETY: as above.
    let error = unsafe { Heap::open(reading.into()) }.expect_err("already open");
    assert_eq!(error, HeapError::AlreadyOpen);
    let child = fork(|| {
        let heap = rejoin(&heap);
        assert_eq!(
            heap.recover_and_trim().expect("dead members are recovered").members,
            0,
            "the parent lives"
        );
    });
    assert_eq!(reap(child), 0);
    assert_eq!(sound(&heap), 1_024);
}

#[test]
fn blocks_are_recovered_when_owner_calls_exec() {
    alone!();
    let heap = heap(MIB);
    let pid = fork(|| {
        let heap = rejoin(&heap);
        for len in [100, 1_000, 100_000] {
            heap.alloc(len).map(std::mem::forget).expect("space is free");
        }
        std::mem::forget(heap);
        panic!("{}", Command::new("sleep").arg("300").exec());
    });
    let name = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    until("the other program runs", || name().trim() == "sleep");
    assert!(heap.check().expect("not forked").in_use() > 100_000);
    let recovery = heap.recover_and_trim().expect("dead members are recovered");
    assert_eq!((recovery.members, recovery.blocks), (1, 3));
    assert_eq!(sound(&heap), 0);
    kill(pid);
}

#[test]
fn heap_accepts_exactly_512_members() {
    alone!();
    let heap = heap(MIB);
    let (joined, mut go) = (Signal::new(), std::io::pipe().expect("a pipe"));
    let members: Vec<_> = (0..511)
        .map(|_| {
            fork(|| {
                let heap = rejoin(&heap);
                let block = heap.alloc(64);
                joined.give(i32::from(block.is_ok()));
                go.0.read_exact(&mut [0]).expect("notified");
            })
        })
        .collect();
    let with_a_block: i32 = members.iter().map(|_| joined.take()).sum();
    assert_eq!(with_a_block, 16, "each member has a slab of its own");
    let one_more = fork(|| {
        // SAFETY: the inherited descriptor stays open.
        let error = unsafe { heap.rejoin() }.expect_err("no free slot");
        assert_eq!(
            error.to_string(),
            "no free slot for another member: the heap has at most 512 at a time; wait until one \
             has ended"
        );
    });
    assert_eq!(reap(one_more), 0);
    // Some members are killed; the others leave properly.
    let (some, others) = members.split_at(200);
    some.iter().for_each(|pid| kill(*pid));
    go.1.write_all(&[0; 311]).expect("notified");
    assert!(others.iter().all(|pid| reap(*pid) == 0));
    let child = fork(|| drop(rejoin(&heap)));
    assert_eq!(reap(child), 0);
    heap.recover_and_trim().expect("dead members are recovered");
    assert_eq!(sound(&heap), 0);
    let blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(SLAB).ok()).collect();
    assert_eq!(blocks.len(), 16);
}

#[test]
fn heap_accepts_exactly_2048_arenas() {
    alone!();
    let heap = heap(MIB);
    let all_have = Barrier::new(2_048);
    drop(heap.alloc(1).expect("this thread has an arena"));
    thread::scope(|scope| {
        for _ in 0..2_047 {
            let thread = thread::Builder::new().stack_size(64 << 10);
            let use_it = || {
                let found = heap.alloc(64);
                all_have.wait();
                all_have.wait();
                drop(found);
            };
            thread.spawn_scoped(scope, use_it).expect("a thread");
        }
        all_have.wait();
        let error = scope
            .spawn(|| heap.alloc(1).map(drop).expect_err("no free arena"))
            .join()
            .expect("no panic");
        assert!(matches!(error, HeapError::LimitReached { max: 2_048, .. }), "{error}");
        all_have.wait();
    });
    let block = thread::scope(|scope| scope.spawn(|| heap.alloc(1)).join().expect("no panic"));
    drop(block.expect("other threads have ended"));
    assert_eq!(sound(&heap), 0);
}

#[test]
fn thread_uses_two_heaps_concurrently() {
    alone!();
    let heaps = [heap(MIB), heap(MIB)];
    let mut blocks = Vec::new();
    for round in 0..200_u32 {
        let mut block = heaps[round as usize % 2].alloc(500).expect("space is free");
        block.fill(round as u8);
        blocks.push(block);
    }
    let handle = heaps[0].alloc(10).expect("space is free").into_handle();
    // In the other heap, the same offset is another block, or is not a block.
    let other = heaps[1].free(Handle { generation: handle.generation + 7, ..handle });
    assert!(
        matches!(other, Err(HeapError::Stale { .. } | HeapError::InvalidHandle { .. })),
        "{other:?}"
    );
    let parcel =
        heaps[0].alloc(10).expect("space is free").hand_over(heaps[0].member()).expect("alive");
    let wrong = Parcel::from_bytes([7; Parcel::SIZE]);
    assert!(heaps[0].accept(wrong).is_err());
    drop(heaps[0].accept(parcel).expect("a parcel for this member"));
    for (round, block) in blocks.iter().enumerate() {
        assert!(block.iter().all(|byte| *byte == round as u8));
    }
    drop(blocks);
    let [first, second] = heaps;
    first.free(handle).expect("a handle of this heap");
    assert_eq!((sound(&first), sound(&second)), (0, 0));
    drop(first);
    drop(second.alloc(500).expect("the other heap still exists"));
}

/// Regression: a process passed a file of a file system that never answers, instead of a heap.
/// `Heap::open` asked that file system for the file's size while it held the lock that covers all
/// heaps of the process. Neither that call nor any other call that opened or closed a heap
/// returned.
#[test]
fn file_of_silent_file_system_is_refused_promptly() {
    alone!();
    const NOT_PERMITTED: i32 = 77;
    let place = std::env::temp_dir().join(format!("tontine-silent-{}", std::process::id()));
    std::fs::write(&place, b"").expect("written");
    let child = fork(|| {
        // SAFETY: `alarm` only sets a timer, which ends a hanging child.
        unsafe { libc::alarm(60) };
        let Some(file) = file_of_silent_file_system(&place) else {
            // SAFETY: `_exit` only ends the process.
            unsafe { libc::_exit(NOT_PERMITTED) }
        };
        // SAFETY: the file has no other descriptor.
        let error = unsafe { Heap::open(file) }.expect_err("not a heap");
        assert!(matches!(error, HeapError::NotAHeap { .. }), "{error}");
    });
    let status = reap(child);
    let _ = std::fs::remove_file(&place);
    let is_skipped = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == NOT_PERMITTED;
    assert!(is_skipped || status == 0, "{status:#x}");
}

/// Returns a descriptor of a file whose file system has no server, or `None` if mounting is not
/// permitted.
fn file_of_silent_file_system(place: &std::path::Path) -> Option<OwnedFd> {
    let server = File::options().read(true).write(true).open("/dev/fuse").ok()?;
    let options = format!("fd={},rootmode=100000,user_id=0,group_id=0", server.as_raw_fd());
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    let mounted = mount_privately(c"fuse", place, flags, &options).is_ok();
    // The server's end stays open while the process lives, and is never read.
    std::mem::forget(server);
    // An `O_PATH` descriptor opens no file, so its close does not wait either.
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    mounted.then(|| rustix::fs::open(place, flags, rustix::fs::Mode::empty()).expect("open"))
}

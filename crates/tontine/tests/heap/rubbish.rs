//! A member that writes garbage over all shared state while another member works: the working
//! member is not killed by a signal, does not panic and does not hang, and a later check reports
//! the damage.

#![allow(unsafe_code, reason = "fork, and deliberate corruption")]

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::common::*;
use rustix::mm::{MapFlags, ProtFlags};
use tontine::heap::shared::{Block, Heap};

const ROUNDS: u64 = 30;
const SLABS: usize = 6;
const SLAB: usize = 64 << 10;
const ROUND: Duration = Duration::from_millis(40);
/// Number of writes after which most heaps have faults.
const WRITES: u64 = 2_000;
/// Timeout in seconds. SIGALRM kills a process that exceeds it.
const LIMIT_S: u32 = 60;

/// The header word with the canary setting.
const CANARIES: u64 = 3;

/// Writes arbitrary and almost valid values into all tables and words, indefinitely. Gives `enough`
/// after [`WRITES`] writes.
fn spoil(heap: &Heap, random: &mut Random, enough: &Signal) -> ! {
    // SAFETY: this is a separate mapping of the inherited descriptor, accessed only through
    // atomics.
    let words = unsafe {
        let file = heap.descriptor();
        let size = rustix::fs::fstat(file).expect("a size").st_size as usize - SLABS * SLAB;
        assert!(file.as_raw_fd() > 2);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let at = std::ptr::null_mut();
        let base = rustix::mm::mmap(at, size, access, MapFlags::SHARED, file, 0).expect("mapped");
        std::slice::from_raw_parts(base.cast::<std::sync::atomic::AtomicU64>(), size / 8)
    };
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    for written in 0_u64.. {
        if written == WRITES {
            enough.give(0);
        }
        let at = match random.below(4) {
            0 => random.below(64),
            // The slab table follows 512 members and 2,048 arenas of 64 bytes each.
            1 => (4096 + 64 * 2560) / 8 + random.below(8 * SLABS as u64),
            _ => random.below(words.len() as u64),
        };
        // The canary setting is not changed, because dropping an overrun block panics as
        // documented.
        if at == CANARIES {
            continue;
        }
        let word = &words[at as usize];
        let found = word.load(relaxed);
        let other = words[random.below(words.len() as u64) as usize].load(relaxed);
        let rubbish = match random.below(6) {
            0 => random.next(),
            1 => found ^ (1 << random.below(64)),
            2 => other,
            3 => random.below(5) << 61 | random.below(8) << 48 | random.below(8),
            4 => random.below(3) << 32 | random.below(40),
            _ => 0,
        };
        word.store(rubbish, relaxed);
        if random.below(50) == 0 {
            std::thread::yield_now();
        }
    }
    unreachable!("more writes than a number holds")
}

fn work(heap: &Heap, random: &mut Random) {
    // SAFETY: the inherited descriptor stays open.
    let Ok(heap) = (unsafe { heap.rejoin() }) else { return };
    let end = Instant::now() + ROUND;
    let mut blocks: Vec<Block<'_>> = Vec::new();
    while Instant::now() < end {
        match random.below(20) {
            0..9 => {
                let len = [100, 5_000, 40_000, 150_000][random.below(4) as usize];
                if let Ok(mut block) = heap.alloc(random.below(len) as usize) {
                    block.fill(1);
                    blocks.push(block);
                }
            }
            9..15 if !blocks.is_empty() => {
                drop(blocks.swap_remove(random.below(blocks.len() as u64) as usize));
            }
            15..17 => {
                if let Some(Ok(parcel)) = blocks.pop().map(|block| block.hand_over(heap.member())) {
                    let landed = heap.accept(parcel);
                    blocks.extend(landed.or_else(|_| heap.take_back(parcel)).ok());
                }
            }
            17 => {
                let handle = blocks.pop().map(Block::into_handle);
                blocks.extend(handle.and_then(|handle| heap.claim(handle).ok()));
            }
            18 => drop(heap.recover_and_trim()),
            _ => drop(heap.check().expect("not forked").to_string()),
        }
    }
}

#[test]
fn corrupted_heap_causes_errors_not_crashes() {
    alone!();
    let mut faults = 0;
    for round in 1..=ROUNDS {
        let heap = Heap::create(SLABS * SLAB).expect("there is memory");
        let seed = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (began, enough) = (Signal::new(), Signal::new());
        let spoiler = fork(|| {
            began.give(0);
            spoil(&heap, &mut Random(seed), &enough)
        });
        began.take();
        let worker = fork(|| {
            // SAFETY: `alarm` only sets a timer.
            unsafe { libc::alarm(LIMIT_S) };
            work(&heap, &mut Random(seed ^ 0x5555));
        });
        assert_eq!(reap(worker), 0, "round {round}");
        enough.take();
        kill(spoiler);
        let report = heap.check().expect("not forked");
        faults += usize::from(!report.faults.is_empty());
        let _ = (heap.recover_and_trim(), report.to_string());
    }
    assert!(faults as u64 > ROUNDS / 2, "{faults} of {ROUNDS} heaps have faults");
}

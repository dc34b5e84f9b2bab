//! Each thread frees what it allocated: a working set whose blocks are replaced at random.

#![allow(unsafe_code, reason = "frees what it allocated")]

use super::heap::{Allocator, BlockAddr, allocate, release};
use super::worker_threads::{BATCH, BlockRng, WorkerThreads};
use crate::prelude::*;

/// Number of blocks that a thread holds at any time: the range of [`BlockRng::size_and_slot`].
const SLOTS: usize = 1024;

pub(super) fn run<H: Allocator>(workers: &WorkerThreads<'_>, threads: usize) -> Result<Vec<f64>> {
    workers.together(threads, |member| work::<H>(workers, member)).map(|means| means.concat())
}

fn work<H: Allocator>(workers: &WorkerThreads<'_>, member: usize) -> Result<Vec<f64>> {
    let mut rng = BlockRng::of(member);
    // No two live blocks, of any threads, have the same tag.
    let tag = |slot: usize| (member * SLOTS + slot) as u64;
    // After an error the blocks are leaked: the process ends.
    let blocks = (0..SLOTS).map(|slot| allocate::<H>(rng.size_and_slot().0, tag(slot)));
    let mut held = blocks.collect::<Result<Vec<BlockAddr>>>()?;
    let mut wrong = 0;
    let means = workers.batches(|| {
        for _ in 0..BATCH {
            let (size, slot) = rng.size_and_slot();
            // SAFETY: the block comes from this heap, and another block takes its slot immediately,
            // or no block is used again.
            let found = unsafe { release::<H>(held[slot]) };
            wrong |= found ^ tag(slot);
            held[slot] = allocate::<H>(size, tag(slot))?;
        }
        Ok(true)
    })?;
    for block in held {
        // SAFETY: the block is live and comes from this heap.
        unsafe { release::<H>(block) };
    }
    ensure!(wrong == 0, "the allocator handed out one piece of memory twice");
    Ok(means)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::ffi::c_void;

    use super::*;

    /// Returns the same block for every request.
    struct Broken;

    #[repr(align(16))]
    struct Memory(std::cell::UnsafeCell<[u8; 512]>);
    // SAFETY: only one thread uses it.
    unsafe impl Sync for Memory {}
    static MEMORY: Memory = Memory(std::cell::UnsafeCell::new([0; 512]));

    impl Allocator for Broken {
        fn malloc(_: usize) -> *mut c_void {
            MEMORY.0.get().cast()
        }
        unsafe fn free(_: *mut c_void) {}
    }

    #[test]
    fn allocator_returning_one_block_twice_fails() {
        let processors = pin::allowed().expect("affinity");
        let time = Duration::from_millis(1);
        let workers = WorkerThreads { processors: &processors, clock: Clock::monotonic(), time };
        let found = run::<Broken>(&workers, 1).expect_err("one block for all");
        assert!(found.why().contains("twice"), "{found}");
    }
}

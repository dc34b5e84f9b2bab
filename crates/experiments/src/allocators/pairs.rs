//! Each thread frees what it allocated: a working set whose blocks are replaced at random.

#![allow(unsafe_code, reason = "frees what it allocated")]

use tontine_host::error::{MeasureError, Result};

use super::heap::{Allocator, BlockAddr, allocate, release};
use super::worker_threads::{BATCH, CrewRng, WorkerThreads};

/// Number of blocks that a thread holds at any time: the range of [`CrewRng::size_and_slot`].
const SLOTS: usize = 1024;

/// Times pairs of one `free` and one `malloc`, in ns per pair.
pub(super) fn run<H: Allocator>(workers: &WorkerThreads<'_>, threads: usize) -> Result<Vec<f64>> {
    workers.together(threads, |member| work::<H>(workers, member)).map(|means| means.concat())
}

fn work<H: Allocator>(workers: &WorkerThreads<'_>, member: usize) -> Result<Vec<f64>> {
    let mut rng = CrewRng::of(member);
    // No two live blocks, of any threads, have the same tag.
    let tag = |slot: usize| (member * SLOTS + slot) as u64;
    let mut held: HeldBlocks<H> = HeldBlocks::new();
    for slot in 0..SLOTS {
        held.blocks.push(allocate::<H>(rng.size_and_slot().0, tag(slot))?);
    }
    let mut wrong = 0;
    let means = workers.batches(|| {
        for _ in 0..BATCH {
            let (size, slot) = rng.size_and_slot();
            // SAFETY: the block comes from this heap, and another block takes its slot immediately.
            // If the allocation fails, `HeldBlocks` forgets all blocks.
            let found = unsafe { release::<H>(held.blocks[slot]) };
            wrong |= found ^ tag(slot);
            match allocate::<H>(size, tag(slot)) {
                Ok(block) => held.blocks[slot] = block,
                Err(trouble) => {
                    held.blocks.clear();
                    return Err(trouble);
                }
            }
        }
        Ok(true)
    })?;
    if wrong != 0 {
        return Err(MeasureError::fail("the allocator handed out one piece of memory twice"));
    }
    Ok(means)
}

/// Blocks that are freed on drop.
struct HeldBlocks<H: Allocator> {
    blocks: Vec<BlockAddr>,
    _of: std::marker::PhantomData<H>,
}

impl<H: Allocator> HeldBlocks<H> {
    fn new() -> Self {
        Self { blocks: Vec::with_capacity(SLOTS), _of: std::marker::PhantomData }
    }
}

impl<H: Allocator> Drop for HeldBlocks<H> {
    fn drop(&mut self) {
        for block in self.blocks.drain(..) {
            // SAFETY: all blocks held here are live and come from this heap.
            unsafe { release::<H>(block) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::time::Duration;

    use super::*;
    use tontine_host::clock::Clock;
    use tontine_host::os::pin;

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

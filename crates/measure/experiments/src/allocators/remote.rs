//! Blocks that one thread allocates and another frees, passed through a bounded queue.
//!
//! The queue is a ring of pointers with one producer and one consumer; null marks an empty slot.
//! The queue's own cost is part of the figure, and is the same for all allocators.

#![allow(unsafe_code, reason = "frees what another thread allocated")]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::thread;

use super::heap::{Allocator, BlockAddr, allocate, release};
use super::worker_threads::{BATCH, BlockRng, WorkerThreads};
use crate::prelude::*;

const SLOTS: usize = 1024;
const POLLS: u32 = 1 << 10;

/// Marks the end of the queue; no block has this address.
const NO_MORE: *mut u64 = std::ptr::without_provenance_mut(8);

/// Times blocks that pass through `pairs` pairs of threads, in ns per block, measured by the
/// freeing thread.
pub(super) fn run<H: Allocator>(workers: &WorkerThreads<'_>, pairs: usize) -> Result<Vec<f64>> {
    let queues: Vec<BlockQueue> = (0..pairs).map(|_| BlockQueue::new()).collect();
    let means = workers.together(2 * pairs, |member| {
        let queue = &queues[member / 2];
        if member.is_multiple_of(2) {
            produce::<H>(member, queue).map(|()| Vec::new())
        } else {
            consume::<H>(workers, queue)
        }
    })?;
    Ok(means.concat())
}

fn produce<H: Allocator>(member: usize, queue: &BlockQueue) -> Result<()> {
    let mut rng = BlockRng::of(member);
    let mut number = 0;
    let mut allocate_all = || {
        while !queue.over.load(Ordering::Relaxed) {
            for _ in 0..BATCH {
                let block = allocate::<H>(rng.size_and_slot().0, number)?;
                queue.put(number, block.as_ptr());
                number += 1;
            }
        }
        Ok(())
    };
    let done = allocate_all();
    // Sent even after an error, because the consumer waits for it.
    queue.put(number, NO_MORE);
    done
}

fn consume<H: Allocator>(workers: &WorkerThreads<'_>, queue: &BlockQueue) -> Result<Vec<f64>> {
    let (mut number, mut wrong) = (0, 0);
    let more = Cell::new(true);
    let mut next = || {
        let Some(block) = queue.take(number) else {
            more.set(false);
            return false;
        };
        // SAFETY: the producer allocated it in this heap and passed it on.
        wrong |= unsafe { release::<H>(block) } ^ number;
        number += 1;
        true
    };
    let means = workers.batches(|| Ok((0..BATCH).all(|_| next())))?;
    queue.over.store(true, Ordering::Relaxed);
    while more.get() && next() {}
    ensure!(wrong == 0, "a block arrived without the number that was written into it");
    Ok(means)
}

struct BlockQueue {
    places: Box<[AtomicPtr<u64>]>,
    /// `true` once the consumer has timed enough; it then takes the remaining blocks, up to
    /// [`NO_MORE`].
    over: AtomicBool,
}

impl BlockQueue {
    fn new() -> Self {
        let places = (0..SLOTS).map(|_| AtomicPtr::default()).collect();
        Self { places, over: AtomicBool::new(false) }
    }

    #[inline(always)]
    fn place(&self, number: u64) -> &AtomicPtr<u64> {
        &self.places[number as usize % SLOTS]
    }

    /// Waits until the block's slot is empty and stores the block there.
    #[inline(always)]
    fn put(&self, number: u64, block: *mut u64) {
        let place = self.place(number);
        // SYNC handed-over: pairs with the store of null in `take`.
        spin_until(|| place.load(Ordering::Acquire).is_null());
        // SYNC handed-over: pairs with the load in `take`; the block's contents are written before
        // this store.
        place.store(block, Ordering::Release);
    }

    #[inline(always)]
    fn take(&self, number: u64) -> Option<BlockAddr> {
        let place = self.place(number);
        let mut block = std::ptr::null_mut();
        spin_until(|| {
            // SYNC handed-over: pairs with the store in `put`.
            block = place.load(Ordering::Acquire);
            !block.is_null()
        });
        // SYNC handed-over: pairs with the load in `put`.
        place.store(std::ptr::null_mut(), Ordering::Release);
        if block == NO_MORE { None } else { BlockAddr::new(block) }
    }
}

/// Spins until `done`, and yields at intervals, because both ends may share one processor.
#[inline(always)]
fn spin_until(mut done: impl FnMut() -> bool) {
    loop {
        for _ in 0..POLLS {
            if done() {
                return;
            }
            std::hint::spin_loop();
        }
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_delivers_in_order_and_signals_the_end() {
        let queue = BlockQueue::new();
        let words: Vec<u64> = (0..3 * SLOTS as u64).collect();
        thread::scope(|scope| {
            scope.spawn(|| {
                for (number, word) in (0..).zip(&words) {
                    queue.put(number, std::ptr::from_ref(word).cast_mut());
                }
                queue.put(words.len() as u64, NO_MORE);
            });
            for (number, word) in (0..).zip(&words) {
                let found = queue.take(number).map(|block| block.as_ptr().cast_const());
                assert_eq!(found, Some(std::ptr::from_ref(word)));
            }
            assert_eq!(queue.take(words.len() as u64), None);
        });
    }
}

//! Benchmarks in which each worker frees its own blocks: `threadtest`, `cache_thrash`, and
//! `cache_scratch` after its first block.

use tontine_host::error::Result;

use super::heap::MeasuredHeap;
use super::worker::{HeapWorker, SpinThenYield};

/// Number of live blocks before the first one is freed.
const MANY: usize = 10_000;
/// Size of these blocks.
const SIZE: usize = 64;

/// Size of a block that is written repeatedly: the word that names its owner, and another word.
const SMALL: usize = 16;
/// Number of writes to such a block.
const WRITES: u32 = 1_000;

/// Number of operations between two checks of the stop flag.
pub(super) const BATCH: usize = 64;

pub(super) fn threadtest<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    let mut held = Vec::with_capacity(MANY);
    while worker.goes_on()? {
        for place in 0..MANY {
            held.push(worker.allocate(SIZE, place)?);
        }
        for block in held.drain(..) {
            worker.free(block)?;
        }
    }
    Ok(())
}

pub(super) fn cache_thrash<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    while worker.goes_on()? {
        let mut block = worker.allocate(SMALL, 0)?;
        worker.scribble(&mut block, WRITES);
        worker.free(block)?;
    }
    Ok(())
}

pub(super) fn cache_scratch<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    if worker.seat == 0 {
        // The blocks are adjacent if the heap places them so.
        let mut blocks = Vec::with_capacity(worker.workers);
        for place in 0..worker.workers {
            blocks.push(worker.allocate(SMALL, place)?);
        }
        for (to, block) in blocks.into_iter().enumerate() {
            worker.hand(block, to)?;
        }
    }
    let mut first = None;
    let mut patience = SpinThenYield::default();
    // The successor of a killed worker receives no block.
    while worker.is_first && first.is_none() && worker.goes_on()? {
        first = worker.receive(0, 0)?;
        patience.wait();
    }
    if let Some(mut block) = first {
        worker.scribble(&mut block, WRITES);
        worker.free(block)?;
    }
    cache_thrash(worker)
}

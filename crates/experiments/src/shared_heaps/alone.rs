//! Benchmarks in which each worker frees what is its own: `threadtest`, `cache_thrash`, and
//! `cache_scratch` after its first block.

use tontine_host::trouble::Result;

use super::heap::Heap;
use super::worker::{Patience, Worker};

/// Blocks that are alive before the first is freed.
const MANY: usize = 10_000;
/// Their size.
const SIZE: usize = 64;

/// Bytes of a block that is written again and again: the word that says whose it is, and another.
const SMALL: usize = 16;
/// How often it is written.
const WRITES: u32 = 1_000;

/// Operations between two questions whether to go on.
pub(super) const BATCH: usize = 64;

pub(super) fn threadtest<H: Heap>(worker: &mut Worker<'_, H>) -> Result<()> {
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

pub(super) fn cache_thrash<H: Heap>(worker: &mut Worker<'_, H>) -> Result<()> {
    while worker.goes_on()? {
        let mut block = worker.allocate(SMALL, 0)?;
        worker.scribble(&mut block, WRITES);
        worker.free(block)?;
    }
    Ok(())
}

pub(super) fn cache_scratch<H: Heap>(worker: &mut Worker<'_, H>) -> Result<()> {
    if worker.seat == 0 {
        // Side by side, if the heap puts them so.
        let mut blocks = Vec::with_capacity(worker.workers);
        for place in 0..worker.workers {
            blocks.push(worker.allocate(SMALL, place)?);
        }
        for (to, block) in blocks.into_iter().enumerate() {
            worker.hand(block, to)?;
        }
    }
    let mut first = None;
    let mut patience = Patience::default();
    // Who comes after a killed one gets none.
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

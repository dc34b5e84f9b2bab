//! Benchmarks in which blocks pass from worker to worker.

use std::sync::atomic::Ordering;

use tontine_host::error::{MeasureError, Result};

use super::alone::BATCH;
use super::heap::MeasuredHeap;
use super::worker::{HeapWorker, PassResult, PlacedBlock, SpinThenYield};

/// Number of blocks of a worker of `larson` and of `mstress`.
const SET: usize = 1_000;
/// Smallest and largest sizes of `larson` in bytes.
const SMALLEST: usize = 8;
const LARGEST: usize = 1_000;
/// Number of exchanges before a set passes to the next worker.
const EXCHANGES: usize = 10_000;

/// Sizes of `xmalloc_test`: `SIZES` sizes, `STEP` bytes apart, starting at `STEP`.
const STEP: usize = 16;
const SIZES: usize = 32;

/// The largest blocks of `mstress` have 8 · 2^12 to 8 · 2^13 bytes.
const DOUBLINGS: u32 = 12;
/// Divisor of the blocks that leave the set: one in this many is freed by another worker.
const ONE_OF: usize = 4;

/// Minimum number of words of a task of `producer_consumer`; the maximum is twice that.
const LEAST_WORDS: usize = 10;

/// Runs `larson`: a server's set of blocks, one of which is freed and replaced at a time. In the
/// original, a thread leaves its set to a new thread and ends; here it receives another worker's
/// set.
pub(super) fn larson<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    let (next, before) = neighbours(worker);
    let mut set: Vec<Option<PlacedBlock<'_, H>>> = (0..SET).map(|_| None).collect();
    for (place, slot) in set.iter_mut().enumerate() {
        let size = SMALLEST + worker.random.below(LARGEST - SMALLEST);
        *slot = Some(worker.allocate(size, place)?);
    }
    let mut exchanges = 0;
    while worker.goes_on()? {
        for _ in 0..BATCH {
            let place = worker.random.below(SET);
            exchange(worker, &mut set[place], place, SMALLEST, LARGEST)?;
        }
        exchanges += BATCH;
        if exchanges >= EXCHANGES {
            exchanges = 0;
            pass_on(worker, &mut set, next)?;
            for (place, slot) in set.iter_mut().enumerate().filter(|(_, slot)| slot.is_none()) {
                *slot = worker.receive(before, place)?;
                if slot.is_none() {
                    let size = SMALLEST + worker.random.below(LARGEST - SMALLEST);
                    *slot = Some(worker.allocate(size, place)?);
                }
            }
        }
    }
    free_all(worker, set)
}

fn exchange<'w, H: MeasuredHeap>(
    worker: &mut HeapWorker<'w, H>,
    slot: &mut Option<PlacedBlock<'w, H>>,
    place: usize,
    smallest: usize,
    largest: usize,
) -> Result<()> {
    if let Some(held) = slot.take() {
        worker.free(held)?;
    }
    let size = smallest + worker.random.below(largest - smallest);
    *slot = Some(worker.allocate(size, place)?);
    Ok(())
}

/// Passes the whole set on, except blocks for which the ring has no space.
fn pass_on<'w, H: MeasuredHeap>(
    worker: &mut HeapWorker<'w, H>,
    set: &mut [Option<PlacedBlock<'w, H>>],
    to: usize,
) -> Result<()> {
    for slot in set {
        let Some(held) = slot.take() else { continue };
        if let PassResult::Back(held) = worker.pass(held, to)? {
            *slot = Some(held);
            break;
        }
    }
    worker.publish(to);
    Ok(())
}

/// Runs `xmalloc_test`: half of the workers allocate blocks and pass them, a batch to each, to the
/// other half, which frees them. A single worker does both in turn.
pub(super) fn xmalloc_test<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    let (all, alone) = (worker.workers, worker.workers == 1);
    let (makers, users): (Vec<usize>, Vec<usize>) = (0..all).partition(|seat| seat % 2 == 0);
    let users = if alone { vec![0] } else { users };
    let (makes, uses) = (makers.contains(&worker.seat), users.contains(&worker.seat));
    let mut turn = users.iter().cycle();
    let mut patience = SpinThenYield::default();
    while worker.goes_on()? {
        if makes && let Some(&to) = turn.next() {
            for _ in 0..BATCH {
                let size = (worker.random.below(SIZES) + 1) * STEP;
                let held = worker.allocate(size, 0)?;
                if let PassResult::Back(held) = worker.pass(held, to)? {
                    worker.publish(to);
                    worker.hand(held, to)?;
                }
            }
            worker.publish(to);
        }
        if uses {
            let mut idle = true;
            for &from in &makers {
                for _ in 0..BATCH {
                    let Some(held) = worker.receive(from, 0)? else { break };
                    worker.free(held)?;
                    idle = false;
                }
            }
            if idle {
                patience.wait();
            }
        }
    }
    Ok(())
}

/// Runs `mstress`: blocks of many sizes, most of them small. Half of all draws allocate, and half
/// free. Some of the freed blocks instead pass to a randomly drawn worker, which keeps them for a
/// while.
pub(super) fn mstress<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    let mut set: Vec<Option<PlacedBlock<'_, H>>> = (0..SET).map(|_| None).collect();
    while worker.goes_on()? {
        for _ in 0..BATCH {
            let place = worker.random.below(SET);
            if let Some(held) = set[place].take() {
                if worker.random.below(ONE_OF) == 0 {
                    let to = worker.random.below(worker.workers);
                    if let PassResult::Back(held) = worker.pass(held, to)? {
                        worker.free(held)?;
                    }
                } else {
                    worker.free(held)?;
                }
            } else {
                let size = worker.random.mostly_small(DOUBLINGS);
                set[place] = Some(worker.allocate(size, place)?);
            }
        }
        for other in 0..worker.workers {
            worker.publish(other);
            for _ in 0..BATCH {
                let place = worker.random.below(SET);
                let Some(held) = worker.receive(other, place)? else { break };
                if let Some(before) = set[place].replace(held) {
                    worker.free(before)?;
                }
            }
        }
    }
    free_all(worker, set)
}

/// Runs `producer_consumer`: the first worker produces tasks, each a list of numbers, for the other
/// workers in turn, which read and free them.
pub(super) fn producer_consumer<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    let alone = worker.workers == 1;
    let (makes, uses) = (worker.seat == 0, worker.seat > 0 || alone);
    let mut to = 0;
    let mut patience = SpinThenYield::default();
    while worker.goes_on()? {
        for _ in 0..BATCH {
            if makes {
                to = if to + 1 < worker.workers { to + 1 } else { usize::from(!alone) };
                let words = LEAST_WORDS + worker.random.below(LEAST_WORDS + 1);
                let mut task = worker.allocate(words * size_of::<u64>(), 0)?;
                worker.word(&mut task, 1).store(words as u64, Ordering::Relaxed);
                for at in 2..words {
                    worker.word(&mut task, at).store((words * at) as u64, Ordering::Relaxed);
                }
                worker.hand(task, to)?;
            }
            if uses {
                match worker.receive(0, 0)? {
                    Some(task) => use_up(worker, task)?,
                    None => {
                        patience.wait();
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

fn use_up<'w, H: MeasuredHeap>(
    worker: &mut HeapWorker<'w, H>,
    mut task: PlacedBlock<'w, H>,
) -> Result<()> {
    let said = worker.word(&mut task, 1).load(Ordering::Relaxed) as usize;
    let words = said.clamp(LEAST_WORDS, 2 * LEAST_WORDS);
    let whole = (2..words)
        .all(|at| worker.word(&mut task, at).load(Ordering::Relaxed) == (words * at) as u64);
    if said != words || !whole {
        return Err(MeasureError::fail(
            "a task arrived with other numbers than were written into it",
        ));
    }
    worker.free(task)
}

/// Returns the worker to which this worker passes blocks, and the worker that passes blocks to it.
fn neighbours<H: MeasuredHeap>(worker: &HeapWorker<'_, H>) -> (usize, usize) {
    let all = worker.workers;
    ((worker.seat + 1) % all, (worker.seat + all - 1) % all)
}

fn free_all<'w, H: MeasuredHeap>(
    worker: &mut HeapWorker<'w, H>,
    set: Vec<Option<PlacedBlock<'w, H>>>,
) -> Result<()> {
    set.into_iter().flatten().try_for_each(|held| worker.free(held))
}

//! The literature's seven benchmarks of allocators: [`Benchmark`].
//!
//! The benchmarks are reimplemented from their authors' descriptions. All benchmarks run for a
//! given time, and each freed block counts. If the original starts a thread later, a worker
//! replaces that thread here from beginning to end; blocks that one thread leaves to another pass
//! through a ring.

use std::sync::atomic::Ordering;

use super::heaps::MeasuredHeap;
use super::worker::{HeapWorker, PlacedBlock, SpinThenYield};
use crate::prelude::*;

/// Number of operations between two checks of the stop flag.
const BATCH: usize = 64;
const SET: usize = 1_000;
/// Size of a block that is written repeatedly: the word that names its owner, and another word.
const SMALL: usize = 16;
const WRITES: u32 = 1_000;

type BlockSet<'w, H> = Vec<Option<PlacedBlock<'w, H>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Benchmark {
    /// Berger and others, Hoard (2000): passive false sharing. One worker allocates a small block
    /// for each worker. Each worker frees the block that it received, and continues as in
    /// [`Benchmark::CacheThrash`].
    CacheScratch,
    /// Berger and others, Hoard (2000): active false sharing. Allocate a small block, write it many
    /// times, free it.
    CacheThrash,
    /// Larson and Krishnan (1998), a server. A randomly drawn block of a set is freed and replaced
    /// by a new block; at intervals the whole set passes to another worker.
    Larson,
    /// Lever and Boreham (2000): half of the workers allocate, the others free.
    XmallocTest,
    /// Leijen and others, mimalloc (2019): sizes from a few bytes to many, most of them small, and
    /// long-lived and short-lived blocks, some of which another worker frees.
    Mstress,
    /// Berger and others, Hoard (2000): allocate many blocks of one size, then free them all.
    Threadtest,
    /// Michael (2004): one worker produces tasks, the others read and free them.
    ProducerConsumer,
}

impl Benchmark {
    pub(super) const ALL: [Self; 7] = [
        Self::CacheScratch,
        Self::CacheThrash,
        Self::Larson,
        Self::XmallocTest,
        Self::Mstress,
        Self::Threadtest,
        Self::ProducerConsumer,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CacheScratch => "cache-scratch",
            Self::CacheThrash => "cache-thrash",
            Self::Larson => "larson",
            Self::XmallocTest => "xmalloc-test",
            Self::Mstress => "mstress",
            Self::Threadtest => "threadtest",
            Self::ProducerConsumer => "producer-consumer",
        }
    }

    pub(super) fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| {
            MeasureError::fail(format!("expected benchmark to be one of the seven, found `{name}`"))
        })
    }

    /// Runs the benchmark until it is stopped, then frees the worker's blocks.
    pub(super) fn run<H: MeasuredHeap>(self, mut worker: HeapWorker<'_, H>) -> Result<()> {
        worker.wait();
        let run = match self {
            Self::CacheScratch => cache_scratch,
            Self::CacheThrash => cache_thrash,
            Self::Larson => larson,
            Self::XmallocTest => xmalloc_test,
            Self::Mstress => mstress,
            Self::Threadtest => threadtest,
            Self::ProducerConsumer => producer_consumer,
        };
        run(&mut worker)?;
        worker.finish()
    }
}

fn threadtest<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    const BLOCKS: usize = 10_000;
    const SIZE: usize = 64;
    let mut held = Vec::with_capacity(BLOCKS);
    while worker.continues()? {
        for place in 0..BLOCKS {
            held.push(worker.allocate(SIZE, place)?);
        }
        for block in held.drain(..) {
            worker.free(block)?;
        }
    }
    Ok(())
}

fn cache_thrash<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    while worker.continues()? {
        let mut block = worker.allocate(SMALL, 0)?;
        worker.write_often(&mut block, WRITES);
        worker.free(block)?;
    }
    Ok(())
}

fn cache_scratch<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    if worker.slot == 0 {
        // The blocks are adjacent if the heap places them so.
        let blocks = (0..worker.workers).map(|place| worker.allocate(SMALL, place));
        let blocks = blocks.collect::<Result<Vec<_>>>()?;
        for (to, block) in blocks.into_iter().enumerate() {
            worker.hand(block, to)?;
        }
    }
    let mut first = None;
    let mut backoff = SpinThenYield::default();
    // The successor of a killed worker receives no block.
    while worker.is_first && first.is_none() && worker.continues()? {
        first = worker.receive(0, 0)?;
        backoff.wait();
    }
    if let Some(mut block) = first {
        worker.write_often(&mut block, WRITES);
        worker.free(block)?;
    }
    cache_thrash(worker)
}

/// In the original, a thread leaves its set to a new thread and ends; here it receives another
/// worker's set.
fn larson<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    const EXCHANGES: usize = 10_000;
    let all = worker.workers;
    let (next, previous) = ((worker.slot + 1) % all, (worker.slot + all - 1) % all);
    let new = |worker: &mut HeapWorker<'_, H>| 8 + worker.random.below(1_000 - 8);
    let mut set: BlockSet<'_, H> = (0..SET).map(|_| None).collect();
    for (place, slot) in set.iter_mut().enumerate() {
        let size = new(worker);
        *slot = Some(worker.allocate(size, place)?);
    }
    let mut exchanges = 0;
    while worker.continues()? {
        for _ in 0..BATCH {
            let place = worker.random.below(SET);
            if let Some(held) = set[place].take() {
                worker.free(held)?;
            }
            let size = new(worker);
            set[place] = Some(worker.allocate(size, place)?);
        }
        exchanges += BATCH;
        if exchanges >= EXCHANGES {
            exchanges = 0;
            pass_on(worker, &mut set, next)?;
            for (place, slot) in set.iter_mut().enumerate().filter(|(_, slot)| slot.is_none()) {
                *slot = worker.receive(previous, place)?;
                if slot.is_none() {
                    let size = new(worker);
                    *slot = Some(worker.allocate(size, place)?);
                }
            }
        }
    }
    set.into_iter().flatten().try_for_each(|held| worker.free(held))
}

/// Passes the whole set on, except blocks for which the ring has no space.
fn pass_on<'w, H: MeasuredHeap>(
    worker: &mut HeapWorker<'w, H>,
    set: &mut [Option<PlacedBlock<'w, H>>],
    to: usize,
) -> Result<()> {
    for slot in set {
        let Some(held) = slot.take() else { continue };
        *slot = worker.pass(held, to)?;
        if slot.is_some() {
            break;
        }
    }
    worker.publish(to);
    Ok(())
}

/// The producers pass blocks, a batch to each, to the consumers. A single worker is both.
fn xmalloc_test<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    let (producers, consumers): (Vec<usize>, Vec<usize>) =
        (0..worker.workers).partition(|slot| slot % 2 == 0);
    let consumers = if consumers.is_empty() { vec![0] } else { consumers };
    let produces = producers.contains(&worker.slot);
    let consumes = consumers.contains(&worker.slot);
    let mut turn = consumers.iter().cycle();
    let mut backoff = SpinThenYield::default();
    while worker.continues()? {
        if produces && let Some(&to) = turn.next() {
            for _ in 0..BATCH {
                let size = (worker.random.below(32) + 1) * 16;
                let held = worker.allocate(size, 0)?;
                if let Some(held) = worker.pass(held, to)? {
                    worker.publish(to);
                    worker.hand(held, to)?;
                }
            }
            worker.publish(to);
        }
        if consumes {
            let mut idle = true;
            for &from in &producers {
                for _ in 0..BATCH {
                    let Some(held) = worker.receive(from, 0)? else { break };
                    worker.free(held)?;
                    idle = false;
                }
            }
            if idle {
                backoff.wait();
            }
        }
    }
    Ok(())
}

/// Half of all draws allocate, and half free. Some of the freed blocks instead pass to a randomly
/// drawn worker, which keeps them for a while.
fn mstress<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    /// The largest blocks have 8 · 2^12 to 8 · 2^13 bytes.
    const DOUBLINGS: u32 = 12;
    /// Divisor of the blocks that leave the set: one in this many is freed by another worker.
    const ONE_OF: usize = 4;
    let mut set: BlockSet<'_, H> = (0..SET).map(|_| None).collect();
    while worker.continues()? {
        for _ in 0..BATCH {
            let place = worker.random.below(SET);
            if let Some(held) = set[place].take() {
                let kept = if worker.random.below(ONE_OF) == 0 {
                    let to = worker.random.below(worker.workers);
                    worker.pass(held, to)?
                } else {
                    Some(held)
                };
                kept.map_or(Ok(()), |held| worker.free(held))?;
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
    set.into_iter().flatten().try_for_each(|held| worker.free(held))
}

/// Minimum number of words of a task of `producer_consumer`; the maximum is twice that.
const MIN_WORDS: usize = 10;

/// The first worker produces tasks, each a list of numbers, for the other workers in turn.
fn producer_consumer<H: MeasuredHeap>(worker: &mut HeapWorker<'_, H>) -> Result<()> {
    let alone = worker.workers == 1;
    let (produces, consumes) = (worker.slot == 0, worker.slot > 0 || alone);
    let mut to = 0;
    let mut backoff = SpinThenYield::default();
    while worker.continues()? {
        for _ in 0..BATCH {
            if produces {
                to = if to + 1 < worker.workers { to + 1 } else { usize::from(!alone) };
                let words = MIN_WORDS + worker.random.below(MIN_WORDS + 1);
                let mut task = worker.allocate(words * size_of::<u64>(), 0)?;
                worker.word(&mut task, 1).store(words as u64, Ordering::Relaxed);
                for at in 2..words {
                    worker.word(&mut task, at).store((words * at) as u64, Ordering::Relaxed);
                }
                worker.hand(task, to)?;
            }
            if consumes {
                match worker.receive(0, 0)? {
                    Some(task) => consume(worker, task)?,
                    None => {
                        backoff.wait();
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

fn consume<'w, H: MeasuredHeap>(
    worker: &mut HeapWorker<'w, H>,
    mut task: PlacedBlock<'w, H>,
) -> Result<()> {
    let found = worker.word(&mut task, 1).load(Ordering::Relaxed) as usize;
    let words = found.clamp(MIN_WORDS, 2 * MIN_WORDS);
    let whole = (2..words)
        .all(|at| worker.word(&mut task, at).load(Ordering::Relaxed) == (words * at) as u64);
    if found != words || !whole {
        bail!("a task arrived with other numbers than were written into it");
    }
    worker.free(task)
}

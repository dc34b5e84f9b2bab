//! `reentrancy`: the effect of a call of a function whose previous call has not returned, from
//! another thread or from a signal handler: [`Reentrancy`].
//!
//! [`mod@together`] runs the same operation in two threads of a child at the same time,
//! [`interrupted`] in a child and its signal handler. The operation is [`strtok`], printing
//! ([`stdio`]), or changing words that a [`lock`] guards. All operations that are undefined or may
//! hang run in such a child.

mod interrupted;
mod lock;
mod stdio;
mod strtok;
mod together;

use crate::prelude::*;
use interrupted::{InterruptCounts, interrupt};
use lock::{GuardedWords, Lock};
use stdio::{AppendStream, InterruptedLine};
use strtok::Tokens;
use together::{BATCH, together};

pub(crate) struct Reentrancy;

/// Value of the parameter `from`, which names the second caller.
pub(crate) const THREADS: &str = "two threads";
pub(crate) const HANDLER: &str = "a handler";
const TAKER: &str = "a thread that takes it";

const TAKEN: &str = "thread-plain-lock";

impl Experiment for Reentrancy {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    fn params(&self, variant: &str, topology: &Topology, size: Size) -> Vec<Params> {
        let placement = topology.placements().first().map_or("same-core", |usual| usual.name);
        let from: &[&str] = match (variant, size) {
            ("stdio", Size::Quick) => &[THREADS],
            ("strtok-r", Size::Quick) => &[HANDLER],
            ("strtok" | "strtok-r" | "stdio" | "stdio-flockfile", _) => &[THREADS, HANDLER],
            (TAKEN, _) => &[TAKER],
            _ => &[HANDLER],
        };
        let cell = |from: &&str| params([("from", from), ("placement", placement)]);
        from.iter().map(cell).collect()
    }

    fn operations(&self, variant: &str, size: Size) -> usize {
        match variant {
            "strtok" | "strtok-r" | "stdio" | "stdio-flockfile" => Workload::of(size).interrupted,
            _ => Workload::of(size).guarded,
        }
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let mut count = Workload::of(task.size);
        if !self.prices(task) {
            count.timed = 0;
        }
        measure(&task.variant, &task.params, count)
    }
}

impl Reentrancy {
    /// Returns `true` if the operation is timed in this cell, the first cell of its variant. The
    /// second caller makes no difference to an undisturbed operation.
    fn prices(&self, task: &InvocationTask) -> bool {
        let cells = self.params(&task.variant, &Topology::of_this_machine(), task.size);
        cells.first().is_none_or(|first| *first == task.params)
    }
}

#[derive(Debug, Clone, Copy)]
struct Workload {
    /// Number of batches of [`BATCH`] operations, for each of two threads.
    batches: usize,
    /// Number of signals that interrupt functions of the C library.
    interrupted: usize,
    /// Number of signals that interrupt changes of guarded words. Each deadlock costs the deadline
    /// and a child.
    guarded: usize,
    /// Number of timed batches of [`PRICED`] operations; if 0, no cost is measured.
    timed: usize,
}

const PRICED: usize = 100;

impl Workload {
    fn of(size: Size) -> Self {
        match size {
            Size::Quick => Self { batches: 20, interrupted: 100, guarded: 8, timed: 20 },
            Size::Default => Self { batches: 60, interrupted: 200, guarded: 20, timed: 50 },
            Size::Full => Self { batches: 500, interrupted: 4_000, guarded: 400, timed: 500 },
        }
    }
}

fn measure(variant: &str, params: &Params, count: Workload) -> Result<Observed> {
    let from = word(params, "from");
    let placement = placement_of(params)?;
    let by_threads = match from {
        THREADS => true,
        HANDLER | TAKER => false,
        other => return Err(unknown("reentrancy", "from", other)),
    };
    let clock = Clock::calibrated();
    let mut observed = if by_threads {
        of_threads(&match variant {
            "strtok" => tokenised::<false>(placement, count.batches)?,
            "strtok-r" => tokenised::<true>(placement, count.batches)?,
            "stdio" => printed(false, placement, count.batches)?,
            "stdio-flockfile" => printed(true, placement, count.batches)?,
            other => return Err(unknown("reentrancy", "variant entered by two threads", other)),
        })
    } else {
        let guarded = |lock| {
            let only = Only::signal();
            match from {
                TAKER => interrupt(&GuardedWords::<true> { lock, only }, placement, count.guarded),
                _ => interrupt(&GuardedWords::<false> { lock, only }, placement, count.guarded),
            }
        };
        let signals = count.interrupted;
        let outcome = match variant {
            "strtok" => interrupt(&Tokens::<false>, placement, signals)?,
            "strtok-r" => interrupt(&Tokens::<true>, placement, signals)?,
            "stdio" => interrupt(&InterruptedLine::<false>::new()?, placement, signals)?,
            "stdio-flockfile" => interrupt(&InterruptedLine::<true>::new()?, placement, signals)?,
            other => {
                guarded(lock_of(other).ok_or_else(|| unknown("reentrancy", "variant", other))?)?
            }
        };
        of_signals(&outcome, lock_of(variant).is_some())
    };
    if count.timed > 0 {
        observed.series.push(price(variant, clock, placement.here, count.timed)?);
    }
    Ok(observed)
}

fn lock_of(variant: &str) -> Option<Lock> {
    match variant {
        "handler-plain-lock" | TAKEN => Some(Lock::Plain),
        "handler-recursive-lock" => Some(Lock::Recursive),
        "handler-masked" => Some(Lock::Masked),
        _ => None,
    }
}

/// Returns the number of texts that two threads split wrongly, for each batch.
fn tokenised<const REENTRANT: bool>(placement: Placement, batches: usize) -> Result<Vec<u32>> {
    let operation = |side, _| strtok::tokenise::<REENTRANT>(side, &mut || ());
    together(placement, batches, operation, || ())
}

/// Returns the number of broken lines that two threads printed, for each batch.
fn printed(locked: bool, placement: Placement, batches: usize) -> Result<Vec<u32>> {
    let mut file = stdio::nameless()?;
    let stream = AppendStream::on(&file)?;
    let operation = |side, number: usize| {
        stdio::print(&stream, side, number as u64, locked);
        true
    };
    together(placement, batches, operation, || stream.flush())?;
    let whole = stdio::whole(&mut file)?;
    let broken = |(side, batch): (usize, usize)| {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        let broken = numbers.filter(|&of| !whole.contains(&stdio::line(side, of as u64)));
        broken.count() as u32
    };
    let all = [0, 1].into_iter().flat_map(|side| (0..batches).map(move |batch| (side, batch)));
    Ok(all.map(broken).collect())
}

fn of_threads(wrong: &[u32]) -> Observed {
    let shares = wrong.iter().map(|&wrong| f64::from(wrong) / BATCH as f64).collect();
    let series = Series::ns("corrupted", shares).in_unit("share").by_mean().batched(BATCH);
    let (sum, all) = (wrong.iter().sum::<u32>(), wrong.len() * BATCH);
    Observed::of([series], vec![format!("corrupted: {sum} of {all} operations")])
}

fn of_signals(outcome: &InterruptCounts, handlers_judge: bool) -> Observed {
    let InterruptCounts { corrupted, deadlocked, stray, crashed } = outcome;
    let mut observed = Observed::default();
    let judged =
        if handlers_judge { "handlers that got the lock" } else { "interrupted operations" };
    for (metric, of, what) in [
        ("corrupted", corrupted, judged),
        ("deadlocked", deadlocked, "signals that interrupted an operation"),
    ] {
        let sum = of.iter().filter(|&&one| one).count();
        observed.notes.push(format!("{metric}: {sum} of {} {what}", of.len()));
        if !of.is_empty() {
            observed.series.push(Series::share(metric, of.iter().copied()));
        }
    }
    if *stray > 0 {
        let note = format!("{stray} more signals arrived between operations and are not counted");
        observed.notes.push(note);
    }
    if *crashed > 0 {
        observed.notes.push(format!("{crashed} children crashed, each counted as corrupted"));
    }
    observed
}

/// Measures the cost of one undisturbed operation on `processor`. Starts a thread that is never
/// joined, so call it last.
fn price(variant: &str, clock: Clock, processor: usize, batches: usize) -> Result<Series> {
    if !stdio::company() {
        skip!("the system refuses a second thread");
    }
    let _pinned = Pinned::to(processor)?;
    let sink = std::fs::OpenOptions::new().append(true).open("/dev/null");
    let sink = AppendStream::on(&sink.setting_up("open /dev/null")?)?;
    let only = Only::signal();
    let lock = lock_of(variant);
    if lock.is_some_and(|lock| !lock::make(lock)) {
        bail!("pthread_mutex_init failed");
    }
    let operation = || match (variant, lock) {
        ("strtok", _) => drop(strtok::tokenise::<false>(0, &mut || ())),
        ("strtok-r", _) => drop(strtok::tokenise::<true>(0, &mut || ())),
        (_, Some(lock)) => lock::change(lock, &only, || ()),
        _ => stdio::print_nameless(&sink, variant == "stdio-flockfile"),
    };
    let batch = || {
        let from = clock.start();
        (0..PRICED).for_each(|_| operation());
        clock.ns_between(from, clock.stop()) / PRICED as f64
    };
    // The first batch is a warm-up.
    batch();
    Ok(Series::ns("operation", (0..batches).map(|_| batch()).collect()).batched(PRICED))
}

#[cfg(test)]
mod tests;

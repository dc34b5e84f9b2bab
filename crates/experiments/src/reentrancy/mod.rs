//! `reentrancy`: the effect of a call of a function whose previous call has not returned, from
//! another thread or from a signal handler: [`Reentrancy`].
//!
//! [`mod@together`] runs the same operation in two threads of a child at the same time,
//! [`interrupted`] in a child and its signal handler. The operation is [`strtok`], printing
//! ([`stdio`]), or changing words that a [`lock`] guards. All operations that are undefined or may
//! hang run in such a child. In addition, the experiment measures the cost of an operation, in a
//! single thread.
//!
//! The experiment does not show the possible effects of undefined behaviour elsewhere. An event
//! that did not occur is shown as 0 of N.

mod explanation;
mod interrupted;
mod lock;
mod stdio;
mod strtok;
mod together;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::{Placement, Topology};
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::pin::Pinned;
use tontine_host::os::signal::Only;

use crate::placement_of;
use interrupted::{InterruptCounts, interrupt};
use lock::{GuardedWords, Lock, SigwaitedWords};
use stdio::{AppendStream, InterruptedLine};
use strtok::{Function, Tokens};
use together::{BATCH, together};

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct Reentrancy;

/// Value of the parameter `from`, which names the second caller.
pub(crate) const THREADS: &str = "two threads";
/// The value for a signal handler.
pub(crate) const HANDLER: &str = "a handler";
const TAKER: &str = "a thread that takes it";

/// The variant without a handler.
const TAKEN: &str = "thread-plain-lock";

impl Experiment for Reentrancy {
    fn name(&self) -> &'static str {
        "reentrancy"
    }

    fn summary(&self) -> &'static str {
        "What breaks when a function is entered again before it has returned?"
    }

    fn topic(&self) -> Topic {
        Topic::Signals
    }

    fn explanation(&self) -> &'static Explanation {
        &explanation::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
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
        let cell = |from: &&str| {
            Params::from([
                ("from".to_owned(), (*from).to_owned()),
                ("placement".to_owned(), placement.to_owned()),
            ])
        };
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

/// The amount of work of one invocation.
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

/// Number of operations in a timed batch.
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
    let from = params.get("from").map_or("", String::as_str);
    let placement = placement_of(params)?;
    let by_threads = match from {
        THREADS => true,
        HANDLER | TAKER => false,
        other => return Err(unknown("from", other)),
    };
    let clock = Clock::calibrated();
    let mut observed = if by_threads {
        of_threads(&match variant {
            "strtok" => tokenised(Function::Static, placement, count.batches)?,
            "strtok-r" => tokenised(Function::Reentrant, placement, count.batches)?,
            "stdio" => printed(false, placement, count.batches)?,
            "stdio-flockfile" => printed(true, placement, count.batches)?,
            other => return Err(unknown("variant entered by two threads", other)),
        })
    } else {
        let guarded = |lock| {
            let guarded = GuardedWords { lock, only: Only::signal() };
            match from {
                TAKER => interrupt(&SigwaitedWords(guarded), placement, count.guarded),
                _ => interrupt(&guarded, placement, count.guarded),
            }
        };
        let signals = count.interrupted;
        let outcome = match variant {
            "strtok" => interrupt(&Tokens::<false>, placement, signals)?,
            "strtok-r" => interrupt(&Tokens::<true>, placement, signals)?,
            "stdio" => interrupt(&InterruptedLine::<false>::new()?, placement, signals)?,
            "stdio-flockfile" => interrupt(&InterruptedLine::<true>::new()?, placement, signals)?,
            other => guarded(lock_of(other).ok_or_else(|| unknown("variant", other))?)?,
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
fn tokenised(function: Function, placement: Placement, batches: usize) -> Result<Vec<u32>> {
    let operation = |side, _| strtok::tokenise(function, side, &mut || ());
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
    let broken = |side: usize, batch: usize| {
        let mut numbers = batch * BATCH..(batch + 1) * BATCH;
        let broken = numbers.by_ref().filter(|&of| !whole.contains(&stdio::line(side, of as u64)));
        broken.count() as u32
    };
    Ok([0, 1]
        .into_iter()
        .flat_map(|side| (0..batches).map(move |of| (side, of)))
        .map(|(side, batch)| broken(side, batch))
        .collect())
}

fn of_threads(wrong: &[u32]) -> Observed {
    let shares = wrong.iter().map(|&wrong| f64::from(wrong) / BATCH as f64).collect();
    let series = Series::ns("corrupted", shares).in_unit("share").by_mean().batched(BATCH);
    let (sum, all) = (wrong.iter().sum::<u32>(), wrong.len() * BATCH);
    let notes = vec![format!("corrupted: {sum} of {all} operations")];
    Observed { series: vec![series], notes, ..Observed::default() }
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
            let samples = of.iter().map(|&one| if one { 1.0 } else { 0.0 }).collect();
            observed.series.push(Series::ns(metric, samples).in_unit("share").by_mean());
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
        return Err(MeasureError::skip("the system refuses a second thread"));
    }
    let _pinned = Pinned::to(processor)?;
    let sink = std::fs::OpenOptions::new().append(true).open("/dev/null");
    let sink = AppendStream::on(&sink.setting_up("open /dev/null")?)?;
    let only = Only::signal();
    let lock = lock_of(variant);
    if lock.is_some_and(|lock| !lock::make(lock)) {
        return Err(MeasureError::fail("pthread_mutex_init failed"));
    }
    let operation = || match (variant, lock) {
        ("strtok", _) => drop(strtok::tokenise(Function::Static, 0, &mut || ())),
        ("strtok-r", _) => drop(strtok::tokenise(Function::Reentrant, 0, &mut || ())),
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

fn unknown(what: &str, found: &str) -> MeasureError {
    MeasureError::fail(format!("reentrancy has no {what} `{found}`: see `tontine list`"))
}

const fn variant(name: &'static str, summary: &'static str) -> Variant {
    Variant { name, summary }
}

const VARIANTS: &[Variant] = &[
    variant("strtok", "a text split by strtok, which keeps its position in a static variable"),
    variant(
        "strtok-r",
        "a text split by strtok_r, whose caller provides the variable for the \
                         position",
    ),
    variant("stdio", "a line printed in seven calls of fputs, each with the FILE's lock"),
    variant("stdio-flockfile", "a line printed in seven calls of fputs under one flockfile"),
    variant("handler-plain-lock", "a handler takes a mutex that its owner may not take twice"),
    variant("handler-recursive-lock", "a handler takes a mutex that its owner may take again"),
    variant("handler-masked", "a plain mutex; the signal is blocked while it is held"),
    variant(TAKEN, "a plain mutex; tontine::signal's thread takes the signal, then the mutex"),
];

#[cfg(test)]
mod tests;

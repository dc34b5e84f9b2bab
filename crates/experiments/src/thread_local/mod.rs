//! The cost of counting in memory that threads share, and in thread-local memory: [`ThreadLocal`].
//!
//! [`ways`] contains the counters and the loop that increments them, [`mod@race`] runs that loop in
//! one or two threads at the same time and counts the missing increments, and `explained` is the
//! text for readers.
//!
//! Source 003, whose program increments a global and a `__thread` variable ten million times in
//! each of two threads. `false-sharing` measures two counters on one cache line.

mod explained;
mod race;
mod ways;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::pin;

use race::{RaceResult, race};
use ways::{Atomic, KeyedCounter, MutexCounter, SharedCounter, ThreadLocalCounter};

/// The experiment `thread-local`.
#[derive(Debug, Clone, Copy)]
pub struct ThreadLocal;

const fn variant(name: &'static str, summary: &'static str) -> Variant {
    Variant { name, summary }
}

const VARIANTS: &[Variant] = &[
    variant("shared", "one plain counter for all: load, add, store; increments get lost"),
    variant("thread-local", "one counter per thread, found by the thread register (C's __thread)"),
    variant("pthread-key", "one counter per thread, found by pthread_getspecific"),
    variant("atomic", "one counter for all, incremented by an atomic instruction"),
    variant("mutex", "one plain counter for all, inside a pthread mutex"),
];

impl Experiment for ThreadLocal {
    fn name(&self) -> &'static str {
        "thread-local"
    }

    fn summary(&self) -> &'static str {
        "What do increments of shared and thread-local memory cost; which get lost?"
    }

    fn topic(&self) -> Topic {
        Topic::Memory
    }

    fn explanation(&self) -> &'static Explanation {
        &explained::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    /// Returns cells with one thread, with two threads on two processors, and with two threads on
    /// one.
    fn params(&self, _: &str, _: &Topology, _: Size) -> Vec<Params> {
        let cell = |threads: &str, placement: Option<&str>| {
            let mut params = Params::from([("threads".to_owned(), threads.to_owned())]);
            params.extend(placement.map(|name| ("placement".to_owned(), name.to_owned())));
            params
        };
        vec![cell("1", None), cell("2", Some("cross-core")), cell("2", Some("same-core"))]
    }

    fn operations(&self, variant: &str, size: Size) -> usize {
        increments(variant, size)
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let processors = processors(&task.params)?;
        measure(&task.variant, &processors, increments(&task.variant, task.size))
    }

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        ["thread-local", "pthread-key", "atomic", "mutex"].map(|name| (name, "shared")).to_vec()
    }
}

/// Returns the number of increments of each thread. A mutex under contention by two threads costs a
/// hundred times as much as a plain increment, so its variant does a tenth of the increments. The
/// other expensive variants do a quarter in a run of default size.
fn increments(variant: &str, size: Size) -> usize {
    let all = size.increments();
    match (variant, size) {
        ("mutex", _) => all / 10,
        ("atomic" | "pthread-key", Size::Default) => all / 4,
        _ => all,
    }
}

/// Returns one processor for each thread.
fn processors(params: &Params) -> Result<Vec<usize>> {
    let of = |name: &str| params.get(name).map_or("", String::as_str);
    match of("threads") {
        "1" => {
            let first = pin::allowed()?.first().copied();
            let lacks = || MeasureError::skip("sched_getaffinity: no processor");
            Ok(vec![first.ok_or_else(lacks)?])
        }
        "2" => match Topology::of_this_machine().placement(of("placement")) {
            Some(place) => Ok(vec![place.here, place.there]),
            None if of("placement") == "cross-core" => Err(MeasureError::skip(
                "needs two processors: two threads that run at the same time",
            )),
            None => {
                let text = format!("this machine has no placement `{}`", of("placement"));
                Err(MeasureError::skip(text))
            }
        },
        other => Err(MeasureError::fail(format!("expected threads to be 1 or 2, found `{other}`"))),
    }
}

fn measure(variant: &str, processors: &[usize], increments: usize) -> Result<Observed> {
    let clock = Clock::calibrated();
    let count = increments as u64;
    let RaceResult { ns, counted } = match variant {
        "shared" => race(&SharedCounter::default(), processors, count, clock)?,
        "thread-local" => race(&ThreadLocalCounter, processors, count, clock)?,
        "pthread-key" => race(&KeyedCounter::new()?, processors, count, clock)?,
        "atomic" => race(&Atomic::default(), processors, count, clock)?,
        "mutex" => race(&MutexCounter::new(), processors, count, clock)?,
        other => return Err(MeasureError::fail(format!("thread-local has no variant {other}"))),
    };
    let made = count * processors.len() as u64;
    let lost = made.checked_sub(counted).ok_or_else(|| {
        MeasureError::fail(format!("{made} increments were made, {counted} were counted"))
    })?;
    let share = lost as f64 / made as f64;
    Ok(Observed {
        series: vec![
            Series::ns("increment", vec![ns / increments as f64]).batched(increments),
            Series::ns("lost", vec![share]).in_unit("share").by_mean().batched(made as usize),
        ],
        ..Observed::default()
    })
}

#[cfg(test)]
mod tests;

//! The cost of counting in memory that threads share, and in thread-local memory: [`ThreadLocal`].
//!
//! [`ways`] contains the counters and the loop that increments them, [`mod@race`] runs that loop in
//! one or two threads at the same time.

mod race;
mod ways;

use crate::prelude::*;
use race::race;
use ways::{KeyedCounter, MutexCounter, SharedCounter, ThreadLocalCounter};

pub(crate) struct ThreadLocal;

impl Experiment for ThreadLocal {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    /// Returns cells with one thread, with two threads on two processors, and with two threads on
    /// one.
    fn params(&self, _: &str, _: &Topology, _: Size) -> Vec<Params> {
        let two = |placement| params([("threads", "2"), ("placement", placement)]);
        vec![params([("threads", "1")]), two("cross-core"), two("same-core")]
    }

    fn operations(&self, variant: &str, size: Size) -> usize {
        increments(variant, size)
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let processors = processors(&task.params)?;
        measure(&task.variant, &processors, increments(&task.variant, task.size))
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

fn processors(params: &Params) -> Result<Vec<usize>> {
    match word(params, "threads") {
        "1" => Ok(vec![pin::first()?]),
        "2" => placement_of(params).map(|place| vec![place.here, place.there]),
        other => Err(unknown("thread-local", "number of threads", other)),
    }
}

fn measure(variant: &str, processors: &[usize], increments: usize) -> Result<Observed> {
    let clock = Clock::calibrated();
    let count = increments as u64;
    let (ns, counted) = match variant {
        "shared" => race(&SharedCounter::<false>::default(), processors, count, clock)?,
        "thread-local" => race(&ThreadLocalCounter, processors, count, clock)?,
        "pthread-key" => race(&KeyedCounter::new()?, processors, count, clock)?,
        "atomic" => race(&SharedCounter::<true>::default(), processors, count, clock)?,
        "mutex" => race(&MutexCounter::new(), processors, count, clock)?,
        other => return Err(unknown("thread-local", "variant", other)),
    };
    let made = count * processors.len() as u64;
    let lost = made.checked_sub(counted).ok_or_else(|| {
        MeasureError::fail(format!("{made} increments were made, {counted} were counted"))
    })?;
    let share = lost as f64 / made as f64;
    let series = [
        Series::ns("increment", vec![ns / increments as f64]).batched(increments),
        Series::ns("lost", vec![share]).in_unit("share").by_mean().batched(made as usize),
    ];
    Ok(Observed::of(series, Vec::new()))
}

#[cfg(test)]
mod tests;

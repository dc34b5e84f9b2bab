//! Threads that increment at the same time: [`race`].

use super::ways::{CounterImpl, repeat};
use crate::prelude::*;

/// Runs one thread on each of `processors`, each with `increments` increments, at the same time.
/// Returns the ns from the first thread's start to the last thread's end, and the sum of the
/// counters.
pub(super) fn race<W: CounterImpl>(
    way: &W,
    processors: &[usize],
    increments: u64,
    clock: Clock,
) -> Result<(f64, u64)> {
    let laps = threads::together(
        processors.len(),
        |number| pin::pin_to(processors[number]).and_then(|()| way.enter()),
        |_, ()| {
            let from = clock.start();
            repeat(way, increments);
            let to = clock.stop();
            Ok((from, to, way.leave()))
        },
    )?;
    let from = laps.iter().map(|(from, ..)| *from).min().unwrap_or(0);
    let to = laps.iter().map(|(_, to, _)| *to).max().unwrap_or(0);
    let own: u64 = laps.iter().map(|(.., counted)| counted).sum();
    Ok((clock.ns_between(from, to), own + way.counted()))
}

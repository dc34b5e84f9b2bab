//! Threads that increment at the same time: [`race`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::pin;

use super::ways::{CounterImpl, repeat};

/// Result of a race.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RaceResult {
    /// Time from the first thread's start to the last thread's end.
    pub(super) ns: f64,
    /// Sum of the counters.
    pub(super) counted: u64,
}

/// The part of one thread.
struct Lap {
    from: u64,
    to: u64,
    counted: u64,
}

/// Runs one thread on each of `processors`, each with `increments` increments, at the same time.
///
/// # Errors
/// Returns `Skipped` if the system refuses a thread, a processor or a requirement of the counter.
pub(super) fn race<W: CounterImpl>(
    way: &W,
    processors: &[usize],
    increments: u64,
    clock: Clock,
) -> Result<RaceResult> {
    let ready = AtomicUsize::new(0);
    let lap = |processor: usize| -> Result<Lap> {
        let prepared = pin::pin_to(processor).and_then(|()| way.enter());
        // Counted even if the thread cannot run, because the other threads wait for it.
        ready.fetch_add(1, Ordering::Relaxed);
        while ready.load(Ordering::Relaxed) < processors.len() {
            thread::yield_now();
        }
        prepared?;
        let from = clock.start();
        repeat(way, increments);
        let to = clock.stop();
        Ok(Lap { from, to, counted: way.leave() })
    };
    let laps = thread::scope(|scope| {
        let start = |processor: &usize| {
            let (processor, lap) = (*processor, &lap);
            thread::Builder::new().spawn_scoped(scope, move || lap(processor))
        };
        let threads: Vec<_> = processors.iter().map(start).collect();
        // Threads that could not be started never arrive.
        let missing = threads.iter().filter(|thread| thread.is_err()).count();
        ready.fetch_add(missing, Ordering::Relaxed);
        let lap = |thread: std::io::Result<thread::ScopedJoinHandle<'_, Result<Lap>>>| match thread
        {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(MeasureError::fail("a counting thread panicked"))),
            Err(error) => Err(MeasureError::setting_up("a counting thread", error)),
        };
        threads.into_iter().map(lap).collect::<Result<Vec<Lap>>>()
    })?;
    let from = laps.iter().map(|lap| lap.from).min().unwrap_or(0);
    let to = laps.iter().map(|lap| lap.to).max().unwrap_or(0);
    let own: u64 = laps.iter().map(|lap| lap.counted).sum();
    Ok(RaceResult { ns: clock.ns_between(from, to), counted: own + way.counted() })
}

//! The protocol in a virtual Unix: [`run`].
//!
//! Receivers and senders are virtual processes. All of them wait at a pipe until all are created,
//! and begin when the program closes the pipe.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tontine_host::error::{MeasureError, Result};
use tontine_unix::{Fd, Pid, SigAction, SigSet, SigmaskHow, Signal, Sys};

use super::round::ReceiverResult;
use crate::modes::{self, System, TimeSource};

/// Time in ns after which a receiver stops with the signals that it has received, because many
/// pairs starve each other in mode `master`.
const PATIENCE_NS: f64 = 20e6;
/// Number of signals between two reads of the clock.
const LOOK: u64 = 16;

/// The processors of a pair, in the virtual system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PairCpus {
    pub(super) receiver: usize,
    pub(super) sender: usize,
}

/// Returns the places of `pairs` pairs for a placement, and the number of processors that the
/// system needs for the placement.
///
/// # Errors
/// Returns `Skipped` if there are too few processors, and `Failed` if the placement is unknown.
pub(super) fn places(
    placement: &str,
    pairs: usize,
    processors: usize,
) -> Result<(Vec<PairCpus>, usize)> {
    let same = |processor| PairCpus { receiver: processor, sender: processor };
    let places = match placement {
        "same-core" => (vec![same(0); pairs], 1),
        _ if processors < 2 => return Err(MeasureError::skip("needs two processors")),
        "cross-core" => (vec![PairCpus { receiver: 0, sender: 1 }; pairs], 2),
        // The master is processor 0: every process has to migrate there from processor 1.
        "off-master" => (vec![same(1); pairs], 2),
        "apart" => ((0..pairs).map(|pair| same(pair % processors)).collect(), processors),
        "spread" | "spread-off-master" => {
            // The master is processor 0.
            let first = usize::from(placement != "spread");
            let among = processors - first;
            let seat = |process: usize| first + (process + process / among) % among;
            let place = |pair| PairCpus { receiver: seat(2 * pair), sender: seat(2 * pair + 1) };
            ((0..pairs).map(place).collect(), processors)
        }
        other => {
            return Err(MeasureError::fail(format!("a virtual Unix has no placement `{other}`")));
        }
    };
    Ok(places)
}

/// Runs one round in a system. Each receiver takes `signals` signals, or fewer if its time ends.
///
/// # Errors
/// Returns `Failed` if the system does not end with status 0.
pub(super) fn run(
    system: System,
    places: &[PairCpus],
    signals: usize,
) -> Result<Vec<ReceiverResult>> {
    let unix = system.builder().build().map_err(|error| MeasureError::fail(error.to_string()))?;
    let all = Arc::new(Mutex::new(Vec::with_capacity(places.len())));
    let (places, seen) = (places.to_vec(), Arc::clone(&all));
    let watch = system.watch;
    let report = unix.run(move |sys| round(sys, &places, watch, signals, &seen).map_or(1, |()| 0));
    modes::ran(&report)?;
    let received = std::mem::take(&mut *all.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(received)
}

type PairTable = Arc<Mutex<Vec<ReceiverResult>>>;

/// A count on its own cache lines, so that pairs share nothing.
#[derive(Debug, Default)]
#[repr(align(128))]
struct PairCounter(AtomicU64);

fn round(
    sys: &dyn Sys,
    places: &[PairCpus],
    watch: TimeSource,
    signals: usize,
    all: &PairTable,
) -> tontine_unix::Result<()> {
    // The first signal would kill a process that has no handler yet.
    sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[Signal::USR1]))))?;
    let (start, started) = sys.pipe()?;
    for place in places {
        let sent = Arc::new(PairCounter::default());
        sys.place(Some(place.receiver))?;
        let (counted, all) = (Arc::clone(&sent), Arc::clone(all));
        let receiver = sys.fork(move |sys| {
            wait_for_start(sys, start, started);
            let received = receive(sys, watch, signals as u64, &counted);
            all.lock().unwrap_or_else(PoisonError::into_inner).push(received);
            0
        })?;
        sys.place(Some(place.sender))?;
        sys.fork(move |sys| {
            wait_for_start(sys, start, started);
            send(sys, receiver, &sent);
            0
        })?;
    }
    sys.close(started)?;
    for _ in 0..2 * places.len() {
        sys.wait()?;
    }
    Ok(())
}

/// Returns when no process holds the pipe's other end open any more.
fn wait_for_start(sys: &dyn Sys, start: Fd, started: Fd) {
    let closed = sys.close(started).is_ok();
    while closed && !matches!(sys.read(start, &mut [0]), Ok(0) | Err(_)) {}
}

fn receive(sys: &dyn Sys, watch: TimeSource, signals: u64, sent: &PairCounter) -> ReceiverResult {
    let seen = Arc::new(PairCounter::default());
    let counter = Arc::clone(&seen);
    let count = SigAction::handler(move |_, _| {
        counter.0.fetch_add(1, Ordering::Relaxed);
    });
    // Signals sent before this call are pending, because the signal is blocked.
    let _ = sys.sigaction(Signal::USR1, Some(count));
    // All signals sent before the first wait count as one.
    let before = sent.0.load(Ordering::Relaxed);
    let begun = watch.begin(sys);
    loop {
        let received = seen.0.load(Ordering::Relaxed);
        let looks = received > 0 && received.is_multiple_of(LOOK);
        let late = looks && watch.ns_since(sys, begun) > PATIENCE_NS;
        if received >= signals || late {
            break;
        }
        sys.sigsuspend(SigSet::EMPTY);
    }
    let seconds = watch.ns_since(sys, begun) / 1e9;
    let received = seen.0.load(Ordering::Relaxed);
    let sent = sent.0.load(Ordering::Relaxed) - before;
    ReceiverResult { seconds, received, sent: sent.max(received) }
}

fn send(sys: &dyn Sys, receiver: Pid, sent: &PairCounter) {
    while sys.kill(receiver.into(), Some(Signal::USR1)).is_ok() {
        sent.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::clock::Clock;
    use tontine_unix_sim::{CostModel, LockingMode};

    #[test]
    fn every_virtual_mode_and_placement_yields_rates() {
        for mode in LockingMode::ALL {
            for (placement, pairs) in [
                ("same-core", 1),
                ("cross-core", 1),
                ("off-master", 1),
                ("apart", 2),
                ("spread", 3),
                ("spread-off-master", 3),
            ] {
                let processors = if mode == LockingMode::Uniprocessor { 1 } else { 2 };
                let Ok((places, processors)) = places(placement, pairs, processors) else {
                    continue;
                };
                let model = TimeSource::Model { seed: 1, costs: CostModel::published() };
                for watch in [TimeSource::Machine(Clock::calibrated()), model] {
                    let system = System { mode, processors, watch };
                    let received = run(system, &places, 20).expect("a round");
                    assert_eq!(received.len(), pairs, "{mode} {placement}");
                    for one in received {
                        let late = one.seconds * 1e9 > PATIENCE_NS && one.received >= LOOK;
                        assert!(one.received >= 20 || late, "{mode} {placement}: {one:?}");
                        assert!(one.seconds > 0.0 && one.sent >= one.received);
                    }
                }
            }
        }
    }

    /// Source 001's old kernel. A receiver on the master's processor would need no hand-over, and
    /// the mean of all would fall faster.
    #[test]
    fn off_the_master_signals_are_inverse_to_pairs() {
        let model = TimeSource::Model { seed: 1, costs: CostModel::published() };
        let rate = |pairs| {
            let (places, processors) = places("spread-off-master", pairs, 10).expect("places");
            assert!(places.iter().all(|pair| pair.receiver > 0 && pair.sender > 0));
            let system = System { mode: LockingMode::Master, processors, watch: model };
            let received = run(system, &places, 200).expect("a round");
            let rates = received.iter().map(|one| one.received as f64 / one.seconds);
            rates.sum::<f64>() / pairs as f64
        };
        let alone = rate(1);
        for pairs in [3, 10] {
            let product = pairs as f64 * rate(pairs);
            assert!((product / alone - 1.0).abs() < 0.05, "{pairs}: {product} {alone}");
        }
    }

    #[test]
    fn virtual_uniprocessor_has_one_placement() {
        assert!(places("same-core", 1, 1).is_ok());
        assert!(matches!(places("apart", 2, 1), Err(MeasureError::Skipped(_))));
        let unknown = places("on-the-moon", 1, 2).expect_err("no such placement");
        assert!(unknown.why().contains("on-the-moon"), "{unknown}");
    }
}

//! The protocol in a virtual Unix: [`run`].
//!
//! Receivers and senders are virtual processes. All of them wait at a pipe until all are created,
//! and begin when the program closes the pipe.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tontine_unix::{Pid, SigAction, SigSet, SigmaskHow, Signal, Sys};

use super::placement::PairProcessors;
use super::round::ReceiverResult;
use crate::modes::{self, Found, System, TimeSource};
use crate::prelude::*;

/// Time in ns after which a receiver stops with the signals that it has received, because many
/// pairs starve each other in mode `master`.
const TIMEOUT_NS: f64 = 20e6;
const LOOK: u64 = 16;

/// Runs one round in a system. Each receiver takes `signals` signals, or fewer if its time ends.
pub(super) fn run(
    system: System,
    places: &[PairProcessors],
    signals: usize,
) -> Result<Vec<ReceiverResult>> {
    let (places, watch) = (places.to_vec(), system.watch);
    let program = move |sys: &dyn Sys, found: &Found<ReceiverResult>| {
        round(sys, &places, watch, signals, found)
    };
    modes::run(system.builder(), program).map(|(received, _)| received)
}

/// A count on its own cache lines, so that pairs share nothing.
#[derive(Debug, Default)]
#[repr(align(128))]
struct PairCounter(AtomicU64);

fn round(
    sys: &dyn Sys,
    places: &[PairProcessors],
    watch: TimeSource,
    signals: usize,
    found: &Found<ReceiverResult>,
) -> tontine_unix::Result<()> {
    // The first signal would kill a process that has no handler yet.
    sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[Signal::USR1]))))?;
    let gate = sys.pipe()?;
    for place in places {
        let sent = Arc::new(PairCounter::default());
        sys.place(Some(place.receiver))?;
        let (counted, found) = (Arc::clone(&sent), found.clone());
        let receiver = sys.fork(move |sys| {
            let passed = modes::pass(sys, gate);
            found.push(receive(sys, watch, signals as u64, &counted));
            i32::from(passed.is_err())
        })?;
        sys.place(Some(place.sender))?;
        sys.fork(move |sys| {
            let passed = modes::pass(sys, gate);
            send(sys, receiver, &sent);
            i32::from(passed.is_err())
        })?;
    }
    sys.close(gate.1)?;
    modes::reap(sys, 2 * places.len())
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
        let late = looks && watch.ns_since(sys, begun) > TIMEOUT_NS;
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
    use crate::signal_throughput::placement::of_system;
    use tontine_unix_sim::{CostModel, LockingMode};

    #[test]
    fn every_virtual_mode_and_placement_yields_rates() {
        const PLACEMENTS: [(&str, usize); 6] = [
            ("same-core", 1),
            ("cross-core", 1),
            ("off-master", 1),
            ("apart", 2),
            ("spread", 3),
            ("spread-off-master", 3),
        ];
        let cells = LockingMode::ALL.into_iter().flat_map(|mode| PLACEMENTS.map(|at| (mode, at)));
        for (mode, (placement, pairs)) in cells {
            let processors = if mode == LockingMode::Uniprocessor { 1 } else { 2 };
            let Ok((places, processors)) = of_system(placement, pairs, processors) else {
                continue;
            };
            let model = TimeSource::Model { seed: 1, costs: CostModel::published() };
            for watch in [TimeSource::Machine(Clock::calibrated()), model] {
                let system = System { mode, processors, watch };
                let received = run(system, &places, 20).expect("a round");
                assert_eq!(received.len(), pairs, "{mode} {placement}");
                for one in received {
                    let late = one.seconds * 1e9 > TIMEOUT_NS && one.received >= LOOK;
                    assert!(one.received >= 20 || late, "{mode} {placement}: {one:?}");
                    assert!(one.seconds > 0.0 && one.sent >= one.received);
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
            let (places, processors) = of_system("spread-off-master", pairs, 10).expect("places");
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
}

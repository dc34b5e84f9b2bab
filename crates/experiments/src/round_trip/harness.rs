//! The protocol of all variants: [`RoundPlan`], and the two ways to connect two [ends](End),
//! [`between_processes`] and [`between_threads`].
//!
//! The ping runs rounds of { stamp; send; wait }, the echo runs { wait; send }. The difference
//! between consecutive stamps is one whole round, and the differences add up to the time of the
//! loop.
//!
//! Stamps are unfenced ([`clock::bare_counter`]). A stamp between two rounds needs no fence: the
//! instructions around it are system calls, or spins that end with the other end's store. Work that
//! is reordered across the stamp only moves from one round to the next, so the sum is unchanged.
//!
//! If the other end has to be woken, the cost of a stamp is negligible compared with a round. If
//! both ends spin, the cost is not negligible: a stamp costs about a third of a round, and a
//! virtual machine's counter may advance in steps of ten nanoseconds. Spinning rounds are therefore
//! stamped once per batch; a tenth as many additional rounds are stamped singly, to show the spread
//! that batches hide.
//!
//! A plan with pauses ([`super::paced`]) times one-way messages instead of rounds.
//!
//! This module does not depend on any mechanism; its sibling modules implement them.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use tontine_bench::machine::topology::Placement;
use tontine_host::clock::{self, Clock, ClockSource};
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::child::Child;
use tontine_host::os::pin::{self, Pinned};
use tontine_host::peer::{ChildError, PeerHandle, PeriodicSignal, TellEnd};

pub(super) use super::end::RoundTripEnd;
pub(crate) use super::end::Timed;
use super::paced::Paced;

/// Number of rounds between two stamps in [`StampMode::Batched`].
const SPINNING_BATCH: usize = 100;
/// Number of rounds in batches per singly stamped round.
const SINGLES: usize = 10;
/// Timeout for a child to exit after the last round.
const FAREWELL: Duration = Duration::from_secs(5);

/// Frequency of the stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StampMode {
    /// Before each round.
    EveryRound,
    /// Before each hundredth round, plus a tenth as many singly stamped rounds. Only spinning
    /// variants have rounds short enough to need this; all other variants stamp every round.
    Batched,
    /// Before each hundredth round only.
    BatchesOnly,
}

/// The plan of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundPlan<'a> {
    /// Number of timed rounds.
    pub(super) rounds: usize,
    /// Number of warm-up rounds.
    pub(super) warm_up: usize,
    /// Frequency of the stamps.
    pub(super) stamps: StampMode,
    /// Processors of the two ends.
    pub(super) placement: Placement,
    /// The clock of the stamps.
    pub(super) clock: Clock,
    /// If set, the plan is one-way messages with pauses instead of rounds; between processes only.
    pub(super) paced: Option<Paced<'a>>,
}

impl RoundPlan<'_> {
    /// Returns the total number of rounds that the echo answers.
    pub(super) fn answers(&self) -> usize {
        self.warm_up + self.batches() * self.batch() + self.singles()
    }

    fn batch(&self) -> usize {
        match self.stamps {
            StampMode::EveryRound => 1,
            StampMode::Batched | StampMode::BatchesOnly => SPINNING_BATCH,
        }
    }

    fn batches(&self) -> usize {
        self.rounds.div_ceil(self.batch())
    }

    fn singles(&self) -> usize {
        match self.stamps {
            StampMode::EveryRound | StampMode::BatchesOnly => 0,
            StampMode::Batched => self.rounds.div_ceil(SINGLES),
        }
    }
}

/// Runs `echo` in a child process and `ping` here, each pinned, and returns what `ping` returns.
///
/// # Errors
/// Returns the error of the end that failed first. If the child died, the error names its status.
pub(super) fn between_processes<T>(
    plan: &RoundPlan,
    ping: impl FnOnce(PeerHandle<'_>) -> Result<T>,
    echo: impl FnOnce(PeerHandle<'_>) -> Result<()>,
) -> Result<T> {
    let words = ChildError::new()?;
    let mut child = Child::fork(|| {
        let done = pin::pin_to(plan.placement.there).and_then(|()| echo(PeerHandle::Parent));
        match done {
            Ok(()) => 0,
            Err(trouble) => {
                words.say(&trouble);
                1
            }
        }
    })?;
    let peer = PeerHandle::Child(child.pid());
    let pinned = Pinned::to(plan.placement.here)?;
    let done = PeriodicSignal::this_thread().and_then(|nudge| {
        let done = ping(peer);
        drop(nudge);
        done
    });
    drop(pinned);
    let farewell = await_end(peer, if done.is_ok() { FAREWELL } else { FAREWELL / 20 });
    let status = child.kill()?;
    if let Some(trouble) = words.heard() {
        return Err(trouble);
    }
    match (done, farewell) {
        (Ok(value), Some(_)) if status.exit_status() == Some(0) => Ok(value),
        (Ok(_), Some(end)) => Err(end),
        (Ok(_), None) => {
            Err(MeasureError::fail("the echo process did not leave after the last round"))
        }
        (Err(trouble), None) => Err(trouble),
        (Err(trouble), Some(end)) if trouble == end => Err(end),
        (Err(trouble), Some(end)) => {
            Err(MeasureError::fail(format!("{}; {}", end.why(), trouble.why())))
        }
    }
}

/// Runs `echo` in a new thread and `ping` in the calling one, each pinned.
///
/// # Errors
/// Returns the error of the end that failed first.
pub(super) fn between_threads<T>(
    plan: &RoundPlan,
    ping: impl FnOnce(PeerHandle<'_>) -> Result<T>,
    echo: impl FnOnce(PeerHandle<'_>) -> Result<()> + Send,
) -> Result<T> {
    let (echo_ended, ping_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    // An end records its error before it reports that it has ended. If one end fails only because
    // the other one ended, its error is therefore recorded second.
    let first = OnceLock::new();
    let note = |trouble: &MeasureError| drop(first.set(trouble.clone()));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let _told = TellEnd(&echo_ended);
            pin::pin_to(plan.placement.there)
                .and_then(|()| {
                    let _nudge = PeriodicSignal::this_thread()?;
                    echo(PeerHandle::Thread(&ping_ended))
                })
                .inspect_err(note)
        });
        let done = {
            let _told = TellEnd(&ping_ended);
            Pinned::to(plan.placement.here)
                .and_then(|_pinned| {
                    let _nudge = PeriodicSignal::this_thread()?;
                    ping(PeerHandle::Thread(&echo_ended))
                })
                .inspect_err(note)
        };
        if other.join().is_err() {
            return Err(MeasureError::fail("the echo thread panicked"));
        }
        done.map_err(|ours| first.get().cloned().unwrap_or(ours))
    })
}

/// Answers the rounds of the plan. If the plan has pauses, receives its messages.
pub(super) fn answer(plan: &RoundPlan, end: &mut impl RoundTripEnd) -> Result<()> {
    if let Some(paced) = &plan.paced {
        return paced.receive(end);
    }
    answer_rounds(plan.answers(), end)
}

/// Answers `rounds` rounds.
#[inline(never)]
pub(super) fn answer_rounds(rounds: usize, end: &mut impl RoundTripEnd) -> Result<()> {
    for _ in 0..rounds {
        end.wait()?;
        end.send()?;
    }
    Ok(())
}

/// Warms up, then times the rounds of the plan. If the plan has pauses, sends its messages.
pub(super) fn time(plan: &RoundPlan, end: &mut impl RoundTripEnd) -> Result<Timed> {
    if let Some(paced) = &plan.paced {
        return paced.send(end);
    }
    bare(plan.warm_up, end)?;
    let batch = plan.batch();
    Ok(Timed {
        one_way: stamped(plan, plan.batches(), batch, end)?,
        batch,
        single: stamped(plan, plan.singles(), 1, end)?,
    })
}

/// Runs rounds without stamps.
#[inline(never)]
pub(super) fn bare(rounds: usize, end: &mut impl RoundTripEnd) -> Result<()> {
    for _ in 0..rounds {
        end.send()?;
        end.wait()?;
    }
    Ok(())
}

/// Returns half of the mean round of each batch, in ns.
fn stamped(
    plan: &RoundPlan,
    batches: usize,
    batch: usize,
    end: &mut impl RoundTripEnd,
) -> Result<Vec<f64>> {
    // The stamps are not zeroed memory from the allocator, because its pages would be touched for
    // the first time while the rounds are timed.
    let mut stamps = vec![1_u64; batches + 1];
    let (last, starts) = stamps.split_last_mut().expect("one more stamp than batches");
    match plan.clock.source() {
        ClockSource::Counter => stamp_each(starts, batch, end, clock::bare_counter)?,
        ClockSource::Monotonic => stamp_each(starts, batch, end, || plan.clock.stop())?,
    }
    *last = match plan.clock.source() {
        ClockSource::Counter => clock::bare_counter(),
        ClockSource::Monotonic => plan.clock.stop(),
    };
    let per_message = 1.0 / (2 * batch) as f64;
    let rounds = stamps.windows(2).map(|pair| plan.clock.ns_between(pair[0], pair[1]));
    Ok(rounds.map(|ns| ns * per_message).collect())
}

#[inline(never)]
fn stamp_each(
    starts: &mut [u64],
    batch: usize,
    end: &mut impl RoundTripEnd,
    now: impl Fn() -> u64,
) -> Result<()> {
    for start in starts {
        *start = now();
        for _ in 0..batch {
            end.send()?;
            end.wait()?;
        }
    }
    Ok(())
}

/// Waits at most `patience` for the peer to end. Returns how the peer ended.
fn await_end(peer: PeerHandle<'_>, patience: Duration) -> Option<MeasureError> {
    let began = Instant::now();
    loop {
        if let Err(end) = peer.check() {
            return Some(end);
        }
        if began.elapsed() > patience {
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

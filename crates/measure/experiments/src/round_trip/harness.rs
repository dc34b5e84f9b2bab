//! The protocol of all variants: [`RoundPlan`] and [`RoundTripEnd`], and [`Trip`], which runs it
//! over any mechanism that opens two ends.
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
//! both ends spin, a stamp costs about a third of a round, and a virtual machine's counter may
//! advance in steps of ten nanoseconds. Spinning rounds are therefore stamped once per batch; a
//! tenth as many additional rounds are stamped singly, to show the spread that batches hide.

use tontine_bench::clock::{self, ClockSource};
use tontine_bench::peer::PeriodicSignal;
use tontine_mechanisms::driver::{PairDriver, PairHalves, PairUser};
use tontine_mechanisms::end::{Early, TwoWay};
use tontine_mechanisms::workers::in_threads;

use super::end::{RoundTripEnd, Timed};
use super::paced::Paced;
use crate::prelude::*;

/// Number of rounds between two stamps in [`StampMode::Batched`].
const SPINNING_BATCH: usize = 100;
/// Number of rounds in batches per singly stamped round.
const SINGLES: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StampMode {
    EveryRound,
    /// Before each hundredth round, plus a tenth as many singly stamped rounds. Only spinning
    /// variants have rounds short enough to need this; all other variants stamp every round.
    Batched,
    BatchesOnly,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RoundPlan<'a> {
    pub(super) rounds: usize,
    pub(super) warm_up: usize,
    pub(super) stamps: StampMode,
    pub(super) placement: Placement,
    pub(super) clock: Clock,
    /// If set, the plan is one-way messages with pauses instead of rounds; between processes only.
    pub(super) paced: Option<Paced<'a>>,
}

impl RoundPlan<'_> {
    pub(super) fn new(
        rounds: usize,
        warm_up: usize,
        placement: Placement,
        stamps: StampMode,
    ) -> Self {
        Self { rounds, warm_up, stamps, placement, clock: Clock::calibrated(), paced: None }
    }

    pub(super) fn cpus(&self) -> [usize; 2] {
        [self.placement.here, self.placement.there]
    }

    /// Returns the number of rounds that the echo answers.
    pub(super) fn answers(&self) -> usize {
        self.warm_up + self.batches() * self.batch() + self.singles()
    }

    fn batch(&self) -> usize {
        if self.stamps == StampMode::EveryRound { 1 } else { SPINNING_BATCH }
    }

    fn batches(&self) -> usize {
        self.rounds.div_ceil(self.batch())
    }

    fn singles(&self) -> usize {
        if self.stamps == StampMode::Batched { self.rounds.div_ceil(SINGLES) } else { 0 }
    }
}

/// The runs of an end. Each call is compiled for its end alone, and is made once per run,
/// so that a trial can choose between ends of different types.
pub(super) trait RoundRunner {
    fn bare(&mut self, rounds: usize) -> Result<()>;
    fn answer_rounds(&mut self, rounds: usize) -> Result<()>;
    /// Answers the rounds of the plan. If the plan has pauses, receives its messages.
    fn answer(&mut self, plan: &RoundPlan<'_>) -> Result<()>;
    /// Warms up, then times the rounds of the plan. If the plan has pauses, sends its messages.
    fn time(&mut self, plan: &RoundPlan<'_>) -> Result<Timed>;
}

impl<E: RoundTripEnd> RoundRunner for E {
    #[inline(never)]
    fn bare(&mut self, rounds: usize) -> Result<()> {
        for _ in 0..rounds {
            self.send()?;
            self.wait()?;
        }
        Ok(())
    }

    #[inline(never)]
    fn answer_rounds(&mut self, rounds: usize) -> Result<()> {
        for _ in 0..rounds {
            self.wait()?;
            self.send()?;
        }
        Ok(())
    }

    fn answer(&mut self, plan: &RoundPlan<'_>) -> Result<()> {
        match &plan.paced {
            Some(paced) => paced.receive(self),
            None => self.answer_rounds(plan.answers()),
        }
    }

    fn time(&mut self, plan: &RoundPlan<'_>) -> Result<Timed> {
        if let Some(paced) = &plan.paced {
            return paced.send(self);
        }
        self.bare(plan.warm_up)?;
        let batch = plan.batch();
        let one_way = stamped(plan, plan.batches(), batch, self)?;
        Ok(Timed { one_way, batch, single: stamped(plan, plan.singles(), 1, self)? })
    }
}

/// Returns half of the mean round of each batch, in ns.
fn stamped(
    plan: &RoundPlan<'_>,
    batches: usize,
    batch: usize,
    end: &mut impl RoundTripEnd,
) -> Result<Vec<f64>> {
    // The stamps are not zeroed memory from the allocator, because its pages would be touched for
    // the first time while the rounds are timed.
    let mut stamps = vec![1_u64; batches + 1];
    let (last, starts) = stamps.split_last_mut().expect("one more stamp than batches");
    match plan.clock.source() {
        ClockSource::Counter => {
            stamp_each(starts, batch, end, clock::bare_counter)?;
            *last = clock::bare_counter();
        }
        ClockSource::Monotonic => {
            stamp_each(starts, batch, end, || plan.clock.stop())?;
            *last = plan.clock.stop();
        }
    }
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

/// An end of a mechanism. Its messages have `BYTES` bytes: a one followed by zeros.
pub(super) struct Adapted<'a, E, const BYTES: usize> {
    pub(super) end: E,
    pub(super) peers: [PeerHandle<'a>; 1],
}

impl<E: TwoWay, const BYTES: usize> RoundTripEnd for Adapted<'_, E, BYTES> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        let mut message = [0; BYTES];
        message[0] = 1;
        Ok(self.end.send(&message, &self.peers)?)
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        Ok(self.end.receive(&self.peers, |_| ())?)
    }

    #[inline(always)]
    fn forget(&mut self) -> Result<()> {
        self.end.forget()
    }
}

/// Times the rounds of a plan. Also returns the number of premature deliveries, if it is counted.
pub(super) struct Trip<'p>(pub(super) &'p RoundPlan<'p>);

impl Trip<'_> {
    fn ping<P: PairDriver, const BYTES: usize>(
        &self,
        half: P::Half,
        peer: PeerHandle<'_>,
    ) -> Result<(Timed, Option<Early>)> {
        let end = P::open::<BYTES>(half, &[peer])?;
        let mut end = Adapted::<_, BYTES> { end, peers: [peer] };
        let timed = end.time(self.0)?;
        Ok((timed, end.end.early()))
    }

    fn echo<P: PairDriver, const BYTES: usize>(
        &self,
        half: P::Half,
        peer: PeerHandle<'_>,
    ) -> Result<()> {
        let end = P::open::<BYTES>(half, &[peer])?;
        Adapted::<_, BYTES> { end, peers: [peer] }.answer(self.0)
    }
}

impl PairUser for Trip<'_> {
    type Out = Result<(Timed, Option<Early>)>;

    fn threads<P: PairDriver<Half: Send>, const BYTES: usize>(self) -> Self::Out {
        let PairHalves { first, second, kept: _kept } = P::pair(BYTES)?;
        let [here, there] = self.0.cpus();
        let echo = |peer: PeerHandle<'_>| self.echo::<P, BYTES>(second, peer);
        in_threads(here, vec![(there, echo)], |peers| self.ping::<P, BYTES>(first, peers[0]))
    }

    fn processes<P: PairDriver, const BYTES: usize>(self) -> Self::Out {
        let PairHalves { first, second, kept: _kept } = P::pair(BYTES)?;
        in_two_processes(
            self.0.cpus(),
            (first, second),
            |half, peer| {
                let _signal = PeriodicSignal::this_thread()?;
                self.ping::<P, BYTES>(half, peer)
            },
            |half, peer| self.echo::<P, BYTES>(half, peer),
        )
    }
}

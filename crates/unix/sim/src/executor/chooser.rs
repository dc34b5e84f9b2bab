//! Selection of the next fiber: [`Chooser`], and [`Seeded`], which selects at random.
//!
//! A chooser sees fibers only as numbers, in an order that depends only on earlier choices. A
//! chooser that enumerates all schedules returns a stretch of 1 and records its choices.

use super::footprint::{At, Footprint};
use super::task::SwitchReason;
use crate::split_mix::SplitMix;

/// The end of a fiber's stretch.
#[derive(Debug, Clone, Copy)]
pub struct SwitchEvent {
    /// The number of the fiber.
    pub fiber: u32,
    /// The word that the fiber was started with.
    pub context: usize,
    /// The name by which the watchdog reports the fiber, or the fiber that it serves; 0 if it has
    /// no name.
    pub name: usize,
    /// The reason why the fiber stopped running.
    pub leave: SwitchReason,
    /// The point at which the fiber stopped, if it stopped at a point.
    pub at: At,
    /// The objects that the fiber reached, if they are recorded.
    pub touched: Footprint,
}

/// Number of the clock in a list of runnable fibers, which are numbered from 1.
pub const CLOCK: u32 = 0;

/// The source of the simulated executor's decisions.
pub trait Chooser: Send {
    /// Returns the number of points that the chosen fiber passes until the next decision, including
    /// the point of the decision: at least 1.
    fn stretch(&mut self) -> u32;

    /// Returns the index in `runnable` of the fiber that runs next. `running` is the index of the
    /// current fiber, if it can continue.
    fn choose(&mut self, runnable: &[u32], running: Option<usize>) -> usize;

    /// Returns `true` if the chooser may let time pass to the next timer while fibers are runnable.
    /// If so, the last element of `runnable` is [`CLOCK`] whenever a timer is set.
    fn passes_time(&self) -> bool {
        false
    }

    /// Returns `true` if the executor consults the chooser at each point on the fiber's own stack,
    /// so that a fiber that continues causes no switch.
    fn decides_in_place(&self) -> bool {
        false
    }

    /// Returns `true` if the executor must record the objects that fibers reach.
    fn compares(&self) -> bool {
        false
    }

    /// Returns `true` if the running fiber continues without a choice; `several` is `true` if there
    /// would be a choice. Called on the fiber's own stack, at a point. The fiber's effects are then
    /// reported together with those up to the next point at which this method returns `false`.
    fn keeps_running(&mut self, several: bool) -> bool {
        let _ = several;
        false
    }

    /// Returns `true` if the fiber to which the running one handed its work continues without a
    /// choice; `several` is `true` if several fibers are runnable. The effects of both are then
    /// reported together.
    fn hands_over(&mut self, several: bool) -> bool {
        let _ = several;
        false
    }

    /// Receives the effects of the last stretch of a fiber.
    fn left(&mut self, left: &SwitchEvent) {
        let _ = left;
    }

    /// Returns `true` if a clock tick occurs at the point from which a fiber continues. Called only
    /// if the clock ticks.
    fn tick(&mut self) -> bool {
        false
    }
}

/// A chooser that, at each point with a probability of 1 in [`Seeded::ODDS`], selects any runnable
/// fiber with equal probability.
#[derive(Clone)]
pub(crate) struct Seeded {
    random: SplitMix,
    odds: u32,
    /// The number of preemptions left. A preemption is the selection of another fiber while the
    /// current one could continue.
    preemptions: u64,
}

impl Seeded {
    /// Mean number of points per decision.
    pub(crate) const ODDS: u32 = 8;
    /// Mean number of decisions per clock tick.
    pub(crate) const TICKS: u32 = 16;

    pub(crate) fn new(seed: u64) -> Self {
        Self { random: SplitMix::new(seed), odds: Self::ODDS, preemptions: u64::MAX }
    }

    /// Like [`Seeded::new`], but the seed also determines how often the chooser chooses, because
    /// some races need a fiber that stays suspended for a long time, and others need many switches
    /// in a short time.
    pub(crate) fn varied(seed: u64) -> Self {
        let mut chooser = Self::new(seed);
        let odds = [2, Self::ODDS, 32, 128][chooser.random.below(4) as usize];
        chooser.odds(odds)
    }

    /// Sets the mean number of points per decision. With 1, the chooser decides at each point.
    pub(crate) fn odds(self, odds: u32) -> Self {
        Self { odds: odds.max(1), ..self }
    }

    /// Sets the maximum number of preemptions.
    pub(crate) fn preemptions(self, preemptions: u64) -> Self {
        Self { preemptions, ..self }
    }
}

impl Chooser for Seeded {
    fn stretch(&mut self) -> u32 {
        // Uniform on 1..=2·odds-1, so the mean is `odds`. A logarithm is avoided because its last
        // bit could differ between machines.
        1 + self.random.below(2 * self.odds - 1)
    }

    fn choose(&mut self, runnable: &[u32], running: Option<usize>) -> usize {
        let bound = u32::try_from(runnable.len()).unwrap_or(u32::MAX);
        match running {
            Some(running) if self.preemptions == 0 => running,
            Some(running) => {
                let choice = self.random.below(bound) as usize;
                self.preemptions -= u64::from(choice != running);
                choice
            }
            None => self.random.below(bound) as usize,
        }
    }

    fn tick(&mut self) -> bool {
        self.random.below(Self::TICKS) == 0
    }
}

/// A random chooser whose generator is reseeded whenever the given seed changes. For most seeds it
/// acts like one processor with a non-preemptible kernel: another fiber runs only after a call
/// returns, or when its thread sleeps. For the other seeds it acts like [`Seeded::varied`].
pub(crate) struct ReseedingChooser<F> {
    begin: F,
    began: u64,
    seeded: Seeded,
    /// `true` if other fibers may run at every point.
    anywhere: bool,
    /// `true` if other fibers may run at this point.
    here: bool,
}

impl<F: Fn() -> u64> ReseedingChooser<F> {
    /// On average, 1 in this many seeds lets other fibers run at every point.
    const ANYWHERE: u32 = 4;

    pub(crate) fn new(begin: F) -> Self {
        let began = begin();
        let mut rerolled =
            Self { begin, began, seeded: Seeded::new(began), anywhere: false, here: true };
        rerolled.roll();
        rerolled
    }

    fn roll(&mut self) {
        self.seeded = Seeded::varied(self.began);
        self.anywhere = self.seeded.random.below(Self::ANYWHERE) == 0;
    }

    fn look(&mut self) {
        let begin = (self.begin)();
        if begin != self.began {
            self.began = begin;
            self.roll();
        }
    }
}

impl<F: Fn() -> u64 + Send> Chooser for ReseedingChooser<F> {
    fn stretch(&mut self) -> u32 {
        self.look();
        if self.anywhere { self.seeded.stretch() } else { 1 }
    }

    fn choose(&mut self, runnable: &[u32], running: Option<usize>) -> usize {
        self.look();
        match running {
            Some(running) if !self.anywhere && !self.here => running,
            // A woken fiber runs first in half of the cases.
            Some(running) if !self.anywhere && self.seeded.random.below(2) == 0 => running,
            _ => self.seeded.choose(runnable, running),
        }
    }

    fn decides_in_place(&self) -> bool {
        true
    }

    fn left(&mut self, left: &SwitchEvent) {
        let within = matches!(left.at, At::Call | At::Lock(..) | At::Unlock(..));
        self.here = left.leave != SwitchReason::Point || !within;
    }
}

//! Who goes on, when there is a choice: [`Chooser`], and [`Seeded`], which rolls dice.
//!
//! A chooser sees fibers as numbers only, in an order that depends on nothing but earlier choices.
//! One that goes through every schedule answers a stretch of 1 and keeps a record of its choices.

use super::footprint::{At, Footprint};
use super::task::SwitchReason;
use crate::split_mix::SplitMix;

/// One stretch of a fiber.
#[derive(Debug, Clone, Copy)]
pub struct SwitchEvent {
    /// The fiber's number.
    pub fiber: u32,
    /// The word that it was started with.
    pub context: usize,
    /// What the watchdog calls it or whom it serves, or 0.
    pub name: usize,
    /// Why it left.
    pub leave: SwitchReason,
    /// Where, if it left at a point.
    pub at: At,
    /// What it reached, if that is noted.
    pub touched: Footprint,
}

/// Number of the clock in a list of runnable fibers, which are numbered from 1.
pub const CLOCK: u32 = 0;

/// Decides for the simulated executor.
pub trait Chooser: Send {
    /// How many points the fiber that goes on may pass until the next decision, that one included:
    /// at least 1.
    fn stretch(&mut self) -> u32;

    /// Which of `runnable`, an index, goes on. `running` is the index of the one that could simply
    /// go on, if it can.
    fn choose(&mut self, runnable: &[u32], running: Option<usize>) -> usize;

    /// Returns `true` if the chooser may let time pass to the next timer while fibers are runnable.
    /// Then, whenever a timer is set, the last number that it is given is [`CLOCK`].
    fn passes_time(&self) -> bool {
        false
    }

    /// Whether it is asked at each point on the fiber's own stack: a fiber that goes on is not
    /// switched away from and back to.
    fn decides_in_place(&self) -> bool {
        false
    }

    /// Whether what fibers reach is noted.
    fn compares(&self) -> bool {
        false
    }

    /// Asked in place, at a point: whether the running fiber goes on without a choice among the
    /// `several` that can. What it did is told with what it does up to where this is false.
    fn stays(&mut self, several: bool) -> bool {
        let _ = several;
        false
    }

    /// Whether what the running fiber handed over goes on without a choice among the `several` that
    /// can. What it did is told with what follows.
    fn hands_over(&mut self, several: bool) -> bool {
        let _ = several;
        false
    }

    /// What a fiber has just done, if it is to be known.
    fn left(&mut self, left: &SwitchEvent) {
        let _ = left;
    }

    /// Whether a clock tick lands at the point from which a fiber goes on. Asked only if the clock
    /// ticks.
    fn tick(&mut self) -> bool {
        false
    }
}

/// Chooses at random: at each point with a probability of 1 in [`Seeded::ODDS`] any runnable fiber,
/// all equally likely.
#[derive(Debug, Clone)]
pub(crate) struct Seeded {
    random: SplitMix,
    odds: u32,
    /// How often it may still take the processor from a fiber that could go on.
    preemptions: u64,
}

impl Seeded {
    /// Points to a decision, on average.
    pub(crate) const ODDS: u32 = 8;
    /// Decisions to a clock tick, on average.
    pub(crate) const TICKS: u32 = 16;

    pub(crate) fn new(seed: u64) -> Self {
        Self { random: SplitMix::new(seed), odds: Self::ODDS, preemptions: u64::MAX }
    }

    /// As [`Seeded::new`], but the seed also says how often it decides: some races want somebody to
    /// stand still for long, others want many turns in a short time.
    pub(crate) fn varied(seed: u64) -> Self {
        let mut chooser = Self::new(seed);
        let odds = [2, Self::ODDS, 32, 128][chooser.random.below(4) as usize];
        chooser.odds(odds)
    }

    /// With a decision at 1 of `odds` points on average; 1: at each.
    pub(crate) fn odds(self, odds: u32) -> Self {
        Self { odds: odds.max(1), ..self }
    }

    /// That takes the processor from a fiber that could go on at most `preemptions` times.
    pub(crate) fn preemptions(self, preemptions: u64) -> Self {
        Self { preemptions, ..self }
    }
}

impl Chooser for Seeded {
    fn stretch(&mut self) -> u32 {
        // Uniform on 1..=2·odds-1: of mean `odds`, and no logarithm, whose last bit could differ.
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

/// Chooses by dice that begin anew whenever they are told to begin with another number. Mostly it
/// does as one processor does on which nobody is interrupted in the kernel: somebody else goes on
/// where a call returns, or where its thread sleeps. Else it does as [`Seeded::varied`].
pub(crate) struct Rerolled<F> {
    begin: F,
    began: u64,
    dice: Seeded,
    /// Whether others go on anywhere.
    anywhere: bool,
    /// Whether others may go on here.
    here: bool,
}

impl<F: Fn() -> u64> Rerolled<F> {
    /// One in so many throws of the dice has others go on anywhere.
    const ANYWHERE: u32 = 4;

    pub(crate) fn new(begin: F) -> Self {
        let began = begin();
        let mut rerolled =
            Self { begin, began, dice: Seeded::new(began), anywhere: false, here: true };
        rerolled.roll();
        rerolled
    }

    fn roll(&mut self) {
        self.dice = Seeded::varied(self.began);
        self.anywhere = self.dice.random.below(Self::ANYWHERE) == 0;
    }

    fn look(&mut self) {
        let begin = (self.begin)();
        if begin != self.began {
            self.began = begin;
            self.roll();
        }
    }
}

impl<F: Fn() -> u64 + Send> Chooser for Rerolled<F> {
    fn stretch(&mut self) -> u32 {
        self.look();
        if self.anywhere { self.dice.stretch() } else { 1 }
    }

    fn choose(&mut self, runnable: &[u32], running: Option<usize>) -> usize {
        self.look();
        match running {
            Some(running) if !self.anywhere && !self.here => running,
            // Whoever was woken comes first as often as not.
            Some(running) if !self.anywhere && self.dice.random.below(2) == 0 => running,
            _ => self.dice.choose(runnable, running),
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

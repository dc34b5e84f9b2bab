//! Schedules of the virtual Unix within the steps: [`Rolls`], and the [`RollSearch`] for the
//! schedule that Linux followed.
//!
//! A thread that is woken in a step may continue before or after the thread that woke it. A run on
//! Linux is one of many combinations over all steps, and random choices for all steps together
//! would practically never produce that combination. Therefore each step has its own random seed,
//! and if two runs diverge in a step, the seeds of the earlier steps are kept.

use tontine_unix_sim::internal::SplitMix;

/// The random seed of each step.
#[derive(Debug, Clone)]
pub(super) struct Rolls {
    seed: u64,
    /// The steps from which new seeds were drawn, each with the ordinal of the attempt.
    again: Vec<(u32, u32)>,
}

impl Rolls {
    /// Returns the seeds that derive from `seed`.
    pub(super) const fn new(seed: u64) -> Self {
        Self { seed, again: Vec::new() }
    }

    /// Returns the random seed of this step, which is never 0.
    pub(super) fn of(&self, step: u32) -> u64 {
        let times = self.again.iter().rev().find(|(of, _)| *of <= step).map_or(0, |(_, n)| *n);
        let mixed = self.seed ^ u64::from(times) << 32 ^ u64::from(step);
        SplitMix::new(mixed).next() | 1
    }
}

/// The search for seeds under which the virtual Unix does what Linux did.
#[derive(Debug)]
pub(super) struct RollSearch {
    /// The attempt that diverged in the latest step so far, and the number of that step.
    nearest: Rolls,
    parts_in: u32,
    /// The current attempt.
    tried: Rolls,
    times: u32,
    choice: SplitMix,
}

/// On average, one in this many attempts also draws a new seed for the previous step.
const STEPS_BACK: usize = 3;

impl RollSearch {
    pub(super) fn new(seed: u64) -> Self {
        let (nearest, tried) = (Rolls::new(seed), Rolls::new(seed));
        Self { nearest, parts_in: 0, tried, times: 0, choice: SplitMix::new(seed) }
    }

    /// Returns the seeds of the next attempt.
    pub(super) fn rolls(&self) -> Rolls {
        self.tried.clone()
    }

    /// Records that the attempt diverged in this step. Returns `true` if no earlier attempt
    /// diverged in a later step.
    pub(super) fn parts_in(&mut self, step: u32) -> bool {
        let is_nearest = step >= self.parts_in;
        if is_nearest {
            (self.nearest, self.parts_in) = (self.tried.clone(), step);
        }
        // The cause may lie in an earlier step, for example the one that brought a thread to its
        // gate.
        let mut from = self.parts_in;
        while from > 0 && self.choice.index(STEPS_BACK) == 0 {
            from -= 1;
        }
        self.times += 1;
        self.tried = self.nearest.clone();
        self.tried.again.retain(|(of, _)| *of < from);
        self.tried.again.push((from, self.times));
        is_nearest
    }
}

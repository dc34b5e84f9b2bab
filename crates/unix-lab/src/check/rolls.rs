//! Schedules of the virtual Unix within the steps: [`Rolls`], and the [`Search`] for the one that
//! is what Linux did.
//!
//! Whoever is woken in a step may go on before or after who woke it. A run on Linux is one of the
//! many ways in which all steps together can go; to roll all dice anew until each of them falls so
//! takes for ever. So each step has dice of its own: those of the steps before the one in which two
//! runs part are kept.

use tontine_unix_sim::internal::SplitMix;

/// What the dice of each step begin with.
#[derive(Debug, Clone)]
pub(super) struct Rolls {
    seed: u64,
    /// The steps whose dice were rolled anew, and which time that was.
    again: Vec<(u32, u32)>,
}

impl Rolls {
    /// Those of a seed.
    pub(super) const fn new(seed: u64) -> Self {
        Self { seed, again: Vec::new() }
    }

    /// What the dice of this step begin with; never 0.
    pub(super) fn of(&self, step: u32) -> u64 {
        let times = self.again.iter().rev().find(|(of, _)| *of <= step).map_or(0, |(_, n)| *n);
        let mixed = self.seed ^ u64::from(times) << 32 ^ u64::from(step);
        SplitMix::new(mixed).next() | 1
    }
}

/// Looks for the rolls under which the virtual Unix does what Linux did.
#[derive(Debug)]
pub(super) struct Search {
    /// The nearest so far, and the step in which it parts.
    nearest: Rolls,
    parts_in: u32,
    /// What is tried.
    tried: Rolls,
    times: u32,
    choice: SplitMix,
}

/// One try in so many goes back to a step before.
const STEPS_BACK: usize = 3;

impl Search {
    pub(super) fn new(seed: u64) -> Self {
        let (nearest, tried) = (Rolls::new(seed), Rolls::new(seed));
        Self { nearest, parts_in: 0, tried, times: 0, choice: SplitMix::new(seed) }
    }

    /// What is to be tried next.
    pub(super) fn rolls(&self) -> Rolls {
        self.tried.clone()
    }

    /// Says that it parts in this step; whether that is as far as any did.
    pub(super) fn parts_in(&mut self, step: u32) -> bool {
        let is_nearest = step >= self.parts_in;
        if is_nearest {
            (self.nearest, self.parts_in) = (self.tried.clone(), step);
        }
        // Where they part may follow from a step before: that somebody is at a gate does.
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

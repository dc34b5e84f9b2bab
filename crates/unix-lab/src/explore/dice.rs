//! Dice for sampled schedules, the same on every machine.

use tontine_unix_sim::internal::SplitMix;

/// Throws dice.
#[derive(Debug, Clone)]
pub(super) struct Dice {
    random: SplitMix,
    /// Decisions to a preemption, on average.
    odds: u32,
    /// The next one that is.
    next: u32,
}

impl Dice {
    /// Dice that the seed says everything of: some races want somebody to stand still for long,
    /// others many turns in a short time.
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Self { random: SplitMix::new(seed), odds: 1, next: 0 };
        dice.odds = [2, 8, 32, 128][dice.below(4) as usize];
        dice.wait();
        dice
    }

    /// Whether whoever runs is interrupted at this decision.
    #[inline]
    pub(super) fn interrupts(&mut self, decision: u32) -> bool {
        if decision < self.next {
            return false;
        }
        self.next = decision;
        self.wait();
        true
    }

    /// The next decision at which it may be.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    fn wait(&mut self) {
        // Uniform, of mean `odds`.
        self.next += 1 + self.below(2 * self.odds - 1);
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.random.below(bound)
    }
}

//! Random preemptions for sampled schedules. A seed gives the same preemptions on every machine.

use tontine_unix_sim::internal::SplitMix;

/// Chooses at random the decisions at which the running fiber is preempted, and the fiber that runs
/// next.
#[derive(Debug, Clone)]
pub(super) struct PreemptionSampler {
    random: SplitMix,
    /// Mean number of decisions from one preemption to the next.
    odds: u32,
    /// The next decision at which the running fiber is preempted.
    next: u32,
}

impl PreemptionSampler {
    /// Creates a sampler whose choices and mean depend only on the seed. The mean varies, because
    /// some races need a fiber that pauses for a long time, and others need many turns in a short
    /// time.
    pub(super) fn new(seed: u64) -> Self {
        let mut sampler = Self { random: SplitMix::new(seed), odds: 1, next: 0 };
        sampler.odds = [2, 8, 32, 128][sampler.below(4) as usize];
        sampler.wait();
        sampler
    }

    /// Returns `true` if the running fiber is preempted at this decision.
    #[inline]
    pub(super) fn interrupts(&mut self, decision: u32) -> bool {
        if decision < self.next {
            return false;
        }
        self.next = decision;
        self.wait();
        true
    }

    /// Returns the next decision at which the running fiber may be preempted.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    fn wait(&mut self) {
        // Uniform, with mean `odds`.
        self.next += 1 + self.below(2 * self.odds - 1);
    }

    /// Returns a random number below `bound`.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.random.below(bound)
    }
}

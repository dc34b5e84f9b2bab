//! The source of randomness for scenarios: [`Chance`].

use tontine_unix_sim::internal::SplitMix;

/// A seeded random number generator.
#[derive(Debug, Clone)]
pub(super) struct Chance(SplitMix);

impl Chance {
    pub(super) const fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        self.0.index(count)
    }

    /// Returns `true` in `yes` of `of` cases.
    pub(super) fn odds(&mut self, yes: usize, of: usize) -> bool {
        self.below(of) < yes
    }

    /// Returns one element.
    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Returns one element, with a probability proportional to its weight.
    pub(super) fn weighted<'a, T>(&mut self, all: &'a [T], weight: impl Fn(&T) -> usize) -> &'a T {
        let mut left = self.below(all.iter().map(&weight).sum());
        for one in all {
            let own = weight(one);
            if left < own {
                return one;
            }
            left -= own;
        }
        unreachable!("the number was below the sum")
    }
}

//! Where random scenarios come from: [`Chance`].

use tontine_unix_sim::internal::SplitMix;

/// A seeded choice.
#[derive(Debug, Clone)]
pub(super) struct Chance(SplitMix);

impl Chance {
    pub(super) const fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    /// A number below `count`.
    pub(super) fn below(&mut self, count: usize) -> usize {
        self.0.index(count)
    }

    /// Yes in so many of so many cases.
    pub(super) fn odds(&mut self, yes: usize, of: usize) -> bool {
        self.below(of) < yes
    }

    /// One of them.
    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// One of them, each as often as its weight says.
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

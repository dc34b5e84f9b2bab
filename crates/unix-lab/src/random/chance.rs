//! Where random scenarios come from: [`Chance`].

use tontine_unix_sim::internal::next_random;

/// A seeded choice.
#[derive(Debug, Clone)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        next_random(&mut self.0)
    }

    /// A number below `count`, by the high half of a product.
    pub(super) fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next()) * count as u128) >> 64) as usize
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

//! Who is let through next: [`Choice`], the same on both systems.

use tontine_unix_sim::internal::next_random;

/// A seeded choice.
#[derive(Debug, Clone)]
pub(super) struct Choice(u64);

impl Choice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number of any kind.
    pub(super) fn next(&mut self) -> u64 {
        next_random(&mut self.0)
    }

    /// One of so many, by the high half of a product.
    pub(super) fn among(&mut self, count: usize) -> usize {
        let product = u128::from(self.next()) * count as u128;
        (product >> 64) as usize
    }
}

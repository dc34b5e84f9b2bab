//! SplitMix64 (Steele, Lea, Flood 2014): [`SplitMix`], which produces the same numbers on every
//! machine.
//!
//! Recorded seeds depend on each number and on the order in which numbers are drawn. Other modules
//! choose with these numbers: `executor::chooser` and `explore::preemption_sampler` choose
//! schedules, `check` orders of steps, `random::chance` scenarios.

/// A pseudorandom number generator.
#[derive(Debug, Clone)]
pub struct SplitMix(u64);

impl SplitMix {
    /// Creates a generator with this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`: the high half of a product, computed without a division.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        let product = u64::from((self.next() >> 32) as u32) * u64::from(bound);
        (product >> 32) as u32
    }

    /// Returns an index below `count`: the high half of a product of all bits. The result differs
    /// from that of [`Self::below`].
    #[inline]
    pub fn index(&mut self, count: usize) -> usize {
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }
}

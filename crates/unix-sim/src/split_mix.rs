//! SplitMix64 (Steele, Lea, Flood 2014): [`SplitMix`], the same numbers on every machine.
//!
//! Recorded seeds depend on each number and on the order in which they are drawn. What is chosen by
//! them is decided elsewhere: schedules in `executor::chooser` and `explore::dice`, orders of steps
//! in `check`, scenarios in `random::chance`.

/// A generator.
#[derive(Debug, Clone)]
pub struct SplitMix(u64);

impl SplitMix {
    /// A generator that begins at `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, by the high half of a product: no division.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        let product = u64::from((self.next() >> 32) as u32) * u64::from(bound);
        (product >> 32) as u32
    }

    /// An index of `count` things, by the high half of a product of all bits: another number than
    /// [`Self::below`] makes of them.
    #[inline]
    pub fn index(&mut self, count: usize) -> usize {
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }
}

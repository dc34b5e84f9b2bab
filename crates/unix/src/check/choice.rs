//! Who is let through next: [`Choice`], the same on both systems.

/// A seeded choice: SplitMix64 (Steele, Lea, Flood 2014), the same numbers on every machine.
#[derive(Debug, Clone)]
pub(super) struct Choice(u64);

impl Choice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number of any kind.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of so many, by the high half of a product.
    pub(super) fn among(&mut self, count: usize) -> usize {
        let product = u128::from(self.next()) * count as u128;
        (product >> 64) as usize
    }
}

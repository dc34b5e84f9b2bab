//! The workers' random number generator: [`HeapRng`].

/// A linear congruential generator. It is cheap compared with a call of a heap, and is the same for
/// all heaps.
#[derive(Debug)]
pub(super) struct HeapRng(u64);

impl HeapRng {
    /// Creates a generator; each number gives a different sequence.
    pub(super) fn of(number: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1))
    }

    /// Draws a number below `end` uniformly; `end` is small.
    #[inline(always)]
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((u64::from(self.bits()) * end as u64) >> u32::BITS) as usize
    }

    /// Draws a size of at least 8 bytes. Each doubling, up to `doublings`, is half as likely as the
    /// previous one.
    #[inline(always)]
    pub(super) fn mostly_small(&mut self, doublings: u32) -> usize {
        let doubled = self.bits().leading_zeros().min(doublings);
        let least = 8 << doubled;
        least + self.below(least)
    }

    #[inline(always)]
    fn bits(&mut self) -> u32 {
        // Knuth's MMIX generator, of which only the upper bits are sufficiently random.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> u32::BITS) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_and_sizes_halve_in_frequency() {
        let mut rng = HeapRng::of(3);
        let mut counts = [0; 10];
        (0..100_000).for_each(|_| counts[rng.below(10)] += 1);
        assert!(counts.iter().all(|count| (9_000..11_000).contains(count)), "{counts:?}");
        let mut by_size = [0; 12];
        for _ in 0..100_000 {
            let size = rng.mostly_small(4);
            assert!((8..256).contains(&size), "{size}");
            by_size[size.ilog2() as usize] += 1;
        }
        assert!((48_000..52_000).contains(&by_size[3]), "{by_size:?}");
        assert!((24_000..26_000).contains(&by_size[4]), "{by_size:?}");
        assert!((5_500..7_000).contains(&by_size[7]), "{by_size:?}");
    }
}

//! [`WorkerThreads`]: threads that start together and work for a given time. [`BlockRng`] is their
//! random number generator.

use std::time::Duration;

use crate::prelude::*;

pub(super) const BATCH: usize = 256;
/// Minimum number of timed batches. With fewer batches, a thread that had no processor would be
/// represented by the single batch in which it waited.
const MIN_BATCHES: usize = 50;
const WARM_UP: f64 = 0.25;

/// Size of the smallest block, and difference between consecutive sizes.
pub(super) const STEP: usize = 16;
const SIZES: u64 = 32;

#[derive(Debug, Clone, Copy)]
pub(super) struct WorkerThreads<'a> {
    /// Worker i runs on processor i, modulo the number of processors.
    pub(super) processors: &'a [usize],
    pub(super) clock: Clock,
    pub(super) time: Duration,
}

impl WorkerThreads<'_> {
    /// Runs `work` in `members` threads, each with its number, and releases all threads at the same
    /// time. If a worker cannot be pinned, no worker runs `work`.
    pub(super) fn together<T: Send>(
        &self,
        members: usize,
        work: impl Fn(usize) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let pin = |number: usize| Pinned::to(self.processors[number % self.processors.len()]);
        threads::together(members, pin, |number, _pinned| work(number))
    }

    /// Runs batches until the time is over or `batch` returns `false`. Returns the mean of each
    /// batch in ns per operation, except those of the warm-up.
    #[inline(always)]
    pub(super) fn batches(&self, mut batch: impl FnMut() -> Result<bool>) -> Result<Vec<f64>> {
        let all = self.time.as_nanos() as f64;
        let mut means = Vec::with_capacity(1 << 14);
        let began = self.clock.start();
        let mut from = began;
        loop {
            let more = batch()?;
            let to = self.clock.stop();
            let since = self.clock.ns_between(began, to);
            if more && since > all * WARM_UP {
                means.push(self.clock.ns_between(from, to) / BATCH as f64);
            }
            if !more || since > all && means.len() >= MIN_BATCHES {
                return Ok(means);
            }
            from = to;
        }
    }
}

/// A linear congruential generator. It is cheap compared with a call of an allocator, and is the
/// same for all allocators.
#[derive(Debug)]
pub(crate) struct BlockRng(u64);

impl BlockRng {
    /// Creates a generator; each number gives a different sequence.
    pub(crate) fn of(number: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1))
    }

    /// Draws the size of a block and a number below 1,024, both uniformly.
    #[inline(always)]
    pub(super) fn size_and_slot(&mut self) -> (usize, usize) {
        let bits = self.bits();
        let size = (bits >> 8) as u64 % SIZES + 1;
        (size as usize * STEP, (bits >> 22) as usize)
    }

    /// Draws a number below `end` uniformly; `end` is small.
    #[inline(always)]
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u64::from(self.bits()) * end as u64) >> u32::BITS) as usize
    }

    /// Draws a size of at least 8 bytes. Each doubling, up to `doublings`, is half as likely as the
    /// previous one.
    #[inline(always)]
    pub(crate) fn mostly_small(&mut self, doublings: u32) -> usize {
        let doubled = self.bits().leading_zeros().min(doublings);
        let min = 8 << doubled;
        min + self.below(min)
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
    fn generator_draws_every_size_and_slot() {
        let mut rng = BlockRng::of(0);
        let (mut sizes, mut slots) = ([0; 33], [0; 1024]);
        for _ in 0..100_000 {
            let (size, slot) = rng.size_and_slot();
            assert_eq!(size % STEP, 0);
            sizes[size / STEP] += 1;
            slots[slot] += 1;
        }
        assert_eq!(sizes[0], 0);
        assert!(sizes[1..].iter().all(|count| (2_800..3_500).contains(count)), "{sizes:?}");
        assert!(slots.iter().all(|&count| count > 0));
    }

    #[test]
    fn numbers_are_uniform_and_sizes_halve_in_frequency() {
        let mut rng = BlockRng::of(3);
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

    #[test]
    fn batches_end_when_work_or_time_is_used_up() {
        let processors = [0];
        let mut workers = WorkerThreads {
            processors: &processors,
            clock: Clock::monotonic(),
            time: Duration::MAX,
        };
        let mut left = 3;
        let means = workers.batches(|| {
            left -= 1;
            Ok(left > 0)
        });
        assert_eq!((means, left), (Ok(Vec::new()), 0), "all of it warm-up");
        workers.time = Duration::from_millis(1);
        assert!(workers.batches(|| Ok(true)).expect("they end").len() >= MIN_BATCHES);
    }
}

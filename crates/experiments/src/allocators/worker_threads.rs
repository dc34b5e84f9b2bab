//! [`WorkerThreads`]: threads that start together and work for a given time. [`CrewRng`] is their
//! random number generator.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::pin::Pinned;

/// Number of operations between two stamps.
pub(super) const BATCH: usize = 256;
/// Minimum number of timed batches. With fewer batches, a thread that had no processor would be
/// represented by the single batch in which it waited.
const MIN_BATCHES: usize = 50;
/// Fraction of the time in which a worker warms up before it is timed.
const WARM_UP: f64 = 0.25;

/// Size of the smallest block, and difference between consecutive sizes.
pub(super) const STEP: usize = 16;
/// Number of sizes: 16 to 512 bytes.
const SIZES: u64 = 32;

/// The processors of the workers, and the duration of their work.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkerThreads<'a> {
    /// Worker i runs on processor i, modulo the number of processors.
    pub(super) processors: &'a [usize],
    pub(super) clock: Clock,
    pub(super) time: Duration,
}

impl WorkerThreads<'_> {
    /// Runs `work` in `members` threads, each with its number, and releases all threads at the same
    /// time.
    ///
    /// # Errors
    /// Returns the first error of a worker. If a worker cannot be pinned, no worker runs `work`.
    pub(super) fn together<T: Send>(
        &self,
        members: usize,
        work: impl Fn(usize) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let (start, incomplete) = (Barrier::new(members), AtomicBool::new(false));
        let member = |number: usize| {
            let pinned = Pinned::to(self.processors[number % self.processors.len()]);
            if pinned.is_err() {
                // Relaxed is enough: the barrier publishes this store.
                incomplete.store(true, Ordering::Relaxed);
            }
            start.wait();
            let _pinned = pinned?;
            if incomplete.load(Ordering::Relaxed) {
                return Ok(None);
            }
            work(number).map(Some)
        };
        let results: Vec<Result<Option<T>>> = thread::scope(|scope| {
            let member = &member;
            let threads: Vec<_> =
                (0..members).map(|number| scope.spawn(move || member(number))).collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|_| Err(MeasureError::fail("a thread panicked")))
                })
                .collect()
        });
        let done: Vec<Option<T>> = results.into_iter().collect::<Result<_>>()?;
        Ok(done.into_iter().flatten().collect())
    }

    /// Runs batches until the time is over or `batch` returns `false`. Returns the mean of each
    /// batch in ns per operation, except those of the warm-up.
    ///
    /// # Errors
    /// Returns the errors of `batch`.
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
pub(super) struct CrewRng(u64);

impl CrewRng {
    /// Creates a worker's generator, whose sequence differs from those of the others.
    pub(super) fn of(member: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(member as u64 + 1))
    }

    /// Draws the size of a block and a number below 1,024, both uniformly.
    #[inline(always)]
    pub(super) fn size_and_slot(&mut self) -> (usize, usize) {
        // Knuth's MMIX generator, of which only the upper bits are sufficiently random.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let size = (self.0 >> 40) % SIZES + 1;
        (size as usize * STEP, (self.0 >> 54) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::os::pin;

    #[test]
    fn generator_draws_every_size_and_slot() {
        let mut rng = CrewRng::of(0);
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
    fn workers_do_no_work_if_one_cannot_be_pinned() {
        let nowhere = rustix::thread::CpuSet::MAX_CPU - 1;
        let processors = [pin::allowed().expect("affinity")[0], nowhere];
        let workers = WorkerThreads {
            processors: &processors,
            clock: Clock::monotonic(),
            time: Duration::ZERO,
        };
        let worked = AtomicBool::new(false);
        let found = workers.together(2, |_| {
            worked.store(true, Ordering::Relaxed);
            Ok(())
        });
        assert!(matches!(found, Err(MeasureError::Skipped(_))), "{found:?}");
        assert!(!worked.load(Ordering::Relaxed));
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

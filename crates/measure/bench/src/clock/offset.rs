//! Upper bound of the difference between the counters of two processors: [`Band`].
//!
//! A round trip between two threads, one on each processor, brackets the offset: the stamp of the
//! other thread lies between the two stamps of this thread. The tightest of many round trips is the
//! band. It cannot be narrower than a round trip, so a shift of a few tens of cycles stays inside
//! it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Clock;
use crate::error::{MeasureError, Result};
use crate::os::pin;

/// Number of round trips; only the tightest is used.
const ROUNDS: u64 = 20_000;
/// Value that the answering thread publishes before the first round.
const READY: u64 = u64::MAX;
/// Timeout after which each thread gives up waiting for the other.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Number of polls between two readings of the time.
const LOOKS: u32 = 1 << 14;

/// Bounds of (the other processor's counter − this processor's counter), in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Band {
    pub low: i64,
    pub high: i64,
}

impl Band {
    /// Measures the band between processors `here` and `there`. Does not change the calling
    /// thread's affinity.
    pub fn between(clock: Clock, here: usize, there: usize) -> Result<Self> {
        let board = PingPong::default();
        thread::scope(|scope| {
            let other = scope.spawn(|| board.answer(clock, there));
            let asking = scope.spawn(|| board.ask(clock, here));
            let band =
                asking.join().map_err(|_| MeasureError::fail("the asking thread panicked"))?;
            let answered =
                other.join().map_err(|_| MeasureError::fail("the answering thread panicked"))?;
            // If one thread could not be pinned, its result holds the reason, and the other thread
            // only timed out.
            match (band, answered) {
                (Ok(Some(band)), Ok(())) => Ok(band),
                (Err(trouble), _) | (_, Err(trouble)) => Err(trouble),
                (Ok(None), Ok(())) => Err(MeasureError::skip(format!(
                    "offset of two counters: the other thread did not reply within {TIMEOUT:?}"
                ))),
            }
        })
    }
}

/// A separate cache line, so that question and answer never share one.
#[derive(Debug, Default)]
#[repr(align(128))]
struct StampLine(AtomicU64);

/// Words that the two threads write. The number of a round marks its stamp as present. The stamp
/// alone could not mark it, because a coarse clock returns equal stamps.
#[derive(Debug, Default)]
struct PingPong {
    ask: StampLine,
    stamp: AtomicU64,
    /// The last answered round; [`READY`] before the first.
    answered: AtomicU64,
}

impl PingPong {
    /// Stamps each requested round. Returns early if no further round is requested; the asking
    /// thread detects that by its own timeout and reports it.
    fn answer(&self, clock: Clock, processor: usize) -> Result<()> {
        pin::pin_to(processor)?;
        // SYNC offset-answer: pairs with the load in `ask`, which also waits for this value.
        self.answered.store(READY, Ordering::Release);
        for round in 1..=ROUNDS {
            // SYNC offset-ask: pairs with the store in `ask`.
            if !soon(|| self.ask.0.load(Ordering::Acquire) == round) {
                break;
            }
            self.stamp.store(clock.stop(), Ordering::Relaxed);
            // SYNC offset-answer: pairs with the load in `ask`; the stamp is already stored.
            self.answered.store(round, Ordering::Release);
        }
        Ok(())
    }

    /// Returns the tightest band of all rounds; `None` if a reply did not arrive in time.
    fn ask(&self, clock: Clock, processor: usize) -> Result<Option<Band>> {
        pin::pin_to(processor)?;
        // SYNC offset-answer: pairs with the stores in `answer`.
        let answered = |round| soon(|| self.answered.load(Ordering::Acquire) == round);
        if !answered(READY) {
            return Ok(None);
        }
        let mut band = Band { low: i64::MIN / 2, high: i64::MAX / 2 };
        for round in 1..=ROUNDS {
            let sent = clock.start();
            // SYNC offset-ask: pairs with the load in `answer`.
            self.ask.0.store(round, Ordering::Release);
            if !answered(round) {
                return Ok(None);
            }
            let back = clock.stop();
            let stamp = self.stamp.load(Ordering::Relaxed);
            band.low = band.low.max(stamp.wrapping_sub(back).cast_signed());
            band.high = band.high.min(stamp.wrapping_sub(sent).cast_signed());
        }
        Ok(Some(band))
    }
}

/// Spins until `done` returns `true`, for at most [`TIMEOUT`]; returns `false` on a timeout.
#[inline(always)]
fn soon(done: impl Fn() -> bool) -> bool {
    let mut began = None;
    loop {
        for _ in 0..LOOKS {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        // The clock is first read after many polls, so no useful round contains the reading.
        if began.get_or_insert_with(Instant::now).elapsed() > TIMEOUT {
            return false;
        }
        // Both threads may have been placed on the same processor.
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn band_contains_zero_on_a_synchronised_machine() {
        let allowed = pin::allowed().expect("affinity");
        let [here, there, ..] = allowed[..] else {
            eprintln!("skipped: needs two processors");
            return;
        };
        let band = Band::between(Clock::monotonic(), here, there).expect("band");
        assert!(band.low <= 0 && 0 <= band.high, "one clock for all, yet {band:?}");
    }

    #[test]
    fn offset_thread_without_partner_times_out() {
        let only = pin::allowed().expect("affinity")[0];
        let clock = Clock::monotonic();
        assert_eq!(PingPong::default().ask(clock, only), Ok(None));
        assert_eq!(PingPong::default().answer(clock, only), Ok(()));
    }

    #[test]
    fn missing_processor_is_skipped() {
        let only = pin::allowed().expect("affinity")[0];
        let nowhere = rustix::thread::CpuSet::MAX_CPU - 1;
        for (here, there) in [(only, nowhere), (nowhere, only)] {
            let found = Band::between(Clock::monotonic(), here, there);
            assert!(matches!(found, Err(MeasureError::Skipped(_))), "{found:?}");
        }
    }
}

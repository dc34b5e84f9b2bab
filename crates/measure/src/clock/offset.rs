//! How far the counters of two processors are apart, at most: [`Band`].
//!
//! A round trip between a thread on each brackets the offset: whatever the other side stamped lies
//! between our two stamps. The tightest of many round trips is the band; it cannot be narrower than a
//! round trip, so a shift of a few tens of cycles stays inside it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::Clock;
use crate::os::pin;
use crate::trouble::{Result, Trouble};

/// Round trips taken to find the tightest.
const ROUNDS: u64 = 20_000;

/// Bounds of (the other processor's counter − ours), in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Band {
    /// No less than this.
    pub low: i64,
    /// No more than this.
    pub high: i64,
}

impl Band {
    /// Measures the band between processors `here` and `there`. Leaves the calling thread's affinity
    /// as it was.
    ///
    /// # Errors
    /// Skipped, where one of the two cannot be used.
    pub fn between(clock: Clock, here: usize, there: usize) -> Result<Self> {
        let (ask, answer) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                pin::pin_to(there).inspect_err(|_| answer.0.store(u64::MAX, Ordering::Release))?;
                // SYNC offset-ready: pairs with the first wait of the asking thread.
                answer.0.store(1, Ordering::Release);
                for round in 1..=ROUNDS {
                    while ask.0.load(Ordering::Acquire) != round {
                        std::hint::spin_loop();
                    }
                    // SYNC offset-answer: pairs with the asking thread's load; carries the stamp.
                    answer.0.store(clock.stop(), Ordering::Release);
                }
                Ok(())
            });
            let asking = scope.spawn(|| {
                while answer.0.load(Ordering::Acquire) == 0 {
                    std::hint::spin_loop();
                }
                if answer.0.load(Ordering::Acquire) == u64::MAX {
                    return Ok(None);
                }
                // Pinned only now: should it fail, the rounds still run, so that nobody waits for ever.
                let pinned = pin::pin_to(here);
                let band = tightest(clock, &ask.0, &answer.0);
                pinned.map(|()| Some(band))
            });
            let band = asking
                .join()
                .map_err(|_| Trouble::fail("the asking thread panicked"))??;
            other
                .join()
                .map_err(|_| Trouble::fail("the answering thread panicked"))??;
            band.ok_or_else(|| Trouble::fail("the answering thread never answered"))
        })
    }
}

/// A line of its own, so that question and answer never share one.
#[repr(align(128))]
struct Line(AtomicU64);

fn tightest(clock: Clock, ask: &AtomicU64, answer: &AtomicU64) -> Band {
    let mut band = Band {
        low: i64::MIN / 2,
        high: i64::MAX / 2,
    };
    let mut seen = answer.load(Ordering::Acquire);
    for round in 1..=ROUNDS {
        let asked = clock.start();
        // SYNC offset-ask: pairs with the answering thread's load.
        ask.store(round, Ordering::Release);
        let stamp = loop {
            // SYNC offset-answer: pairs with the store above; the stamp lies before it.
            let now = answer.load(Ordering::Acquire);
            if now != seen {
                break now;
            }
            std::hint::spin_loop();
        };
        let answered = clock.stop();
        seen = stamp;
        band.low = band.low.max(stamp.wrapping_sub(answered).cast_signed());
        band.high = band.high.min(stamp.wrapping_sub(asked).cast_signed());
    }
    band
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_band_is_not_empty_and_holds_zero_on_a_synchronised_machine() {
        let allowed = pin::allowed().expect("affinity");
        let [here, there, ..] = allowed[..] else {
            eprintln!("skipped: needs two processors");
            return;
        };
        let band = Band::between(Clock::monotonic(), here, there).expect("band");
        assert!(
            band.low <= 0 && 0 <= band.high,
            "one clock for all, yet {band:?}"
        );
    }
}

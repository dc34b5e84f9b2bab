//! A known delay inside an invocation, to see whether a comparison finds it: [`Plant`].
//!
//! `cargo xtask planted` orders it; no command line of `tontine` does. The delay is a chain of
//! dependent additions, whose length is calibrated in the invocation itself: a loop that looked at
//! a clock could be no shorter than a look takes, which is a third of the shortest round.
//!
//! An invocation under trial is brief: it measures less and tries no events, since some ten
//! thousand of them have to be made. Both sides of a trial are, so that they differ in the delay
//! alone.
//!
//! Honoured by `round-trip` (each `send` of either end takes longer, so that one way does) and by
//! `liveness-check`; other experiments refuse the order.

#![allow(unsafe_code, reason = "empty assembly that keeps a chain of additions")]

use std::arch::asm;
use std::sync::OnceLock;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tontine_host::trouble::{Result, Trouble};

/// What is planted into an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Plant {
    /// Nanoseconds added to each operation; 0 for the side without a delay.
    pub ns: f64,
}

/// Additions that a calibration times.
const CALIBRATION: u64 = 2_000_000;
/// Calibrations; the fastest counts, for nothing makes additions faster than they are.
const CALIBRATIONS: usize = 3;

/// The experiments that honour it.
const HONOURED_BY: [&str; 2] = ["round-trip", "liveness-check"];

/// A delay, ready for use: so many additions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay(u64);

static PLANTED: OnceLock<Delay> = OnceLock::new();

impl Plant {
    /// Plants it into this process, for all that it measures from now on.
    ///
    /// # Errors
    /// Failed, where the experiment would ignore it.
    pub(crate) fn plant(self, experiment: &str) -> Result<()> {
        if !HONOURED_BY.contains(&experiment) {
            return Err(Trouble::fail(format!("{experiment} does not support a planted delay")));
        }
        if !(self.ns >= 0.0 && self.ns < 1e9) {
            return Err(Trouble::fail(format!("a delay of {} ns cannot be planted", self.ns)));
        }
        let _ = PLANTED.set(Delay((self.ns / ns_per_addition()).round() as u64));
        Ok(())
    }
}

/// The delay of this process, where one is planted.
pub fn delay() -> Option<Delay> {
    PLANTED.get().copied()
}

/// So many operations, or where a delay is planted a fifth of them: an invocation under trial is
/// one of some ten thousand.
pub fn brief(operations: usize) -> usize {
    delay().map_or(operations, |_| (operations / 5).max(1))
}

impl Delay {
    /// Takes as long as was asked for.
    #[inline(always)]
    pub fn pass(self) {
        let (mut chain, mut left) = (0_u64, self.0);
        while left > 0 {
            left -= 1;
            chain = linked(chain + 1);
        }
    }
}

fn ns_per_addition() -> f64 {
    let once = || {
        let began = Instant::now();
        Delay(CALIBRATION).pass();
        began.elapsed().as_nanos() as f64 / CALIBRATION as f64
    };
    (0..CALIBRATIONS).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// Returns the value, which the compiler can no longer compute in advance.
#[inline(always)]
fn linked(mut value: u64) -> u64 {
    // SAFETY: no instruction at all; the register keeps its value.
    unsafe { asm!("/* {0} */", inout(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_lasts_as_long_as_asked() {
        // Another process on the same core can halve the speed during the calibration and leave
        // before the delay, so one attempt of ten is enough.
        let lasts = || {
            let each = ns_per_addition();
            assert!(each > 0.0 && each.is_finite());
            let delay = Delay((2e7 / each) as u64);
            let began = Instant::now();
            delay.pass();
            began.elapsed().as_nanos() as f64 > 1e7
        };
        assert!((0..10).any(|_| lasts()), "a delay of 20 ms was shorter than 10 ms ten times");
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        let refused = Plant { ns: 5.0 }.plant("survival").expect_err("does not support it");
        assert!(refused.why().contains("survival"), "{refused}");
        assert!(Plant { ns: f64::NAN }.plant("round-trip").is_err());
        assert!(Plant { ns: -1.0 }.plant("round-trip").is_err());
    }
}

//! A known delay inside an invocation, [`InjectedDelay`], which tests that a comparison finds it.
//!
//! `cargo xtask planted` requests the delay; no command line of `tontine` does. It is a chain of
//! dependent additions, whose length is calibrated in the invocation itself. A loop that reads a
//! clock could not be shorter than one reading, which takes a third of the shortest round.
//!
//! An invocation in such a trial is brief: it measures less and tries no events, because about ten
//! thousand invocations are needed. Both sides of a trial are brief, so that they differ only in
//! the delay.
//!
//! The delay is supported by `round-trip` (each `send` of either end takes longer, and therefore
//! each message) and by `liveness-check`. Other experiments reject it.

#![allow(unsafe_code, reason = "empty assembly that keeps a chain of additions")]

use std::arch::asm;
use std::sync::OnceLock;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tontine_host::error::{MeasureError, Result};

/// A delay to plant into an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct InjectedDelay {
    /// Nanoseconds added to each operation. 0 for the side without a delay.
    pub ns: f64,
}

/// Number of additions that a calibration times.
const CALIBRATION: u64 = 2_000_000;
/// Number of calibrations. The fastest counts, because a disturbance can only slow additions down.
const CALIBRATIONS: usize = 3;

/// The experiments that support the delay.
const HONOURED_BY: [&str; 2] = ["round-trip", "liveness-check"];

/// A delay, as a number of additions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay(u64);

static PLANTED: OnceLock<Delay> = OnceLock::new();

impl InjectedDelay {
    /// Plants the delay into this process, for all later measurements.
    ///
    /// # Errors
    /// Returns `Failed` if the experiment would ignore the delay.
    pub(crate) fn plant(self, experiment: &str) -> Result<()> {
        if !HONOURED_BY.contains(&experiment) {
            return Err(MeasureError::fail(format!(
                "{experiment} does not support a planted delay"
            )));
        }
        if !(self.ns >= 0.0 && self.ns < 1e9) {
            return Err(MeasureError::fail(format!("a delay of {} ns cannot be planted", self.ns)));
        }
        let _ = PLANTED.set(Delay((self.ns / ns_per_addition()).round() as u64));
        Ok(())
    }
}

/// Returns the delay of this process, if one is planted.
pub fn delay() -> Option<Delay> {
    PLANTED.get().copied()
}

/// Returns `operations`, or a fifth of them if a delay is planted, because about ten thousand such
/// invocations are made.
pub fn brief(operations: usize) -> usize {
    delay().map_or(operations, |_| (operations / 5).max(1))
}

impl Delay {
    /// Runs for as long as requested.
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

/// Returns the value in a way that prevents the compiler from computing it in advance.
#[inline(always)]
fn linked(mut value: u64) -> u64 {
    // SAFETY: the assembly contains no instruction; the register keeps its value.
    unsafe { asm!("/* {0} */", inout(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn injected_delay_lasts_the_requested_time() {
        // Another process on the same core can halve the speed during the calibration and stop
        // before the delay, so one successful attempt in ten is enough.
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
    fn injected_delay_without_effect_is_refused() {
        let refused = InjectedDelay { ns: 5.0 }.plant("survival").expect_err("does not support it");
        assert!(refused.why().contains("survival"), "{refused}");
        assert!(InjectedDelay { ns: f64::NAN }.plant("round-trip").is_err());
        assert!(InjectedDelay { ns: -1.0 }.plant("round-trip").is_err());
    }
}

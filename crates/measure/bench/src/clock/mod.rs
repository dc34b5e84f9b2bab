//! Time stamps: [`Clock`].
//!
//! The clock reads an invariant time-stamp counter with fences (`lfence; rdtsc; lfence` to start,
//! `rdtscp; lfence` to stop). Without such a counter it reads `CLOCK_MONOTONIC`. Only
//! [`bare_counter`] reads the counter without fences, for the stamps of source 000 and for the
//! stamps between the rounds of `round-trip`.
//!
//! A calibration converts ticks to nanoseconds; its drift during the invocation is reported.
//! [`offset`] bounds the difference between the counters of two processors. On aarch64 the counter
//! is `cntvct_el0`; that code is untested.
//!
//! Sources: Intel SDM vol. 3, 19.17; AMD APM vol. 2, 13.2.4; Paoloni, *How to benchmark code
//! execution times on Intel IA-32 and IA-64* (2010).

#![allow(unsafe_code, reason = "reads the time-stamp counter")]

pub mod offset;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Minimum duration of a calibration.
const CALIBRATION: Duration = Duration::from_millis(10);
/// Number of brackets around both clocks at each end of a calibration; only the tightest is used.
const BRACKETS: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clock {
    source: ClockSource,
    ns_per_tick: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockSource {
    Counter,
    /// `clock_gettime(CLOCK_MONOTONIC)`, one tick per nanosecond.
    Monotonic,
}

/// Readings of the system's time and the counter at the same instant.
#[derive(Debug, Clone, Copy)]
struct ClockPair {
    time: Instant,
    ticks: u64,
}

/// The calibration of this process, and the instant at which the calibration began.
static CALIBRATED: OnceLock<(Clock, ClockPair)> = OnceLock::new();

impl Clock {
    /// Returns a clock with the best source of this machine, calibrated once per process (10 ms).
    pub fn calibrated() -> Self {
        let calibrate = || {
            let mut clock = Self { source: ClockSource::Counter, ns_per_tick: 1.0 };
            let began = clock.moment();
            clock.ns_per_tick = clock.ns_per_tick_since(began);
            (clock, began)
        };
        if counter_is_invariant() { CALIBRATED.get_or_init(calibrate).0 } else { Self::monotonic() }
    }

    /// Returns a clock with `CLOCK_MONOTONIC` as its source.
    pub fn monotonic() -> Self {
        Self { source: ClockSource::Monotonic, ns_per_tick: 1.0 }
    }

    /// Returns the length of a tick from `began` until now, or until [`CALIBRATION`] has passed.
    fn ns_per_tick_since(&self, began: ClockPair) -> f64 {
        while began.time.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let now = self.moment();
        let ticks = now.ticks.wrapping_sub(began.ticks) as f64;
        now.time.duration_since(began.time).as_nanos() as f64 / ticks
    }

    /// Returns the current instant: the middle of the tightest of [`BRACKETS`] pairs of stamps
    /// around a reading of the time. A preemption between the two stamps would distort every
    /// conversion, but is unlikely to hit all brackets.
    fn moment(&self) -> ClockPair {
        let bracket = || {
            let before = self.start();
            let time = Instant::now();
            (self.stop().wrapping_sub(before), time, before)
        };
        let mut tightest = bracket();
        for _ in 1..BRACKETS {
            let next = bracket();
            if next.0 < tightest.0 {
                tightest = next;
            }
        }
        let (width, time, before) = tightest;
        ClockPair { time, ticks: before.wrapping_add(width / 2) }
    }

    pub fn source(&self) -> ClockSource {
        self.source
    }

    pub fn ns_per_tick(&self) -> f64 {
        self.ns_per_tick
    }

    /// Converts a difference of stamps to nanoseconds; a negative difference stays negative.
    pub fn ns(&self, ticks: i64) -> f64 {
        ticks as f64 * self.ns_per_tick
    }

    /// Returns the nanoseconds from the stamp `from` to the stamp `to`, never clamped.
    pub fn ns_between(&self, from: u64, to: u64) -> f64 {
        self.ns(to.wrapping_sub(from).cast_signed())
    }

    /// Returns a stamp before the timed operation: no later instruction starts before the stamp is
    /// taken.
    #[inline(always)]
    pub fn start(&self) -> u64 {
        match self.source {
            ClockSource::Counter => counter_start(),
            ClockSource::Monotonic => monotonic_ns(),
        }
    }

    /// Returns a stamp after the timed operation: all earlier instructions have completed.
    #[inline(always)]
    pub fn stop(&self) -> u64 {
        match self.source {
            ClockSource::Counter => counter_stop(),
            ClockSource::Monotonic => monotonic_ns(),
        }
    }

    /// Returns the nanoseconds between the two stamps of an empty pair: the median of 1,001 pairs.
    pub fn empty_pair_ns(&self) -> f64 {
        let mut pairs: Vec<u64> = (0..1001)
            .map(|_| {
                let from = self.start();
                self.stop().wrapping_sub(from)
            })
            .collect();
        pairs.sort_unstable();
        self.ns(pairs[500].cast_signed())
    }

    /// Returns the relative deviation of the mean tick since the calibration from the calibrated
    /// tick. If the system's own clock is the same counter, the result only checks the conversion.
    pub fn drift(&self) -> f64 {
        match (self.source, CALIBRATED.get()) {
            (ClockSource::Counter, Some(&(clock, began))) => {
                self.ns_per_tick_since(began) / clock.ns_per_tick - 1.0
            }
            _ => 0.0,
        }
    }
}

/// Returns `true` if the processor reports that its counter ticks at the same rate in every state,
/// and that it has the instruction that reads the counter for a stop stamp.
pub fn counter_is_invariant() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        const ADVANCED_POWER: u32 = 0x8000_0007;
        const INVARIANT_TSC: u32 = 1 << 8;
        const FEATURES: u32 = 0x8000_0001;
        const RDTSCP: u32 = 1 << 27;
        __cpuid(0x8000_0000).eax >= ADVANCED_POWER
            && __cpuid(ADVANCED_POWER).edx & INVARIANT_TSC != 0
            && __cpuid(FEATURES).edx & RDTSCP != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // The Arm architecture defines the generic timer's rate as constant.
        cfg!(target_arch = "aarch64")
    }
}

/// Returns the bare counter without fences, as source 000 reads it and as `round-trip` stamps
/// between rounds: loads and stores may be reordered with it in either direction. On processors
/// other than x86-64, returns the fenced counter. Its ticks are those of [`Clock::start`] if
/// [`Clock::source`] is the counter.
#[inline(always)]
pub fn bare_counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC reads a counter. Linux allows it in user space unless the process has
        // forbidden it (PR_SET_TSC), which this library never does.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        counter_start()
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter_start() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: see `bare_counter`; LFENCE is part of SSE2, which every x86-64 processor has.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter_stop() -> u64 {
    use std::arch::x86_64::{__rdtscp, _mm_lfence};
    let mut processor = 0;
    // SAFETY: as in `counter_start`; `counter_is_invariant` checked for RDTSCP before the counter
    // was first read.
    unsafe {
        let ticks = __rdtscp(&mut processor);
        _mm_lfence();
        ticks
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn counter_start() -> u64 {
    let ticks: u64;
    // SAFETY: reads the virtual counter, which Linux makes available to user space; ISB orders the
    // read.
    unsafe {
        std::arch::asm!("isb", "mrs {0}, cntvct_el0", "isb", out(reg) ticks, options(nostack))
    };
    ticks
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn counter_stop() -> u64 {
    counter_start()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter_start() -> u64 {
    monotonic_ns()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter_stop() -> u64 {
    monotonic_ns()
}

#[inline(always)]
fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_sources_agree_on_twenty_milliseconds() {
        for clock in [Clock::calibrated(), Clock::monotonic()] {
            // The outer interval contains the clock's, which contains the inner one, however late
            // this thread is between two readings.
            let outer = Instant::now();
            let from = clock.start();
            let inner = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
            let least = 0.95 * inner.elapsed().as_nanos() as f64;
            let ns = clock.ns_between(from, clock.stop());
            let most = 1.05 * outer.elapsed().as_nanos() as f64;
            assert!((least..most).contains(&ns), "{clock:?}: {ns} ns, not {least} to {most}");
        }
    }

    #[test]
    fn negative_difference_is_not_clamped() {
        assert_eq!(Clock::monotonic().ns_between(50, 10), -40.0);
    }
}

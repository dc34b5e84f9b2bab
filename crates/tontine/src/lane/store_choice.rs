//! The choice between stores through the sender's cache and past it: [`StoreChoice`].
//!
//! Between two near processors, a line that the sender stored through its cache arrives up to seven
//! times as fast as a line that it stored past the cache, in memory. Between two far processors,
//! the line in memory may arrive first. Near and far change whenever a scheduler or a hypervisor
//! moves one end, and neither end is told. So the sender measures: now and then it stores some
//! bytes in the other way, and then continues in the faster one.
//!
//! [`super::writer`] copies each large message through it. The time that some bytes take contains
//! the sender's own stores, and its waits for a receiver that loads slowly.

use std::time::Instant;

use super::region::LaneMemory;

/// Minimum length in bytes of a message that may be stored past the cache. Shorter ones arrive
/// later if they are, wherever the ends are.
pub(super) const LARGE: usize = 1024;

/// Number of bytes between two decisions of a trial.
const SLICE: usize = 64 << 10;

/// Minimum number of bytes and of messages whose time is compared.
const TIMED: (usize, usize) = (4 * SLICE, 4);

/// Number of bytes before the first trial, and maximum number between two trials. It doubles with
/// each trial that changes nothing.
const BETWEEN_TRIALS: std::ops::RangeInclusive<usize> = 1 << 23..=1 << 29;

/// The way in which a sender stores large messages, and when it tries the other one.
#[derive(Debug)]
pub(super) struct StoreChoice {
    /// `true` if messages are stored past the cache.
    past_cache: bool,
    phase: TrialPhase,
    /// Number of bytes sent in this phase.
    sent: usize,
    /// Minimum number of bytes with which the phase ends.
    until: usize,
    began: Instant,
    /// Number of bytes between two trials.
    interval: usize,
}

/// A part of the search for the faster way. A pace is a time per byte, in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrialPhase {
    /// No trial.
    Run,
    /// Measurement of the pace in the present way.
    Measure,
    /// Use of the other way for `earlier` bytes more: while the receiver still reads bytes of the
    /// present way, whose pace is `former`, and while the sender overwrites their lines, which may
    /// be in memory only.
    Settle { former: u64, earlier: usize },
    /// Measurement of the pace in the other way.
    Compare { former: u64 },
}

impl Default for StoreChoice {
    fn default() -> Self {
        let interval = *BETWEEN_TRIALS.start();
        Self {
            past_cache: false,
            phase: TrialPhase::Run,
            sent: 0,
            until: interval,
            began: Instant::now(),
            interval,
        }
    }
}

impl StoreChoice {
    /// Copies a message of at least [`LARGE`] bytes to `at`, in the way that is due. The ring and
    /// the unread messages have at most `lap` bytes. A separate function keeps the send of a small
    /// message short.
    #[inline(never)]
    pub(super) fn copy_large_in(
        &mut self,
        region: &impl LaneMemory,
        at: usize,
        message: &[u8],
        lap: usize,
    ) {
        if self.is_past_cache(message.len(), lap) {
            region.copy_in_past_cache(at, message);
        } else {
            region.copy_in(at, message);
        }
    }

    /// Returns `true` if the next message, of `length` bytes, is stored past the cache.
    #[inline]
    fn is_past_cache(&mut self, length: usize, lap: usize) -> bool {
        if self.sent >= self.until {
            self.end_phase(length, lap);
        }
        self.sent += length;
        self.past_cache
    }

    #[cold]
    #[inline(never)]
    fn end_phase(&mut self, length: usize, lap: usize) {
        let now = Instant::now();
        self.end_phase_after((now - self.began).as_nanos() as u64, length, lap);
        self.began = now;
    }

    /// Does the work of `end_phase` for a phase that took this number of nanoseconds, before a
    /// message of `length` bytes.
    fn end_phase_after(&mut self, ns: u64, length: usize, lap: usize) {
        let timed = TIMED.0.max(TIMED.1 * length);
        let pace = ns.saturating_mul(1000) / self.sent.max(1) as u64;
        (self.phase, self.until) = match self.phase {
            TrialPhase::Run => (TrialPhase::Measure, timed),
            TrialPhase::Measure => {
                self.past_cache = !self.past_cache;
                (TrialPhase::Settle { former: pace, earlier: lap }, SLICE)
            }
            // The sender itself stores much more slowly.
            TrialPhase::Settle { former, .. } | TrialPhase::Compare { former }
                if pace / 2 > former =>
            {
                self.run(!self.past_cache, false)
            }
            TrialPhase::Settle { former, earlier } if earlier > self.sent => {
                (TrialPhase::Settle { former, earlier: earlier - self.sent }, SLICE)
            }
            TrialPhase::Settle { former, .. } => (TrialPhase::Compare { former }, timed),
            TrialPhase::Compare { former } => {
                let (past, through) = if self.past_cache { (pace, former) } else { (former, pace) };
                // A sender that is slow for another reason leaves the cache to no purpose.
                let past_cache = past < through / 10 * 9;
                self.run(past_cache, past_cache == self.past_cache)
            }
        };
        self.sent = 0;
    }

    /// Continues in the given way until the next trial.
    fn run(&mut self, past_cache: bool, is_change: bool) -> (TrialPhase, usize) {
        self.past_cache = past_cache;
        let (first, most) = BETWEEN_TRIALS.into_inner();
        self.interval = if is_change { first } else { (2 * self.interval).min(most) };
        (TrialPhase::Run, self.interval)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Sends messages of `length` bytes, `bytes` in total, at a pace in nanoseconds per KiB for
    /// each way. Returns the number of bytes that were stored past the cache.
    fn send(
        choice: &mut StoreChoice,
        length: usize,
        bytes: usize,
        (through, past): (u64, u64),
    ) -> usize {
        let (mut ns, mut past_cache) = (0, 0);
        for _ in 0..bytes / length {
            if choice.sent >= choice.until {
                choice.end_phase_after(std::mem::take(&mut ns), length, 1 << 16);
            }
            // The clock is not read, because the phase has just ended.
            let is_past = choice.is_past_cache(length, 0);
            past_cache += if is_past { length } else { 0 };
            ns += if is_past { past } else { through } * length as u64 / 1024;
        }
        past_cache
    }

    #[test]
    fn faster_way_is_found_whenever_processors_move() {
        for length in [LARGE, 1000 << 10] {
            let mut choice = StoreChoice::default();
            let (bytes, near, far) = (1 << 31, (30, 200), (550, 200));
            for _ in 0..3 {
                assert!(send(&mut choice, length, bytes, near) < bytes / 3);
                assert!(send(&mut choice, length, bytes, near) < bytes / 100);
                assert!(send(&mut choice, length, bytes, far) > bytes / 3 * 2);
                assert!(send(&mut choice, length, bytes, far) > bytes / 100 * 99);
            }
        }
    }

    #[test]
    fn way_without_gain_is_not_taken() {
        let mut choice = StoreChoice::default();
        assert!(send(&mut choice, 4096, 1 << 30, (1000, 950)) < 1 << 24);
        assert!(!choice.past_cache);
    }
}

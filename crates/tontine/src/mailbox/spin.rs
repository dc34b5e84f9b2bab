//! Polling before a sleep: [`SpinPolicy`].
//!
//! Polling pays only if what the end waits for usually happens within the polling time. If it
//! rarely does (the peer acts once per millisecond, or needs the processor on which this end
//! polls), polling only takes processor time from others. An end therefore polls before every sleep
//! only while that shortens some of its waits. Otherwise it polls once per 2, 4, … 64 waits, to
//! learn whether its peer has become faster.

use std::time::{Duration, Instant};

use super::options::WaitStrategy;

/// Number of polls in vain, one after the other, after which waits begin to sleep at once.
const PATIENCE: u32 = 4;

/// Binary logarithm of the maximum interval, in waits, between two polls.
const RAREST: u32 = 6;

/// The polling state of one end.
#[derive(Debug)]
pub(super) struct SpinPolicy {
    strategy: WaitStrategy,
    /// Number of polls in vain since the last that shortened a wait, at most `PATIENCE + RAREST`.
    vain: u32,
    /// Number of waits that sleep at once before the next poll.
    skips: u32,
}

/// The polling of one wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polling {
    /// The wait sleeps at once.
    None,
    Until(Instant),
    Endless,
}

impl Polling {
    /// Returns `true` if the wait sleeps at `now`.
    pub(super) fn is_over(self, now: Instant) -> bool {
        match self {
            Self::None => true,
            Self::Until(until) => now >= until,
            Self::Endless => false,
        }
    }
}

impl SpinPolicy {
    pub(super) fn new(strategy: WaitStrategy) -> Self {
        Self { strategy, vain: 0, skips: 0 }
    }

    /// Begins a wait at `now`.
    pub(super) fn begin(&mut self, now: Instant) -> Polling {
        match self.strategy {
            WaitStrategy::Spin => Polling::Endless,
            WaitStrategy::Sleep | WaitStrategy::SpinThenSleep(Duration::ZERO) => Polling::None,
            WaitStrategy::SpinThenSleep(_) if self.skips > 0 => {
                self.skips -= 1;
                Polling::None
            }
            WaitStrategy::SpinThenSleep(time) => {
                now.checked_add(time).map_or(Polling::Endless, Polling::Until)
            }
        }
    }

    /// Records that a wait ended while it polled.
    pub(super) fn note_success(&mut self) {
        (self.vain, self.skips) = (0, 0);
    }

    /// Records that a wait polled in vain, and sleeps now.
    pub(super) fn note_vain(&mut self) {
        self.vain = (self.vain + 1).min(PATIENCE + RAREST);
        self.skips = (1 << self.vain.saturating_sub(PATIENCE)) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes `waits` waits that end after the polling time, and returns the number that polled.
    fn vain_polls(spin: &mut SpinPolicy, waits: u32) -> u32 {
        let now = Instant::now();
        let mut polls = 0;
        for _ in 0..waits {
            if spin.begin(now) != Polling::None {
                spin.note_vain();
                polls += 1;
            }
        }
        polls
    }

    #[test]
    fn polls_in_vain_become_rare() {
        let mut spin = SpinPolicy::new(WaitStrategy::SpinThenSleep(Duration::from_micros(20)));
        assert_eq!(vain_polls(&mut spin, PATIENCE), PATIENCE);
        assert_eq!(vain_polls(&mut spin, 2 + 4 + 8 + 16 + 32), 5);
        assert_eq!(vain_polls(&mut spin, 6400), 100);
    }

    #[test]
    fn poll_that_shortens_a_wait_ends_the_back_off() {
        let mut spin = SpinPolicy::new(WaitStrategy::SpinThenSleep(Duration::from_micros(20)));
        vain_polls(&mut spin, 1000);
        let now = Instant::now();
        while spin.begin(now) == Polling::None {}
        spin.note_success();
        assert_eq!(vain_polls(&mut spin, PATIENCE), PATIENCE);
    }

    #[test]
    fn other_strategies_do_not_adapt() {
        let now = Instant::now();
        for (strategy, polling) in
            [(WaitStrategy::Spin, Polling::Endless), (WaitStrategy::Sleep, Polling::None)]
        {
            let mut spin = SpinPolicy::new(strategy);
            assert!((0..100).all(|_| spin.begin(now) == polling));
        }
    }
}

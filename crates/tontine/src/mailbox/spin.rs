//! Polling before a sleep: [`SpinPolicy`].
//!
//! A poll that ends a wait saves the sleep and the wake-up; a poll in vain costs its whole time. An
//! end therefore adds up what its polls cost more than they saved. Once this is as much as four
//! polls in vain, its waits sleep at once, except one per 2, 4, … 128. So it polls rarely if its
//! peer acts once per millisecond, or needs the processor on which this end polls; and soon notices
//! if that changes.

use std::time::{Duration, Instant};

use super::options::WaitStrategy;

/// Time that a sleep and its wake-up cost an end, about the same on all machines measured.
const SLEEP_COST: Duration = Duration::from_micros(20);

/// Excess cost, in polls in vain, above which waits sleep at once.
const PATIENCE: u32 = 4;

/// Binary logarithm of the maximum number of waits between two polls.
const RAREST: u32 = 7;

/// The polling state of one end.
#[derive(Debug)]
pub(super) struct SpinPolicy {
    strategy: WaitStrategy,
    /// Time that polls cost more than they saved, at most that of `PATIENCE + RAREST` in vain.
    excess: Duration,
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
        Self { strategy, excess: Duration::ZERO, skips: 0 }
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

    /// Records that a wait ended while it polled. The next wait polls too.
    pub(super) fn note_success(&mut self) {
        self.excess = self.excess.saturating_sub(SLEEP_COST);
        self.skips = 0;
    }

    /// Records that a wait polled in vain, and sleeps now.
    pub(super) fn note_vain(&mut self) {
        let WaitStrategy::SpinThenSleep(time) = self.strategy else { return };
        let most = time.saturating_mul(PATIENCE + RAREST);
        self.excess = self.excess.saturating_add(time).min(most);
        let polls = self.excess.as_nanos() / time.as_nanos().max(1);
        self.skips = (1 << (polls as u32).saturating_sub(PATIENCE)) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Options;
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

    fn default_policy() -> SpinPolicy {
        SpinPolicy::new(Options::new().wait_strategy)
    }

    #[test]
    fn polls_in_vain_become_rare() {
        let mut spin = default_policy();
        assert_eq!(vain_polls(&mut spin, PATIENCE), PATIENCE);
        assert_eq!(vain_polls(&mut spin, 2 + 4 + 8 + 16 + 32 + 64), 6);
        assert_eq!(vain_polls(&mut spin, 12_800), 100);
    }

    #[test]
    fn polls_that_end_waits_stop_the_back_off() {
        let mut spin = default_policy();
        vain_polls(&mut spin, 1000);
        let now = Instant::now();
        while spin.begin(now) == Polling::None {}
        for _ in 0..100 {
            spin.note_success();
            assert_ne!(spin.begin(now), Polling::None);
        }
        assert_eq!(vain_polls(&mut spin, PATIENCE), PATIENCE);
    }

    #[test]
    fn polls_that_cost_more_than_they_save_become_rare() {
        let (mut spin, now) = (default_policy(), Instant::now());
        let mut polls = 0;
        for wait in 0..12_800 {
            if spin.begin(now) == Polling::None {
                continue;
            }
            polls += 1;
            if wait % 2 == 0 { spin.note_vain() } else { spin.note_success() }
        }
        assert!(polls < 400, "{polls}");
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

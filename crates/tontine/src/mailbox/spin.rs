//! Polling before a sleep: [`SpinPolicy`].
//!
//! With [`WaitStrategy::Adaptive`], an end adds up what its polls cost more than they saved. A poll
//! costs the time that it takes. If it ends a wait, it saves the processor time of a sleep and a
//! wake-up. While the sum is that of five polls in vain or more, most waits sleep at once: only one
//! of 2 waits polls and, after each further poll in vain, one of 4, 8, … 128. So an end polls
//! rarely if its peer acts once per millisecond, or needs the processor on which this end polls,
//! and notices if that changes.

use std::time::{Duration, Instant};

use super::settings::WaitStrategy;

/// Time for which an adaptive end polls: about twice the latency of a wake-up. While an end waits
/// for its peer to wake up, a shorter poll would be in vain, so that it slept as well, and both
/// ends of a stream would sleep in turn.
const POLL_TIME: Duration = Duration::from_micros(100);

/// Processor time of a sleep and its wake-up (`tontine-measure waiting-cost/mailbox-sleep`).
const SLEEP_COST: Duration = Duration::from_micros(20);

/// Number of polls in vain before waits begin to sleep at once.
const MAX_VAIN: u32 = 4;

/// Binary logarithm of the maximum number of waits of which one polls.
const MAX_INTERVAL_LOG2: u32 = 7;

/// The polling state of one end.
#[derive(Debug)]
pub(super) struct SpinPolicy {
    strategy: WaitStrategy,
    /// Time that polls cost more than they saved.
    excess: Duration,
    /// Number of waits that sleep at once before the next poll.
    skips: u32,
}

/// The polling of one wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polling {
    /// The wait sleeps at once.
    None,
    /// The wait polls until this time, then sleeps.
    Until(Instant),
    /// The wait polls until it ends.
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
            WaitStrategy::Sleep => Polling::None,
            WaitStrategy::SpinThenSleep(time) => {
                now.checked_add(time).map_or(Polling::Endless, Polling::Until)
            }
            WaitStrategy::Adaptive if self.skips > 0 => {
                self.skips -= 1;
                Polling::None
            }
            WaitStrategy::Adaptive => Polling::Until(now + POLL_TIME),
        }
    }

    /// Records a poll since `began`, and whether it ended the wait.
    pub(super) fn note(&mut self, began: Instant, ended: bool) {
        if self.strategy == WaitStrategy::Adaptive {
            self.adapt(began.elapsed(), ended);
        }
    }

    fn adapt(&mut self, time: Duration, ended: bool) {
        let max = POLL_TIME * (MAX_VAIN + MAX_INTERVAL_LOG2);
        // If more time has passed, another thread had the processor.
        let cost = time.min(POLL_TIME);
        self.excess = (self.excess + cost).min(max);
        if ended {
            self.excess = self.excess.saturating_sub(SLEEP_COST);
            if time <= SLEEP_COST {
                return;
            }
        }
        let in_vain = (self.excess.as_nanos() / POLL_TIME.as_nanos()) as u32;
        self.skips = (1 << in_vain.saturating_sub(MAX_VAIN)) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes `waits` waits, each of which ends after one of `times` in turn if it polls, and
    /// returns the number that polled.
    fn polls(spin: &mut SpinPolicy, waits: u32, times: &[Duration]) -> u32 {
        let now = Instant::now();
        let mut polls = 0;
        for _ in 0..waits {
            if spin.begin(now) != Polling::None {
                let time = times[polls as usize % times.len()];
                spin.adapt(time, time <= POLL_TIME);
                polls += 1;
            }
        }
        polls
    }

    const LATE: Duration = Duration::from_millis(1);

    #[test]
    fn polls_in_vain_become_rare() {
        let mut spin = SpinPolicy::new(WaitStrategy::Adaptive);
        assert_eq!(polls(&mut spin, MAX_VAIN + 1, &[LATE]), MAX_VAIN + 1);
        assert_eq!(polls(&mut spin, 2 + 4 + 8 + 16 + 32 + 64, &[LATE]), 6);
        assert_eq!(polls(&mut spin, 12_800, &[LATE]), 100);
    }

    #[test]
    fn polls_that_cost_more_than_a_sleep_become_rare() {
        let mut spin = SpinPolicy::new(WaitStrategy::Adaptive);
        // Every second poll ends a wait, so each that does is followed by one in vain.
        let found = polls(&mut spin, 12_800, &[Duration::from_micros(1), LATE]);
        assert!(found < 300, "{found}");
        // An end whose messages come every 60 µs would poll all the time.
        let mut spin = SpinPolicy::new(WaitStrategy::Adaptive);
        let found = polls(&mut spin, 12_800, &[Duration::from_micros(60)]);
        assert!(found < 300, "{found}");
    }

    #[test]
    fn quick_messages_end_the_back_off() {
        let mut spin = SpinPolicy::new(WaitStrategy::Adaptive);
        polls(&mut spin, 1000, &[LATE]);
        let quick = Duration::from_micros(1);
        assert!(polls(&mut spin, 256, &[quick]) > 100);
        assert_eq!(polls(&mut spin, 256, &[quick]), 256);
    }

    #[test]
    fn other_strategies_do_not_adapt() {
        let now = Instant::now();
        let time = Duration::from_micros(20);
        for (strategy, polling) in [
            (WaitStrategy::Spin, Polling::Endless),
            (WaitStrategy::Sleep, Polling::None),
            (WaitStrategy::SpinThenSleep(time), Polling::Until(now + time)),
            (WaitStrategy::SpinThenSleep(Duration::MAX), Polling::Endless),
        ] {
            let mut spin = SpinPolicy::new(strategy);
            for _ in 0..100 {
                assert_eq!(spin.begin(now), polling);
                spin.note(now, false);
            }
        }
    }
}

//! Pauses of a receiver that has caught up with a stream: [`CatchUp`].
//!
//! A receiver at the sender's heels takes each cache line away while the sender still writes to it,
//! and both wait for the line. If the receiver pauses for the time of several messages, the sender
//! writes at full speed, and the lines then arrive one after the other without a wait. In a ping
//! the same pause would only delay the message, and the receiver cannot know which of the two it
//! takes part in. So it tries a pause now and then, and continues only as long as much arrives
//! meanwhile.

/// Number of pauses, each of which takes about 20 ns: longer than 16 lines take to arrive, and
/// shorter than a sender takes to fill a chunk.
const PAUSES: u32 = 32;

/// Minimum number of bytes that a stream sends during the pauses.
const STREAM: u64 = 1024;

/// Number of waits between the first two trials, and its maximum. It doubles after each trial in
/// vain, so that trials take less than 1 % of the time of a ping.
const BETWEEN_TRIALS: std::ops::RangeInclusive<u32> = 16..=1024;

/// The state of one lane.
#[derive(Debug)]
pub(super) struct CatchUp {
    /// Number of waits before the next trial; `None` while the receiver pauses at each wait.
    before_trial: Option<u32>,
    /// Number of waits after the last trial.
    interval: u32,
    /// Position of the lane at the last wait with pauses.
    position: u64,
}

impl Default for CatchUp {
    fn default() -> Self {
        let first = *BETWEEN_TRIALS.start();
        Self { before_trial: Some(first), interval: first, position: 0 }
    }
}

impl CatchUp {
    /// Pauses, if the lane is a stream, before the next check of the lane, which was found empty at
    /// `position`. A separate function, so that the wait for a message stays short.
    #[inline(never)]
    pub(super) fn pause(&mut self, position: u64) {
        (0..self.pauses(position)).for_each(|_| std::hint::spin_loop());
    }

    /// Returns the number of pauses.
    fn pauses(&mut self, position: u64) -> u32 {
        match &mut self.before_trial {
            Some(0) => self.before_trial = None,
            Some(waits) => {
                *waits -= 1;
                return 0;
            }
            None if position.wrapping_sub(self.position) < STREAM => {
                self.interval = (2 * self.interval).min(*BETWEEN_TRIALS.end());
                self.before_trial = Some(self.interval);
                return 0;
            }
            None => self.interval = *BETWEEN_TRIALS.start(),
        }
        self.position = position;
        PAUSES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns the number of waits with pauses among `waits`, between which `bytes` arrive.
    fn paused(catch_up: &mut CatchUp, waits: u64, bytes: u64) -> usize {
        let paused = |wait: &u64| catch_up.pauses(wait * bytes) > 0;
        (0..waits).filter(paused).count()
    }

    #[test]
    fn ping_is_rarely_delayed() {
        let mut catch_up = CatchUp::default();
        assert_eq!(paused(&mut catch_up, 17, 16), 1);
        assert!(paused(&mut catch_up, 100_000, 16) < 110);
    }

    #[test]
    fn stream_pauses_at_each_wait_until_it_ends() {
        let mut catch_up = CatchUp::default();
        assert_eq!(paused(&mut catch_up, 1016, STREAM), 1000);
        assert!(paused(&mut catch_up, 1000, 16) < 10);
        assert!(paused(&mut catch_up, 1000, STREAM) > 400);
    }
}

//! Pauses of a receiver that has caught up with a stream: [`CatchUp`].
//!
//! A receiver at the sender's heels takes each cache line away while the sender still writes to it,
//! and both wait for the line. If the receiver pauses for the time of several messages, the sender
//! writes at full speed, and the lines then arrive one after the other without a wait. In a ping
//! the same pause would only delay the message, and the receiver cannot know which of the two it
//! takes part in. So it tries a pause now and then, and continues only as long as several messages,
//! of some length together, arrive from one such wait to the next.

/// Number of pauses, each of which takes about 20 ns on an AMD EPYC: longer than 16 lines take to
/// arrive, and shorter than a sender takes to fill a chunk.
const PAUSES: u32 = 32;

/// Minimum number of bytes of a stream between two waits.
const STREAM_BYTES: u64 = 1024;

/// Minimum number of messages of a stream between two waits. A ping has one, of any length.
const STREAM_MESSAGES: u32 = 4;

/// Number of waits before the first trial, and maximum number between two trials. It doubles after
/// each trial in vain, so that trials take less than 1 % of the time of a ping.
const BETWEEN_TRIALS: std::ops::RangeInclusive<u32> = 16..=1024;

/// Whether the receiver of one lane pauses, and when it tries again.
#[derive(Debug)]
pub(super) struct CatchUp {
    /// Number of waits before the next trial; `None` while the receiver pauses at each wait.
    before_trial: Option<u32>,
    /// Number of waits between a trial in vain and the next.
    interval: u32,
    /// Position of the lane at the last wait with pauses.
    position: u64,
    /// Number of messages found before that wait.
    messages: u32,
}

impl Default for CatchUp {
    fn default() -> Self {
        let first = *BETWEEN_TRIALS.start();
        Self { before_trial: Some(first), interval: first, position: 0, messages: 0 }
    }
}

impl CatchUp {
    /// Pauses, if the lane is a stream, before the next check of the lane, which was found empty at
    /// `position` after `messages` messages. A separate function, so that the wait for a message
    /// stays short.
    #[inline(never)]
    pub(super) fn pause(&mut self, position: u64, messages: u32) {
        (0..self.pauses(position, messages)).for_each(|_| std::hint::spin_loop());
    }

    /// Returns the number of pauses.
    fn pauses(&mut self, position: u64, messages: u32) -> u32 {
        match &mut self.before_trial {
            Some(0) => self.before_trial = None,
            Some(waits) => {
                *waits -= 1;
                return 0;
            }
            None if position.wrapping_sub(self.position) < STREAM_BYTES
                || messages.wrapping_sub(self.messages) < STREAM_MESSAGES =>
            {
                self.interval = (2 * self.interval).min(*BETWEEN_TRIALS.end());
                self.before_trial = Some(self.interval);
                return 0;
            }
            None => self.interval = *BETWEEN_TRIALS.start(),
        }
        (self.position, self.messages) = (position, messages);
        PAUSES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns the number of waits with pauses among `waits`, between which `messages` messages of
    /// `length` bytes arrive.
    fn paused(catch_up: &mut CatchUp, waits: u32, messages: u32, length: u64) -> usize {
        let paused = |wait: &u32| {
            let messages = wait * messages;
            catch_up.pauses(u64::from(messages) * length, messages) > 0
        };
        (0..waits).filter(paused).count()
    }

    /// Regression: a ping with messages of 1 KiB passed for a stream, and paused at each wait.
    #[test]
    fn ping_is_rarely_delayed() {
        for length in [16, STREAM_BYTES, 1 << 20] {
            let mut catch_up = CatchUp::default();
            assert_eq!(paused(&mut catch_up, 17, 1, length), 1);
            assert!(paused(&mut catch_up, 100_000, 1, length) < 110);
        }
    }

    #[test]
    fn stream_pauses_at_each_wait_until_it_ends() {
        let mut catch_up = CatchUp::default();
        assert_eq!(paused(&mut catch_up, 1016, STREAM_MESSAGES, 256), 1000);
        assert!(paused(&mut catch_up, 1000, STREAM_MESSAGES, 16) < 10);
        assert!(paused(&mut catch_up, 1000, STREAM_MESSAGES, 256) > 400);
    }
}

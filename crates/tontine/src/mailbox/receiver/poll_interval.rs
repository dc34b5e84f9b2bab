//! Length of a lane's turn: [`PollInterval`].
//!
//! Between two turns the receiver checks other lanes, connecting senders and hang-ups. If turns
//! were counted in messages alone, a program that takes a millisecond per message would accept a
//! connecting sender only after a minute; so turns become shorter if messages take long. The clock
//! is read only between turns: once per 64 messages if they are fast.

use std::time::{Duration, Instant};

/// Maximum number of messages in a turn.
pub(super) const TURN: u32 = 64;

/// Intended maximum length of a turn, and interval between services of the connections.
pub(super) const MOMENT: Duration = Duration::from_millis(5);

/// Rate at which a program processes its messages.
#[derive(Debug)]
pub(super) struct PollInterval {
    turn: u32,
    /// Number of messages since the clock was last read.
    yielded: u32,
    /// Time when the clock was last read, or when a later wait ended.
    looked: Instant,
    /// Time when a service of the connections was last found due.
    due: Option<Instant>,
}

impl Default for PollInterval {
    fn default() -> Self {
        Self { turn: 1, yielded: 0, looked: Instant::now(), due: None }
    }
}

impl PollInterval {
    /// Returns the number of messages in the next turn.
    #[inline]
    pub(super) fn turn(&self) -> u32 {
        self.turn
    }

    /// Counts messages. Returns `true` if it is time to read the clock.
    #[inline]
    pub(super) fn count(&mut self, messages: u32) -> bool {
        self.yielded += messages;
        self.yielded >= self.turn
    }

    /// Excludes the time before `now`, in which the program waited.
    pub(super) fn waited(&mut self, now: Instant) {
        self.looked = now;
    }

    /// Adapts the turn to the time that the last messages took. Returns `true` if a service of the
    /// connections is due.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        let took = now.saturating_duration_since(self.looked);
        (self.yielded, self.looked) = (0, now);
        // Turns shrink immediately but grow slowly, so that one lane's fast messages do not hide
        // another lane's slow ones.
        self.turn = if took > MOMENT {
            let share = u128::from(self.turn) * MOMENT.as_nanos() / took.as_nanos();
            (share as u32).max(1)
        } else {
            (self.turn + 1).min(TURN)
        };
        self.is_due(now)
    }

    /// Returns `true` if a service of the connections is due, at most once per [`MOMENT`].
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let since = |before: Instant| now.saturating_duration_since(before);
        let is_due = self.due.is_none_or(|before| since(before) >= MOMENT);
        if is_due {
            self.due = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of messages, each taking `each`, that are received before a sender that
    /// connected earlier is accepted.
    fn messages_before_a_look(pace: &mut PollInterval, now: &mut Instant, each: Duration) -> u32 {
        for messages in 1.. {
            *now += each;
            if pace.count(1) && pace.look(*now) {
                return messages;
            }
        }
        unreachable!("no service was due in u32::MAX messages")
    }

    /// Counts messages that make turns as long as possible.
    fn fast_messages(pace: &mut PollInterval, now: &mut Instant) {
        while pace.turn() < TURN {
            *now += Duration::from_nanos(10);
            if pace.count(1) {
                pace.look(*now);
            }
        }
    }

    #[test]
    fn slow_messages_shorten_turns() {
        let (mut pace, mut now) = (PollInterval::default(), Instant::now());
        fast_messages(&mut pace, &mut now);
        let slow = Duration::from_millis(1);
        assert_eq!(messages_before_a_look(&mut pace, &mut now, slow), TURN);
        for _ in 0..100 {
            assert!(messages_before_a_look(&mut pace, &mut now, slow) <= 12);
        }
        let minute = Duration::from_secs(60);
        messages_before_a_look(&mut pace, &mut now, minute);
        assert_eq!(messages_before_a_look(&mut pace, &mut now, minute), 1);
        fast_messages(&mut pace, &mut now);
    }

    #[test]
    fn wait_time_does_not_shorten_turns() {
        let (mut pace, mut now) = (PollInterval::default(), Instant::now());
        fast_messages(&mut pace, &mut now);
        now += Duration::from_secs(60);
        pace.waited(now);
        assert!(pace.look(now), "a service is due after a minute");
        assert_eq!(pace.turn(), TURN);
    }
}

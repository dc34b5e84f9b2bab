//! How long a turn is: [`Pace`].
//!
//! Between two turns the others are looked at: other lanes, and who connects or hangs up. Counted
//! in messages alone, a program that takes a millisecond for each would hear of a newcomer after a
//! minute; so turns are shorter where messages take long. The clock is looked at between turns
//! only: fast messages pay for it once in 64.

use std::time::{Duration, Instant};

/// Messages of a turn, at most.
pub(super) const TURN: u32 = 64;

/// A turn ought to take no longer, and connections are looked at this often.
pub(super) const MOMENT: Duration = Duration::from_millis(5);

/// How fast a program deals with its messages.
#[derive(Debug)]
pub(super) struct Pace {
    turn: u32,
    /// Messages since the clock was looked at.
    yielded: u32,
    /// When that was, or when a wait ended since.
    looked: Instant,
    /// When connections were last found due.
    due: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { turn: TURN, yielded: 0, looked: Instant::now(), due: None }
    }
}

impl Pace {
    /// Messages of the next turn.
    #[inline]
    pub(super) fn turn(&self) -> u32 {
        self.turn
    }

    /// Counts messages. Returns whether it is time for a look at the clock.
    #[inline]
    pub(super) fn count(&mut self, messages: u32) -> bool {
        self.yielded += messages;
        self.yielded >= self.turn
    }

    /// The time before `now` says nothing of the program: it waited.
    pub(super) fn waited(&mut self, now: Instant) {
        self.looked = now;
    }

    /// What the clock says of the last messages. Returns whether connections are to be looked at.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        let took = now.saturating_duration_since(self.looked);
        (self.yielded, self.looked) = (0, now);
        // Down at once, up slowly: fast messages of one lane do not hide the slow ones of another.
        self.turn = if took > MOMENT {
            let share = u128::from(self.turn) * MOMENT.as_nanos() / took.as_nanos();
            (share as u32).max(1)
        } else {
            (self.turn + 1).min(TURN)
        };
        self.is_due(now)
    }

    /// Whether connections are to be looked at, for the first time since some time.
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

    /// Turns of messages that take so long each, until a newcomer that came at once is looked at.
    fn messages_before_a_look(pace: &mut Pace, now: &mut Instant, each: Duration) -> u32 {
        for messages in 1.. {
            *now += each;
            if pace.count(1) && pace.look(*now) {
                return messages;
            }
        }
        unreachable!("more messages than numbers")
    }

    #[test]
    fn slow_messages_make_short_turns() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        pace.look(now);
        let slow = Duration::from_millis(1);
        assert_eq!(messages_before_a_look(&mut pace, &mut now, slow), TURN);
        for _ in 0..100 {
            assert!(messages_before_a_look(&mut pace, &mut now, slow) <= 12);
        }
        let minute = Duration::from_secs(60);
        messages_before_a_look(&mut pace, &mut now, minute);
        assert_eq!(messages_before_a_look(&mut pace, &mut now, minute), 1);
        // Fast ones make them long again.
        for _ in 0..TURN * TURN {
            now += Duration::from_nanos(10);
            if pace.count(1) {
                pace.look(now);
            }
        }
        assert_eq!(pace.turn(), TURN);
    }

    #[test]
    fn time_spent_waiting_makes_no_turn_shorter() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        pace.look(now);
        now += Duration::from_secs(60);
        pace.waited(now);
        assert!(pace.look(now), "connections were not looked at for a minute");
        assert_eq!(pace.turn(), TURN);
    }
}

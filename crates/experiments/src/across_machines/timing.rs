//! The protocol of all rows: [`time`] on host A, [`answer`] on host B.
//!
//! Every message has [`BYTES`] bytes and begins with a [`MessageLabel`]. Host B answers an `Echo`,
//! counts a `Streamed`, and answers a `Last`. If a message is lost, duplicated or out of order, the
//! row fails.

use std::time::{Duration, Instant};

use tontine_host::error::{MeasureError, Result};

use super::crossing::CrossingEnd;
use super::hosts::CrossingTimes;

/// Bytes per message.
pub(super) const BYTES: usize = 64;
/// Number of messages of a stream between two readings of the clock.
const BURST: u64 = 32;

/// The traffic of one invocation.
#[derive(Debug, Clone, Copy)]
pub(super) enum CrossingWork {
    /// Timed round trips after untimed ones.
    Rounds {
        /// Number of timed round trips.
        rounds: usize,
        /// Number of untimed round trips.
        warm_up: usize,
    },
    /// A stream of this duration, after an untimed one of a quarter of it.
    Stream(Duration),
}

/// The purpose of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageLabel {
    /// A message of a round trip.
    Echo,
    /// A message of a stream, with its number.
    Streamed(u64),
    /// The last message of a stream, with the number of messages before it.
    Last(u64),
}

impl MessageLabel {
    const ECHO: u8 = 1;
    const STREAMED: u8 = 2;
    const LAST: u8 = 3;

    fn message(self) -> [u8; BYTES] {
        let mut message = [0; BYTES];
        let (kind, number) = match self {
            Self::Echo => (Self::ECHO, 0),
            Self::Streamed(number) => (Self::STREAMED, number),
            Self::Last(number) => (Self::LAST, number),
        };
        message[0] = kind;
        message[8..16].copy_from_slice(&number.to_le_bytes());
        message
    }

    fn of(message: &[u8]) -> Result<Self> {
        let number = message.get(8..16).and_then(|bytes| bytes.first_chunk());
        let number = number.map(|bytes| u64::from_le_bytes(*bytes));
        match (message.first(), number) {
            (Some(&Self::ECHO), Some(0)) if message.len() == BYTES => Ok(Self::Echo),
            (Some(&Self::STREAMED), Some(number)) if message.len() == BYTES => {
                Ok(Self::Streamed(number))
            }
            (Some(&Self::LAST), Some(number)) if message.len() == BYTES => Ok(Self::Last(number)),
            _ => Err(MeasureError::fail(format!(
                "expected a message of {BYTES} bytes, found another of {} bytes",
                message.len()
            ))),
        }
    }
}

/// Times round trips or a stream, after a warm-up.
pub(super) fn time(work: CrossingWork, end: &mut impl CrossingEnd) -> Result<CrossingTimes> {
    let mut times = CrossingTimes::default();
    match work {
        CrossingWork::Rounds { rounds, warm_up } => {
            time_rounds(warm_up, end)?;
            times.one_way = time_rounds(rounds, end)?;
        }
        CrossingWork::Stream(budget) => {
            stream(budget / 4, end)?;
            let (messages, took) = stream(budget, end)?;
            (times.messages, times.seconds) = (messages as usize, took.as_secs_f64());
        }
    }
    Ok(times)
}

/// Returns half of each round trip in ns.
#[inline(never)]
fn time_rounds(count: usize, end: &mut impl CrossingEnd) -> Result<Vec<f64>> {
    let message = MessageLabel::Echo.message();
    // Not zeroed memory from the allocator, whose pages would be touched for the first time while
    // the rounds are timed.
    let mut stamps = vec![Instant::now(); count + 1];
    stamps[0] = Instant::now();
    for stamp in &mut stamps[1..] {
        end.send(&message, &[])?;
        end.receive(&[], |_| ())?;
        *stamp = Instant::now();
    }
    let half = |pair: &[Instant]| (pair[1] - pair[0]).as_nanos() as f64 / 2.0;
    Ok(stamps.windows(2).map(half).collect())
}

/// Sends messages for `budget` and waits until the other end has received them all. Returns their
/// number, and the duration from the first send to the end of the wait.
#[inline(never)]
fn stream(budget: Duration, end: &mut impl CrossingEnd) -> Result<(u64, Duration)> {
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < budget {
        for _ in 0..BURST {
            end.send(&MessageLabel::Streamed(sent).message(), &[])?;
            sent += 1;
        }
    }
    end.send(&MessageLabel::Last(sent).message(), &[])?;
    end.settle()?;
    Ok((sent + 1, began.elapsed()))
}

/// Answers host A, until this process is killed or the connection ends.
#[inline(never)]
pub(super) fn answer(end: &mut impl CrossingEnd) -> Result<()> {
    let mut expected = 0;
    loop {
        let label = end.receive(&[], MessageLabel::of)??;
        match label {
            MessageLabel::Streamed(number) if number == expected => {
                expected += 1;
                continue;
            }
            MessageLabel::Last(number) if number == expected => expected = 0,
            MessageLabel::Echo if expected == 0 => {}
            other => {
                return Err(MeasureError::fail(format!(
                    "expected message {expected} of the stream, found {other:?}"
                )));
            }
        }
        end.send(&label.message(), &[])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_round_trips_and_other_bytes_are_refused() {
        for label in [MessageLabel::Echo, MessageLabel::Streamed(7), MessageLabel::Last(1 << 40)] {
            assert_eq!(MessageLabel::of(&label.message()), Ok(label));
            assert!(MessageLabel::of(&label.message()[..BYTES - 1]).is_err());
        }
        assert!(MessageLabel::of(&[0; BYTES]).is_err());
        assert!(MessageLabel::of(&[]).is_err());
    }
}

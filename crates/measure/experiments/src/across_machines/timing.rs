//! The protocol of all rows: [`time`] on host A, [`answer`] on host B.
//!
//! Every message has [`BYTES`] bytes and begins with a [`MessageLabel`]. Host B answers an `Echo`,
//! counts a `Streamed`, and answers a `Last`. If a message is lost, duplicated or out of order, the
//! row fails.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use tontine_mechanisms::end::TwoWay;

use crate::prelude::*;

pub(super) const BYTES: usize = 64;
/// Number of messages of a stream between two readings of the clock.
const BURST: u64 = 32;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct CrossingTimes {
    pub(super) one_way: Vec<f64>,
    pub(super) messages: usize,
    /// Duration of the timed stream in seconds, including its acknowledgement.
    pub(super) seconds: f64,
}

pub(super) trait CrossingEnd: TwoWay {
    /// Blocks until the other end has received all messages. The other end answers the last one.
    fn settle(&mut self) -> Result<()> {
        Ok(self.receive(&[], |_| ())?)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum CrossingWork {
    /// Timed round trips after untimed ones.
    Rounds { rounds: usize, warm_up: usize },
    /// A stream of this duration, after an untimed one of a quarter of it.
    Stream(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageLabel {
    Echo,
    Streamed(u64),
    /// The last message of a stream, with the number of messages before it.
    Last(u64),
}

impl MessageLabel {
    fn message(self) -> [u8; BYTES] {
        let (kind, number) = match self {
            Self::Echo => (1, 0),
            Self::Streamed(number) => (2, number),
            Self::Last(number) => (3, number),
        };
        let mut message = [0; BYTES];
        message[0] = kind;
        message[8..16].copy_from_slice(&number.to_le_bytes());
        message
    }

    fn of(message: &[u8]) -> Result<Self> {
        let number = message.get(8..16).and_then(|bytes| bytes.first_chunk());
        let number = number.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        match (message.len(), message.first(), number) {
            (BYTES, Some(1), 0) => Ok(Self::Echo),
            (BYTES, Some(2), number) => Ok(Self::Streamed(number)),
            (BYTES, Some(3), number) => Ok(Self::Last(number)),
            (length, ..) => Err(MeasureError::fail(format!(
                "expected a message of {BYTES} bytes, found another of {length} bytes"
            ))),
        }
    }
}

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
                bail!("expected message {expected} of the stream, found {other:?}");
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

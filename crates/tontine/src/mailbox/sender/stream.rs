//! Growth of a lane that carries a fast stream: [`StreamSpeed`].
//!
//! A line that is dirty in the second-level cache of the sender's processor crosses slowly to the
//! receiver's. In a ring that is larger than this cache, lines have left it before they are read or
//! stored again, and messages of some lines each cross in half the time. [`super::growth`] grows a
//! lane that lacks space, and decides what the caps allow here too.

use std::time::Instant;

use crate::lane::LaneWriter;
use crate::lane::page::longest_message;
use crate::sys::region::OwnRegion;

/// Base-2 logarithm of the size (4 MiB) of a chunk for a fast stream.
const LARGE_LOG2: u32 = 22;

/// Lengths in bytes of the messages that gain from it.
const LENGTHS: std::ops::RangeInclusive<usize> = 1024..=16_384;

/// Maximum time per byte of a fast stream, in picoseconds. Messages of these lengths that are
/// answered one by one take longer, and gain nothing.
const MAX_PACE: u64 = 80;

/// Number of bytes after which a lane that could not grow tries again.
const RETRY: u64 = 1 << 30;

/// The speed of a lane since its last check.
#[derive(Debug, Default)]
pub(super) struct StreamSpeed {
    /// Time and position of the lane at the last check.
    checked: Option<(Instant, u64)>,
    /// `true` if the lane could not grow at the last check that found a fast stream.
    pub(super) refused: bool,
}

impl StreamSpeed {
    /// Length in bytes of the longest message of the large chunk.
    pub(super) const LONGEST: usize = longest_message(1 << LARGE_LOG2);

    /// Returns `true` if a lane that has space for a message of `length` bytes should grow
    /// nevertheless. Called at least once per lap of the ring.
    pub(super) fn is_outgrown(&mut self, length: usize, writer: &LaneWriter<OwnRegion>) -> bool {
        let log2 = writer.log2();
        if !LENGTHS.contains(&length) || log2 >= LARGE_LOG2 {
            return false;
        }
        let bytes = if self.refused { RETRY } else { 1 << log2 };
        self.is_fast(bytes, writer.tail(), Instant::now)
    }

    /// Returns `true` if the lane has carried `bytes` bytes at the speed of a fast stream since the
    /// last check. Checks nothing before the lane has carried them, up to the position `tail`.
    fn is_fast(&mut self, bytes: u64, tail: u64, now: impl Fn() -> Instant) -> bool {
        let (before, from) = *self.checked.get_or_insert_with(|| (now(), tail));
        if tail - from < bytes {
            return false;
        }
        let now = now();
        self.checked = Some((now, tail));
        let ps = ((now - before).as_nanos() as u64).saturating_mul(1000);
        ps < (tail - from) * MAX_PACE
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the number of checks that find a fast stream, in ten laps of 64 KiB in messages of 4
    /// KiB, each of which takes `message_ns`.
    fn fast_laps(message_ns: u64) -> usize {
        let (mut speed, begin) = (StreamSpeed::default(), Instant::now());
        let at = |message| begin + Duration::from_nanos(message * message_ns);
        (0..=160).filter(|&message| speed.is_fast(1 << 16, message << 12, || at(message))).count()
    }

    #[test]
    fn stream_is_fast_and_ping_is_not() {
        assert_eq!(fast_laps(150), 10);
        assert_eq!(fast_laps(800), 0);
    }
}

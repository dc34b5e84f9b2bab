//! The receiver's end of a lane: [`LaneReader`].
//!
//! The sender may be hostile, so the content of the memory is untrusted. The reader loads each
//! header once, into a local variable, and checks it against the size that the receiver itself
//! mapped.
//!
//! [`super::writer`] is the other end of the lane. [`super::control`] passes the read position to
//! it.

use super::catch_up::CatchUp;
use super::page::{RING_AT, ring};
use super::record::{HEADER, NOTHING, RecordHeader, size_of_message, stamp_age};
use super::region::LaneMemory;
use crate::sync::Ordering;

/// Distance in bytes to the cache line that is prefetched.
const AHEAD: usize = 192;

/// Maximum position of a valid lane: 4 EiB, so that sums of positions and lengths do not overflow.
const MOST_POSITION: u64 = 1 << 62;

/// The receiver's end of a lane.
pub(crate) struct LaneReader<R> {
    region: R,
    /// Offset of the next header in the chunk: a multiple of 8, at least one word before
    /// `ring_end`.
    at: usize,
    ring_end: usize,
    /// The lane's position at `at`, less `at`, so that a message changes only `at`.
    lap: u64,
    /// The position after the last padding record.
    padded_to: u64,
    /// The position after the last stamp, and the stamp.
    stamp: (u64, u64),
    /// The stamped messages of the lane's turn.
    turn: Option<StampedTurn>,
    catch_up: CatchUp,
}

/// Result of a check for the next record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peeked {
    /// No further record is available yet.
    Nothing,
    /// A message of this length, whose payload is at [`LaneReader::payload_at`].
    Message(usize),
    /// The lane continues in a chunk whose size is two to this power bytes.
    Next(u32),
}

/// The messages that a lane delivers before those of other lanes, by their stamps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StampedTurn {
    time: u64,
    /// Minimum age of a stamp at this time.
    age: u64,
    /// The position at which the turn ends.
    end: u64,
}

impl StampedTurn {
    /// Returns the turn with all messages before the position `end` whose stamps are before `time`,
    /// and not after the time `next` of another lane's first message, if any.
    pub(crate) fn new(time: u64, next: Option<u64>, end: u64) -> Self {
        Self { time, age: next.map_or(1, |next| time.saturating_sub(next).max(1)), end }
    }

    #[inline(always)]
    fn has(self, stamp: u64, position: u64) -> bool {
        position < self.end && stamp_age(self.time, stamp).is_some_and(|age| age >= self.age)
    }
}

/// A protocol violation by the sender, with its description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProtocolError(pub(crate) &'static str);

impl<R: LaneMemory> LaneReader<R> {
    /// Returns a reader that continues at `position` in `region`, a chunk of `1 << log2` bytes
    /// whose first record is at position `base`.
    ///
    /// # Errors
    /// Returns an error if no record of the chunk can have this position.
    pub(crate) fn new(
        region: R,
        log2: u32,
        base: u64,
        position: u64,
    ) -> Result<Self, ProtocolError> {
        let size = 1_usize << log2;
        let ahead = position
            .checked_sub(base)
            .ok_or(ProtocolError("the read position is before the first record of the chunk"))?;
        if !base.is_multiple_of(HEADER as u64) || !ahead.is_multiple_of(HEADER as u64) {
            return Err(ProtocolError("a position is not a multiple of 8"));
        }
        if position > MOST_POSITION {
            return Err(ProtocolError("the read position is beyond the end of any lane"));
        }
        let at = RING_AT + (ahead % ring(size) as u64) as usize;
        Ok(Self {
            region,
            at,
            ring_end: size,
            lap: position.wrapping_sub(at as u64),
            padded_to: u64::MAX,
            stamp: (u64::MAX, 0),
            turn: None,
            catch_up: CatchUp::default(),
        })
    }

    /// Returns the position of the next record in the lane.
    #[inline(always)]
    pub(crate) fn position(&self) -> u64 {
        self.lap.wrapping_add(self.at as u64)
    }

    /// Returns the lane's position at the start of the ring in this lap. It differs from the
    /// position of the chunk's first record by a multiple of the ring's size.
    #[cfg(feature = "relay")]
    pub(crate) fn lap_start(&self) -> u64 {
        self.lap.wrapping_add(RING_AT as u64)
    }

    /// Returns the chunk.
    pub(crate) fn region(&self) -> &R {
        &self.region
    }

    /// Converts the reader into its chunk.
    pub(crate) fn into_region(self) -> R {
        self.region
    }

    /// Returns the size of the chunk in bytes.
    pub(crate) fn size(&self) -> usize {
        self.ring_end
    }

    /// Returns `true` if there is no record. This is the cheapest check: it loads one word.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.region.word(self.at).load(Ordering::Relaxed) == NOTHING
    }

    /// Checks for the next record, skipping at most one padding record.
    ///
    /// # Errors
    /// Returns an error if no honest sender writes the header that was found.
    #[inline(always)]
    pub(crate) fn look(&mut self) -> Result<Peeked, ProtocolError> {
        self.look_within::<false>(0, 0)
    }

    /// Does the work of `look`. If there is no record, checks up to `looks` more times, with a
    /// pause before each check, and longer pauses before the first one in a stream ([`CatchUp`]),
    /// which is recognised by the number of messages `found` so far. If `IN_TURN`, finds no stamped
    /// message that does not belong to the lane's turn.
    ///
    /// # Errors
    /// Returns an error like `look`.
    #[inline(always)]
    pub(crate) fn look_within<const IN_TURN: bool>(
        &mut self,
        looks: u32,
        found: u32,
    ) -> Result<Peeked, ProtocolError> {
        let header = self.region.word(self.at);
        // SYNC publish: pairs with the header stores in `LaneWriter`.
        let mut word = header.load(Ordering::Acquire);
        if word != NOTHING {
            self.expect_more();
        } else if looks > 1 {
            self.catch_up.pause(self.lap.wrapping_add(self.at as u64), found);
        }
        for _ in 0..looks {
            if word != NOTHING {
                break;
            }
            std::hint::spin_loop();
            // SYNC publish: as above.
            word = header.load(Ordering::Acquire);
        }
        if word == NOTHING {
            return Ok(Peeked::Nothing);
        }
        match RecordHeader::message(word) {
            Some(length) if self.holds(length) => Ok(Peeked::Message(length)),
            _ => self.peek_other::<IN_TURN>(word),
        }
    }

    /// Handles a stamp quickly, and every other header that is not that of a valid message. Out of
    /// line, because it would slow down messages without stamps.
    #[inline(never)]
    fn peek_other<const IN_TURN: bool>(&mut self, word: u64) -> Result<Peeked, ProtocolError> {
        match RecordHeader::stamp(word) {
            Some(stamp) if IN_TURN && !self.is_in_turn(stamp) => Ok(Peeked::Nothing),
            Some(stamp) => self.peek_stamped(stamp),
            None => self.peek_slow::<IN_TURN>(word),
        }
    }

    /// Returns `true` if a message of the given untrusted length ends inside the ring.
    #[inline(always)]
    fn holds(&self, length: usize) -> bool {
        size_of_message(length) <= self.ring_end - self.at
    }

    /// Returns the stamp of the message that was just found, if the sender has stamped it.
    pub(crate) fn stamp(&self) -> Option<u64> {
        let (behind, stamp) = self.stamp;
        (behind == self.position()).then_some(stamp)
    }

    /// Begins a turn, outside of which [`LaneReader::look_within`] finds no stamped message.
    pub(crate) fn begin_turn(&mut self, turn: StampedTurn) {
        self.turn = Some(turn);
    }

    /// Returns `true` if the next record, this stamp, belongs to the turn.
    #[inline(always)]
    fn is_in_turn(&self, stamp: u64) -> bool {
        self.turn.is_none_or(|turn| turn.has(stamp, self.position()))
    }

    /// Skips a stamp, which the message that it belongs to follows directly.
    fn peek_stamped(&mut self, stamp: u64) -> Result<Peeked, ProtocolError> {
        let message = self.at + HEADER;
        let word = if message < self.ring_end {
            self.region.word(message).load(Ordering::Relaxed)
        } else {
            NOTHING
        };
        match RecordHeader::message(word) {
            Some(length) if size_of_message(length) <= self.ring_end - message => {
                self.at = message;
                self.stamp = (self.position(), stamp);
                Ok(Peeked::Message(length))
            }
            _ => Err(ProtocolError("a stamp is not followed by a message within the ring")),
        }
    }

    /// Handles every header that is not the header of a valid message.
    #[cold]
    fn peek_slow<const IN_TURN: bool>(&mut self, word: u64) -> Result<Peeked, ProtocolError> {
        match RecordHeader::claimed(word) {
            None => Err(ProtocolError("a record's header has an unknown kind")),
            Some(RecordHeader::Message(_)) => {
                Err(ProtocolError("a message is longer than the rest of its ring"))
            }
            Some(RecordHeader::Next(log2)) => Ok(Peeked::Next(log2)),
            Some(RecordHeader::Stamp(stamp)) => self.peek_stamped(stamp),
            Some(RecordHeader::Padding(_)) if self.padded_to == self.position() => {
                Err(ProtocolError("a padding record follows a padding record"))
            }
            Some(RecordHeader::Padding(length)) => {
                if HEADER + length != self.ring_end - self.at {
                    return Err(ProtocolError(
                        "a padding record does not reach the end of the ring",
                    ));
                }
                self.begin_lap();
                self.padded_to = self.position();
                // Recurses at most once because `padded_to` is this position.
                self.look_within::<IN_TURN>(0, 0)
            }
        }
    }

    /// Returns the offset of the payload of the message that was just found.
    #[inline(always)]
    pub(crate) fn payload_at(&self) -> usize {
        self.at + HEADER
    }

    /// Prefetches the record after the next one. A receiver that finds a message without waiting
    /// lags behind the sender, and the processor cannot speculate past lengths that it has not
    /// loaded.
    #[inline(always)]
    fn expect_more(&self) {
        self.region.expect_reading(self.at + AHEAD);
    }

    /// Advances past the message that was just found.
    #[inline(always)]
    pub(crate) fn advance(&mut self, length: usize) {
        self.at += size_of_message(length);
        if self.at == self.ring_end {
            self.begin_lap();
        }
    }

    /// Moves from any offset to the start of the ring, past the rest of the ring.
    fn begin_lap(&mut self) {
        self.lap = self.lap.wrapping_add((self.ring_end - RING_AT) as u64);
        self.at = RING_AT;
    }

    /// Moves to another `position` of the same chunk, which has `1 << log2` bytes and its first
    /// record at `base`.
    ///
    /// # Errors
    /// The errors of [`LaneReader::new`].
    #[cfg(feature = "relay")]
    pub(crate) fn move_to(
        &mut self,
        log2: u32,
        base: u64,
        position: u64,
    ) -> Result<(), ProtocolError> {
        let moved = LaneReader::new(&self.region, log2, base, position)?;
        (self.at, self.lap) = (moved.at, moved.lap);
        Ok(())
    }

    /// Returns the number of messages from the next record on, here and in the chunks that follow:
    /// up to a record that is not published, or that no honest sender writes.
    pub(crate) fn count_messages<'a>(
        &'a self,
        mut following: impl Iterator<Item = &'a (R, u32)>,
    ) -> usize {
        let (mut region, mut at, mut end) = (&self.region, self.at, self.ring_end);
        let (mut count, mut left) = (0, ring(end));
        loop {
            // SYNC publish: pairs with the header stores in `LaneWriter`.
            let (messages, size) =
                match RecordHeader::claimed(region.word(at).load(Ordering::Acquire)) {
                    Some(RecordHeader::Message(length)) => (1, size_of_message(length)),
                    Some(RecordHeader::Padding(_)) => (0, end - at),
                    Some(RecordHeader::Stamp(_)) => (0, HEADER),
                    Some(RecordHeader::Next(log2)) => match following.next() {
                        Some((next, size)) if *size == log2 => {
                            (region, at, end) = (next, RING_AT, 1 << log2);
                            left = ring(end);
                            continue;
                        }
                        _ => return count,
                    },
                    None => return count,
                };
            // The walk ends after one lap, whatever a hostile sender writes meanwhile.
            if size > left.min(end - at) {
                return count;
            }
            (count, left, at) = (count + messages, left - size, at + size);
            if at == end {
                at = RING_AT;
            }
        }
    }

    /// Continues in the chunk that a [`Peeked::Next`] announced, and returns the old chunk.
    pub(crate) fn follow(&mut self, region: R, log2: u32) -> R {
        let position = self.position() + HEADER as u64;
        self.at = RING_AT;
        self.lap = position.wrapping_sub(RING_AT as u64);
        self.ring_end = 1 << log2;
        std::mem::replace(&mut self.region, region)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lane::page::MIN_LOG2;
    use crate::lane::region::models::ModelRegion;

    /// Regression test: `HELLO` contains the position at which reading begins, and the receiver
    /// accepted every multiple of 8. If a sender began just below the integer maximum, the
    /// receiver's sum overflowed at the first message, which is a panic if overflow checks are
    /// enabled.
    #[test]
    fn position_near_integer_maximum_is_refused() {
        let begin = |base, position| {
            LaneReader::new(ModelRegion::new(1 << MIN_LOG2), MIN_LOG2, base, position).map(|_| ())
        };
        let refused = Err(ProtocolError("the read position is beyond the end of any lane"));
        assert_eq!(begin(u64::MAX - 15, u64::MAX - 7), refused);
        assert_eq!(begin(0, MOST_POSITION + 8), refused);
        assert_eq!(begin(0, MOST_POSITION), Ok(()));
    }

    /// Regression test, found by fuzzing: only the distance to the chunk's first record was
    /// checked, so a lane could begin at an odd position, which its own sender would never have
    /// accepted.
    #[test]
    fn odd_base_is_refused() {
        let begin = |base| {
            LaneReader::new(ModelRegion::new(1 << MIN_LOG2), MIN_LOG2, base, base + 8).map(|_| ())
        };
        assert_eq!(begin(1025), Err(ProtocolError("a position is not a multiple of 8")));
        assert_eq!(begin(1024), Ok(()));
    }
}

//! The receiver's end of a lane: [`Reader`].
//!
//! Whatever stands in the memory is a claim of the sender's, which may be hostile: each header is
//! read once, into a local, and checked against the size that the receiver itself mapped.
//!
//! Neighbours: [`super::writer`] is the other end; [`super::control`] tells it how far we are.

use super::page::{RING_AT, ring};
use super::record::{HEADER, Header, NOTHING, size_of_message};
use super::region::Region;
use crate::sync::Ordering;

/// Lines so many bytes ahead are fetched early.
const AHEAD: usize = 192;

/// No lane comes so far: 4 EiB. Positions are added to without a look at the end of numbers.
const MOST_POSITION: u64 = 1 << 62;

/// The receiver's end.
pub(crate) struct Reader<R> {
    region: R,
    /// Where the next header is looked for: bytes from the start of the chunk, 8-aligned, at least
    /// one word before `ring_end`.
    at: usize,
    ring_end: usize,
    /// Bytes of the lane up to `at`.
    position: u64,
    /// The record before `at` was padding.
    padded: bool,
}

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing new.
    Nothing,
    /// A message whose payload lies at [`Reader::payload_at`].
    Message(usize),
    /// The lane goes on in a chunk of two to this power bytes.
    Next(u32),
}

/// A sender broke the rules; the text says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) &'static str);

impl<R: Region> Reader<R> {
    /// Reads on in `region`, two to the power `log2` bytes, at `position`; the chunk's first record
    /// stands at `base`.
    ///
    /// # Errors
    /// A position that no record of the chunk can have.
    pub(crate) fn new(region: R, log2: u32, base: u64, position: u64) -> Result<Self, Broken> {
        let size = 1_usize << log2;
        let ahead = position
            .checked_sub(base)
            .ok_or(Broken("the read position is before the first record of the chunk"))?;
        if !base.is_multiple_of(HEADER as u64) || !ahead.is_multiple_of(HEADER as u64) {
            return Err(Broken("a position is not a multiple of 8"));
        }
        if position > MOST_POSITION {
            return Err(Broken("the read position is beyond the end of any lane"));
        }
        let at = RING_AT + (ahead % ring(size) as u64) as usize;
        Ok(Self { region, at, ring_end: size, position, padded: false })
    }

    /// Bytes of the lane that lie before the record that is looked at.
    #[inline(always)]
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The chunk.
    pub(crate) fn region(&self) -> &R {
        &self.region
    }

    /// Returns the chunk.
    pub(crate) fn into_region(self) -> R {
        self.region
    }

    /// Bytes of the chunk.
    pub(crate) fn size(&self) -> usize {
        self.ring_end
    }

    /// Whether something stands there: the shortest look, at one word.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.region.word(self.at).load(Ordering::Relaxed) == NOTHING
    }

    /// Looks at the next record, past one padding at most.
    ///
    /// # Errors
    /// A header that no honest sender writes.
    #[inline(always)]
    pub(crate) fn look(&mut self) -> Result<Found, Broken> {
        // SYNC publish: pairs with the header stores in `Writer`.
        let word = self.region.word(self.at).load(Ordering::Acquire);
        if word == NOTHING {
            return Ok(Found::Nothing);
        }
        match Header::claimed(word) {
            Some(Header::Message(length)) if self.holds(length) => Ok(Found::Message(length)),
            claimed => self.look_closer(claimed),
        }
    }

    /// Whether a message of a claimed length lies inside the ring.
    #[inline(always)]
    fn holds(&self, length: usize) -> bool {
        size_of_message(length) <= self.ring_end - self.at
    }

    /// Everything but a sound message.
    #[cold]
    fn look_closer(&mut self, claimed: Option<Header>) -> Result<Found, Broken> {
        match claimed {
            None => Err(Broken("a record's header has header has an unknown kind")),
            Some(Header::Message(_)) => {
                Err(Broken("a message is longer than the rest of its ring"))
            }
            Some(Header::Next(log2)) => Ok(Found::Next(log2)),
            Some(Header::Padding(_)) if self.padded => {
                Err(Broken("a padding record follows a padding record"))
            }
            Some(Header::Padding(length)) => {
                if HEADER + length != self.ring_end - self.at {
                    return Err(Broken("a padding record does not reach the end of the ring"));
                }
                self.position += (HEADER + length) as u64;
                self.at = RING_AT;
                self.padded = true;
                // `padded` is set: this cannot come here for padding again.
                self.look()
            }
        }
    }

    /// Where the payload of the message just found begins.
    #[inline(always)]
    pub(crate) fn payload_at(&self) -> usize {
        self.at + HEADER
    }

    /// Fetches what comes next but one: whoever finds a message without waiting lags behind, and
    /// the processor cannot run ahead of lengths that it has not read.
    #[inline(always)]
    pub(crate) fn expect_more(&self) {
        self.region.expect_reading(self.at + AHEAD);
    }

    /// Goes behind the message just found.
    #[inline(always)]
    pub(crate) fn advance(&mut self, length: usize) {
        let size = size_of_message(length);
        self.at += size;
        self.position += size as u64;
        self.padded = false;
        if self.at == self.ring_end {
            self.at = RING_AT;
        }
    }

    /// Goes on in the chunk that a [`Found::Next`] announced; gives the old one back.
    pub(crate) fn follow(&mut self, region: R, log2: u32) -> R {
        self.position += HEADER as u64;
        self.at = RING_AT;
        self.ring_end = 1 << log2;
        self.padded = false;
        std::mem::replace(&mut self.region, region)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lane::page::LEAST_LOG2;
    use crate::lane::region::model::Heap;

    /// `HELLO` names the position at which reading begins, and any was believed that was a multiple
    /// of 8. A sender that began just before the end of numbers made the receiver's sum overflow
    /// with its first message: a panic, where overflow is checked.
    #[test]
    fn a_position_near_the_end_of_numbers_is_refused() {
        let begin = |base, position| {
            Reader::new(Heap::new(1 << LEAST_LOG2), LEAST_LOG2, base, position).map(|_| ())
        };
        let refused = Err(Broken("the read position is beyond the end of any lane"));
        assert_eq!(begin(u64::MAX - 15, u64::MAX - 7), refused);
        assert_eq!(begin(0, MOST_POSITION + 8), refused);
        assert_eq!(begin(0, MOST_POSITION), Ok(()));
    }

    /// Found by fuzzing: only the distance to the chunk's first record was looked at, so that a
    /// lane could begin at an odd position, which its own sender would never have believed.
    #[test]
    fn an_odd_base_is_refused() {
        let begin =
            |base| Reader::new(Heap::new(1 << LEAST_LOG2), LEAST_LOG2, base, base + 8).map(|_| ());
        assert_eq!(begin(1025), Err(Broken("a position is not a multiple of 8")));
        assert_eq!(begin(1024), Ok(()));
    }
}

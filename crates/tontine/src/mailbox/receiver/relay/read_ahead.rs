//! A lane that is read ahead of its acknowledgements: [`ReadAhead`], and the records that it finds.
//!
//! The [`InboundLane`] stays at the acknowledged position and keeps every chunk from there on; a
//! [`ReadAhead`] is a second position in the same chunks. Everything that the sender wrote is an
//! untrusted value, and may change between two reads: a violation is a [`ProtocolError`], after
//! which the caller removes the lane. Neighbours: [`super`] holds one for each lane.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Bound, RangeBounds};

use crate::error::{Error, Result};
use crate::lane::page::ring;
use crate::lane::reader::ProtocolError;
use crate::lane::record::{HEADER, size_of_message};
use crate::lane::region::LaneMemory;
use crate::lane::{LaneReader, Peeked};
use crate::mailbox::receiver::inbound::InboundLane;
use crate::mailbox::receiver::message::SenderId;
use crate::mailbox::wire::{LaneIdentity, MOST_CHUNKS};
use crate::sync::Ordering;
use crate::sys::region::PeerRegion;

/// Maximum number of records that one call passes.
const READ_AT_ONCE: usize = 1024;

const CHANGED: ProtocolError = ProtocolError("a record changed after it was read");

/// A record that a [`Relay`](super::Relay) reads ahead of its acknowledgement.
///
/// The bytes are in memory that the sender can write: a hostile sender may change them between two
/// copies. See [`Relay`](super::Relay) for an example.
pub struct AheadRecord<'a> {
    chunk: &'a PeerRegion,
    payload_at: usize,
    len: usize,
    position: u64,
}

impl fmt::Debug for AheadRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, len, .. } = self;
        f.debug_struct("AheadRecord").field("position", position).field("len", len).finish()
    }
}

impl AheadRecord<'_> {
    /// Returns the lane's position at the record.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the lane's position after the record. Padding may lie between this position and the
    /// next record's.
    pub fn end(&self) -> u64 {
        self.position + size_of_message(self.len) as u64
    }

    /// Returns the length of the message in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a part of the message to `into`.
    ///
    /// # Panics
    /// Panics if the range is not inside the message.
    pub fn append_to(&self, range: impl RangeBounds<usize>, into: &mut Vec<u8>) {
        let begin = match range.start_bound() {
            Bound::Included(&begin) => begin,
            Bound::Excluded(&before) => before + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last + 1,
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        assert!(begin <= end && end <= self.len, "range {begin}..{end} of {} bytes", self.len);
        // Copies begin at a whole word of the record.
        let aligned = begin.next_multiple_of(HEADER).min(end);
        if aligned > begin {
            let word = self.payload_at + begin / HEADER * HEADER;
            let bytes = self.chunk.word(word).load(Ordering::Relaxed).to_ne_bytes();
            let first = begin % HEADER;
            into.extend_from_slice(&bytes[first..first + (aligned - begin)]);
        }
        if end > aligned {
            self.chunk.copy_out(self.payload_at + aligned, end - aligned, into);
        }
    }
}

/// Result of a reading call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AheadStop {
    /// At a record.
    Record,
    /// There is no record, and the sender rings when it sends one. Or the lane waits for a resource
    /// that this process lacks.
    Nothing,
    /// Not everything was checked: the caller must check again.
    Again,
}

/// The read position of one lane of a relay.
pub(super) struct ReadAhead {
    pub(super) id: SenderId,
    pub(super) identity: LaneIdentity,
    /// `true` while the program does not want the lane's records.
    pub(super) is_held: bool,
    /// `true` once the remote end has ended: the acknowledged position is final.
    pub(super) is_over: bool,
    /// The position to which the program acknowledged. No record lies between this position and the
    /// acknowledged one.
    acked_from: u64,
    /// Number of chunks before the one at the read position.
    chunk: usize,
    pub(super) read: u64,
    /// The furthest read position.
    furthest: u64,
    /// The position last passed to [`ReadAhead::mark_sent`].
    sent: u64,
    /// Positions of the first records of `InboundLane::passed`, for each chunk that was reached.
    bases: VecDeque<u64>,
}

impl ReadAhead {
    /// Returns the read position of a lane that was accepted and not read yet.
    pub(super) fn new(lane: &InboundLane) -> Self {
        let position = lane.reader.position();
        Self {
            id: lane.id,
            identity: LaneIdentity::read(lane.reader.region()),
            is_held: false,
            is_over: false,
            acked_from: position,
            chunk: 0,
            read: position,
            furthest: position,
            sent: 0,
            bases: VecDeque::new(),
        }
    }

    /// Passes records to `each` and advances past each for which it returns `true`, until it
    /// returns `false`. Counts them in `passed`.
    ///
    /// # Errors
    /// The sender broke the protocol.
    pub(super) fn read(
        &mut self,
        lane: &mut InboundLane,
        passed: &mut usize,
        mut each: impl FnMut(&AheadRecord<'_>) -> bool,
    ) -> Result<AheadStop, ProtocolError> {
        for _ in 0..MOST_CHUNKS {
            match self.read_chunk(lane, passed, &mut each)? {
                Peeked::Message(_) => return Ok(AheadStop::Record),
                Peeked::Nothing => {
                    self.settle(lane)?;
                    return Ok(AheadStop::Nothing);
                }
                Peeked::Next(log2) => {
                    if !self.follow(lane, log2)? {
                        let is_short = lane.is_short();
                        return Ok(if is_short { AheadStop::Nothing } else { AheadStop::Again });
                    }
                }
            }
        }
        Ok(AheadStop::Again)
    }

    /// Checks for a record at the read position, without passing it.
    ///
    /// # Errors
    /// The sender broke the protocol.
    pub(super) fn look(&mut self, lane: &mut InboundLane) -> Result<AheadStop, ProtocolError> {
        self.read(lane, &mut 0, |_| false)
    }

    /// Passes the records of one chunk. Returns what follows them.
    fn read_chunk(
        &mut self,
        lane: &InboundLane,
        passed: &mut usize,
        each: &mut impl FnMut(&AheadRecord<'_>) -> bool,
    ) -> Result<Peeked, ProtocolError> {
        let (chunk, log2, base) = self.chunk_at(lane, self.chunk).ok_or(CHANGED)?;
        let mut reader = LaneReader::new(chunk, log2, base, self.read)?;
        // An honest sender writes over no record that is not acknowledged, and keeps one header
        // free.
        let most = lane.reader.position().max(base) + (ring(1 << log2) - HEADER) as u64;
        loop {
            let peeked = reader.look()?;
            self.advance_to(reader.position());
            let Peeked::Message(len) = peeked else { return Ok(peeked) };
            let payload_at = reader.payload_at();
            let record = AheadRecord { chunk, payload_at, len, position: self.read };
            if record.end() > most {
                return Err(ProtocolError("a record lies over one that was not acknowledged"));
            }
            if *passed == READ_AT_ONCE || !each(&record) {
                return Ok(peeked);
            }
            self.advance_to(record.end());
            *passed += 1;
            reader.advance(len);
        }
    }

    fn advance_to(&mut self, position: u64) {
        self.read = position;
        self.furthest = self.furthest.max(position);
    }

    /// Returns a chunk with the logarithm of its size and the position of its first record (for the
    /// oldest chunk, a position in the same lap), or `None` if it was not reached yet.
    fn chunk_at<'a>(
        &self,
        lane: &'a InboundLane,
        index: usize,
    ) -> Option<(&'a PeerRegion, u32, u64)> {
        let Some(later) = index.checked_sub(1) else {
            let reader = &lane.reader;
            return Some((reader.region(), reader.size().ilog2(), reader.lap_start()));
        };
        let (region, log2) = lane.passed.get(later)?;
        Some((region, *log2, *self.bases.get(later)?))
    }

    /// Continues in the chunk that `next` at the read position announced. Returns `false` if the
    /// chunk has not been received.
    fn follow(&mut self, lane: &mut InboundLane, log2: u32) -> Result<bool, ProtocolError> {
        let base = self.read + HEADER as u64;
        if let Some(&known) = self.bases.get(self.chunk) {
            if known != base || lane.passed.get(self.chunk).is_none_or(|next| next.1 != log2) {
                return Err(CHANGED);
            }
        } else {
            if lane.passed.len() <= self.chunk {
                lane.read_notes()?;
            }
            match lane.passed.get(self.chunk) {
                Some(&(_, passed)) if passed == log2 => self.bases.push_back(base),
                Some(_) => {
                    return Err(ProtocolError(
                        "a record names another size for the next chunk than the passed one has",
                    ));
                }
                None if lane.more_notes => return Ok(false),
                None => {
                    return Err(ProtocolError(
                        "a record continues in a next chunk, but no chunk was passed",
                    ));
                }
            }
        }
        self.chunk += 1;
        self.advance_to(base);
        self.settle(lane)?;
        Ok(true)
    }

    /// Moves the acknowledged position over padding and chunks that hold no further record. If
    /// everything is acknowledged, announces that to the sender.
    fn settle(&mut self, lane: &mut InboundLane) -> Result<(), ProtocolError> {
        while lane.reader.position() < self.furthest && !self.is_over {
            let Peeked::Next(log2) = lane.reader.look()? else { break };
            let base = lane.reader.position() + HEADER as u64;
            let next = lane.passed.front().is_some_and(|next| next.1 == log2);
            if self.bases.front() != Some(&base) || !next {
                break;
            }
            self.acknowledge_at(lane, 1, base)?;
        }
        if lane.reader.position() > self.furthest {
            return Err(CHANGED);
        }
        if lane.reader.position() == self.furthest && lane.reader.position() != lane.notified_at {
            lane.notify_space();
        }
        Ok(())
    }

    /// Acknowledges everything before `position`.
    ///
    /// # Errors
    /// The inner error is [`Error::InvalidPosition`]; the outer one, that the sender broke the
    /// protocol.
    pub(super) fn ack_to(
        &mut self,
        lane: &mut InboundLane,
        position: u64,
    ) -> Result<Result<()>, ProtocolError> {
        if self.is_over || position <= lane.reader.position() {
            return Ok(Ok(()));
        }
        let Some(chunks) = self.find(lane, position)? else {
            return Ok(Err(self.invalid(lane, position)));
        };
        self.acknowledge_at(lane, chunks, position)?;
        self.acked_from = position;
        self.settle(lane)?;
        if lane.reader.position() - lane.notified_at >= (lane.reader.size() / 4) as u64 {
            lane.notify_space();
        } else {
            lane.notify_if_waiting();
        }
        Ok(Ok(()))
    }

    /// Moves the read position.
    ///
    /// # Errors
    /// The inner error is [`Error::InvalidPosition`]; the outer one, that the sender broke the
    /// protocol.
    pub(super) fn seek(
        &mut self,
        lane: &InboundLane,
        position: u64,
    ) -> Result<Result<()>, ProtocolError> {
        let acked = lane.reader.position();
        let target = if position >= self.acked_from { position.max(acked) } else { position };
        let Some(chunks) = self.find(lane, target)? else {
            return Ok(Err(self.invalid(lane, position)));
        };
        self.read = target;
        self.chunk = chunks;
        Ok(Ok(()))
    }

    fn invalid(&self, lane: &InboundLane, position: u64) -> Error {
        let from = self.acked_from.min(lane.reader.position());
        Error::InvalidPosition { position, from, to: self.furthest }
    }

    /// Returns the number of chunks before `position`, which lies between two records that were
    /// read; `None` if it does not. Walks over the headers from the acknowledged position on.
    fn find(&self, lane: &InboundLane, position: u64) -> Result<Option<usize>, ProtocolError> {
        let mut at = lane.reader.position();
        if !(at..=self.furthest).contains(&position) {
            return Ok(None);
        }
        for index in 0..=self.bases.len() {
            let (chunk, log2, base) = self.chunk_at(lane, index).ok_or(CHANGED)?;
            let mut reader = LaneReader::new(chunk, log2, base, at)?;
            // Each step advances by at least one header, and `position` is in reach.
            while reader.position() < position {
                match reader.look()? {
                    // The record may follow padding, whose end is a position too.
                    Peeked::Message(len) if reader.position() < position => reader.advance(len),
                    Peeked::Message(_) => {}
                    Peeked::Next(_) if reader.position() >= position => {}
                    Peeked::Next(_) => break,
                    Peeked::Nothing if reader.position() >= position => {}
                    Peeked::Nothing => return Err(CHANGED),
                }
            }
            at = reader.position() + HEADER as u64;
            match position.checked_sub(reader.position()) {
                None => return Ok(None),
                Some(0) => return Ok(Some(index)),
                Some(_) if self.bases.get(index) != Some(&at) => return Err(CHANGED),
                // `next` is one word, so a position inside it is not a multiple of 8.
                Some(_) if at > position => return Ok(None),
                Some(_) => {}
            }
        }
        Err(CHANGED)
    }

    /// Moves the acknowledged position to `position`, which lies `chunks` chunks further on.
    fn acknowledge_at(
        &mut self,
        lane: &mut InboundLane,
        chunks: usize,
        position: u64,
    ) -> Result<(), ProtocolError> {
        if chunks == 0 {
            let base = lane.reader.lap_start();
            let log2 = lane.reader.size().ilog2();
            lane.reader.move_to(log2, base, position)?;
        } else {
            let next = lane.passed.drain(..chunks).next_back();
            let base = self.bases.drain(..chunks).next_back();
            let (Some((region, log2)), Some(base)) = (next, base) else { return Err(CHANGED) };
            lane.reader = LaneReader::new(region, log2, base, position)?;
            lane.first_size = lane.first_size.min(lane.reader.size());
        }
        lane.idle_since = None;
        self.chunk = self.chunk.saturating_sub(chunks);
        if self.read < position {
            (self.read, self.chunk) = (position, 0);
        }
        lane.acknowledge_position();
        lane.lower_grant();
        Ok(())
    }

    /// Announces that everything before `position` may have left this host.
    pub(super) fn mark_sent(&mut self, lane: &InboundLane, position: u64) {
        if position > self.sent && !self.is_over {
            self.sent = position;
            lane.control.mark_sent(position);
        }
    }
}

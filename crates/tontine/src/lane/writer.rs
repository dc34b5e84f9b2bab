//! The sender's end of a lane: [`LaneWriter`].
//!
//! A message becomes visible when the sender stores its header. Before that, the sender stores the
//! payload, and a zero in place of the following header. The receiver therefore finds no further
//! record until the sender has published one, whatever an earlier lap left in the ring.
//!
//! [`super::reader`] is the other end of the lane. [`crate::mailbox`] decides what happens if the
//! lane has no free space.

use std::collections::VecDeque;

use super::page::{
    BASE_AT, CHUNK_MAGIC, MAGIC_AT, RING_AT, SEQUENCE_AT, VERSION, VERSION_AT, longest_message,
    ring,
};
use super::record::{HEADER, NOTHING, RecordHeader, STAMP_BITS, size_of_message};
use super::region::LaneMemory;
use super::store_choice::{LARGE, StoreChoice};
use crate::sync::{Ordering, clock};

/// A chunk of the chain.
pub(crate) struct ChunkRef<R> {
    /// The chunk's memory.
    pub(crate) region: R,
    /// Base-2 logarithm of the chunk's size.
    pub(crate) log2: u32,
    /// The lane's position at the chunk's first record.
    base: u64,
    /// The lane's position after the chunk's `next`, or `None` for the newest chunk.
    end: Option<u64>,
}

/// The sender's end of a lane.
pub(crate) struct LaneWriter<R> {
    /// Offset of the next record in the newest chunk: the only field that `push` changes.
    at: usize,
    /// Offset in the newest chunk up to which the bytes from `at` on are known to be free.
    limit: usize,
    /// The lane's position after the last record, less `at`.
    lap: u64,
    /// The receiver's read position, as last accepted.
    position: u64,
    /// The position up to which messages were taken back. The receiver's own position may be lower.
    taken_back: u64,
    /// The chunk that the sender writes to.
    newest: ChunkRef<R>,
    /// Earlier chunks that still have unread records, oldest first.
    older: VecDeque<ChunkRef<R>>,
    /// Offset of the end of the newest chunk's ring.
    ring_end: usize,
    /// Sequence number of the next chunk.
    sequence: u64,
    /// Number of bytes in chunks that the sender dropped before the receiver had moved past them.
    lent: u64,
    /// `true` if each message is stamped. [`LaneWriter::push_unstamped`] does not check this.
    stamps: bool,
    /// The way in which large messages are stored; a pointer keeps the fields of all sends close.
    stores: Box<StoreChoice>,
}

/// Result of a search for space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FreeSpace {
    /// The record fits, at [`LaneWriter::payload_at`].
    Here,
    /// The record fits once the receiver has read more.
    Later,
    /// The record does not fit into a chunk of this size.
    Never,
}

/// The slot of a message for which space was found; invalid once the lane changes chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordSlot {
    sequence: u64,
    at: usize,
    /// `true` if the space includes a stamp before the message.
    stamps: bool,
}

/// A read position after the last record, or before a record that the receiver has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidPosition {
    /// The smallest expected position.
    pub(crate) from: u64,
    /// The largest expected position.
    pub(crate) to: u64,
    /// The position that was found.
    pub(crate) found: u64,
}

impl<R: LaneMemory> LaneWriter<R> {
    /// Returns a lane that begins in `first`, which is `1 << log2` bytes of zeroed memory.
    pub(crate) fn new(first: R, log2: u32) -> Self {
        label(&first, log2, 0, 0);
        Self {
            at: RING_AT,
            limit: 1 << log2,
            lap: 0_u64.wrapping_sub(RING_AT as u64),
            position: 0,
            taken_back: 0,
            ring_end: 1 << log2,
            newest: ChunkRef { region: first, log2, base: 0, end: None },
            older: VecDeque::new(),
            sequence: 1,
            lent: 0,
            stamps: false,
            stores: Box::default(),
        }
    }

    /// Returns the chunks, oldest first.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &ChunkRef<R>> {
        self.older.iter().chain(std::iter::once(&self.newest))
    }

    /// Returns the number of chunks.
    pub(crate) fn chunks(&self) -> usize {
        self.older.len() + 1
    }

    /// Returns the base-2 logarithm of the newest chunk's size.
    pub(crate) fn log2(&self) -> u32 {
        self.newest.log2
    }

    /// Returns the total size of all chunks in bytes, including chunks that the receiver still
    /// holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.lent + self.chain_bytes()
    }

    /// Returns the total size of the chunks in bytes.
    pub(crate) fn chain_bytes(&self) -> u64 {
        self.chain().map(|link| 1_u64 << link.log2).sum()
    }

    /// Returns the sequence number of the next chunk.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the position of the oldest chunk's first record.
    pub(crate) fn base(&self) -> u64 {
        self.older.front().unwrap_or(&self.newest).base
    }

    /// Returns the receiver's read position, as last accepted. The result is never before the
    /// oldest chunk, because dropped chunks had no unread record, nor before the end of the
    /// messages that were taken back.
    pub(crate) fn position(&self) -> u64 {
        self.position.max(self.base()).max(self.taken_back)
    }

    /// Returns the lane's position after the last record.
    #[inline(always)]
    pub(crate) fn tail(&self) -> u64 {
        self.lap.wrapping_add(self.at as u64)
    }

    /// Returns the receiver's read position, as last accepted, whatever was taken back.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.position
    }

    /// Continues at offset `at` of the newest chunk, at the lane's position `tail`.
    fn continue_at(&mut self, at: usize, tail: u64) {
        self.at = at;
        self.lap = tail.wrapping_sub(at as u64);
    }

    /// Returns `true` if the receiver has read everything, according to the last accepted position.
    pub(crate) fn is_read(&self) -> bool {
        self.position() == self.tail()
    }

    /// Returns the number of unread bytes, headers included, according to the last accepted
    /// position.
    pub(crate) fn unread_bytes(&self) -> u64 {
        self.tail() - self.position()
    }

    /// Sets whether the messages that follow are stamped.
    pub(crate) fn set_stamps(&mut self, stamps: bool) {
        self.stamps = stamps;
    }

    /// Returns the number of bytes before the header of the next message.
    fn stamp_size(&self) -> usize {
        if self.stamps { HEADER } else { 0 }
    }

    /// Returns `true` if a message of `length` bytes fits into the space that is known to be free.
    pub(crate) fn fits(&self, length: usize) -> bool {
        self.fits_unstamped(length + self.stamp_size())
    }

    /// Does the work of `fits` for a message without a stamp.
    #[inline(always)]
    pub(crate) fn fits_unstamped(&self, length: usize) -> bool {
        // The record needs space for one more header because the following header must be zeroed.
        self.at + size_of_message(length) + HEADER <= self.limit
    }

    /// Returns the offset of the next message's payload. The offset is valid once the message fits.
    pub(crate) fn payload_at(&self) -> usize {
        self.at + self.stamp_size() + HEADER
    }

    /// Returns the memory to which [`LaneWriter::payload_at`] refers.
    pub(crate) fn region(&self) -> &R {
        &self.newest.region
    }

    /// Returns the slot of the next message.
    pub(crate) fn place(&self) -> RecordSlot {
        RecordSlot { sequence: self.sequence, at: self.at, stamps: self.stamps }
    }

    /// Appends a message that fits.
    pub(crate) fn push(&mut self, message: &[u8]) {
        assert!(self.fits(message.len()));
        self.copy_in(self.payload_at(), message);
        self.publish(self.place(), message.len());
    }

    /// Appends a message that fits, without a stamp.
    #[inline(always)]
    pub(crate) fn push_unstamped(&mut self, message: &[u8]) {
        // The check costs nothing if the caller has just made it, because the comparison is the
        // same.
        assert!(self.fits_unstamped(message.len()));
        self.copy_in(self.at + HEADER, message);
        self.append(message.len());
    }

    /// Copies a message to offset `at` of the newest chunk.
    #[inline(always)]
    fn copy_in(&mut self, at: usize, message: &[u8]) {
        if message.len() < LARGE {
            return self.newest.region.copy_in(at, message);
        }
        let lap = ((self.tail() - self.position) as usize).max(self.ring_end);
        self.stores.copy_large_in(&self.newest.region, at, message, lap);
    }

    /// Publishes the payload of `length` bytes that was written at `place` as a message.
    pub(crate) fn publish(&mut self, place: RecordSlot, length: usize) {
        // Any other slot has no payload, or lies outside the chunk.
        assert!(
            (place.sequence, place.at) == (self.sequence, self.at) && self.fits_unstamped(length),
            "a lane continued under a reservation"
        );
        if place.stamps {
            self.append_stamped(length);
        } else {
            self.append(length);
        }
    }

    /// Publishes the payload of `length` bytes behind the space of a stamp as a stamped message.
    ///
    /// The stamp is read after everything that this thread has seen, and before the message is
    /// visible to any other: see [`clock`].
    fn append_stamped(&mut self, length: usize) {
        let size = HEADER + size_of_message(length);
        assert!(self.fits_unstamped(length + HEADER), "a stamped message has no space");
        let newest = &self.newest.region;
        newest.word(self.at + size).store(NOTHING, Ordering::Relaxed);
        let message = RecordHeader::Message(length).word();
        newest.word(self.at + HEADER).store(message, Ordering::Relaxed);
        let now = clock::now();
        let stamp = RecordHeader::Stamp(now & ((1 << STAMP_BITS) - 1)).word();
        // SYNC publish: pairs with the load in `LaneReader::look`.
        newest.word(self.at).store(stamp, Ordering::Release);
        self.at += size;
        clock::pass(now);
    }

    /// Publishes the payload of `length` bytes behind the next header as a message.
    #[inline(always)]
    fn append(&mut self, length: usize) {
        let size = size_of_message(length);
        let newest = &self.newest.region;
        newest.word(self.at + size).store(NOTHING, Ordering::Relaxed);
        // SYNC publish: pairs with the load in `LaneReader::look`.
        newest.word(self.at).store(RecordHeader::Message(length).word(), Ordering::Release);
        self.at += size;
    }

    /// Accepts the receiver's `position`, and frees the chunks before it.
    ///
    /// # Errors
    /// Returns an error if the receiver cannot have read up to this position.
    pub(crate) fn believe(&mut self, position: u64) -> Result<(), InvalidPosition> {
        let possible = self.position..=self.tail();
        if !possible.contains(&position) || !position.is_multiple_of(HEADER as u64) {
            return Err(InvalidPosition { from: self.position, to: self.tail(), found: position });
        }
        self.position = position;
        self.drop_until(position);
        if position >= self.base() {
            self.lent = 0;
        }
        Ok(())
    }

    /// Looks for space for a message of `length` bytes in the part that is known to be read. Writes
    /// padding if the message must go to the start of the ring.
    pub(crate) fn make_space(&mut self, length: usize) -> FreeSpace {
        let size = size_of_message(length) + self.stamp_size();
        let whole = self.ring_end - RING_AT;
        // A lane that is not stamped may be when it is handed over.
        if length > longest_message(self.ring_end) {
            return FreeSpace::Never;
        }
        let free = whole - (self.tail() - self.position().max(self.newest.base)) as usize;
        let to_end = self.ring_end - self.at;
        if size + HEADER <= to_end {
            self.limit = self.at + free.min(to_end);
        } else if to_end + size + HEADER <= free {
            self.pad(to_end);
            self.limit = RING_AT + free - to_end;
        } else {
            self.limit = self.at;
        }
        if self.fits(length) { FreeSpace::Here } else { FreeSpace::Later }
    }

    /// Fills the ring to its end with padding and continues at its start, whose first word is free.
    fn pad(&mut self, to_end: usize) {
        let newest = &self.newest.region;
        newest.word(RING_AT).store(NOTHING, Ordering::Relaxed);
        // SYNC publish: pairs with the load in `LaneReader::look`.
        newest
            .word(self.at)
            .store(RecordHeader::Padding(to_end - HEADER).word(), Ordering::Release);
        self.continue_at(RING_AT, self.tail() + to_end as u64);
    }

    /// Continues in `region`, which is `1 << log2` bytes of zeroed memory that was already passed
    /// to the receiver.
    pub(crate) fn go_on_in(&mut self, region: R, log2: u32) {
        let (at, tail) = (self.at, self.tail() + HEADER as u64);
        self.continue_at(RING_AT, tail);
        label(&region, log2, self.sequence, tail);
        self.sequence += 1;
        self.ring_end = 1 << log2;
        self.limit = self.ring_end;
        let newest = ChunkRef { region, log2, base: tail, end: None };
        let mut before = std::mem::replace(&mut self.newest, newest);
        before.end = Some(tail);
        // Space for one header is always kept free for this store.
        // SYNC publish: pairs with the load in `LaneReader::look`.
        before.region.word(at).store(RecordHeader::Next(log2).word(), Ordering::Release);
        self.older.push_back(before);
    }

    /// Drops all chunks except the newest. All records in them must have been read.
    pub(crate) fn forget_old(&mut self) {
        self.lent += self.older.drain(..).map(|link| 1_u64 << link.log2).sum::<u64>();
    }

    /// Removes and returns, in order, the messages that the receiver did not read. The receiver's
    /// last position stays valid, since the receiver's page still shows it.
    pub(crate) fn take_back(&mut self) -> Vec<Vec<u8>> {
        let mut unread = Vec::new();
        self.visit_unread(|_, region, at, length| {
            let mut message = Vec::new();
            region.copy_out(at, length, &mut message);
            unread.push(message);
            true
        });
        self.take_rest();
        unread
    }

    /// Removes and returns the first message that the receiver did not read. The others stay, with
    /// their stamps.
    pub(crate) fn take_back_first(&mut self) -> Option<Vec<u8>> {
        let mut first: Option<(Vec<u8>, u64)> = None;
        let mut is_last = true;
        self.visit_unread(|begin, region, at, length| {
            is_last = first.is_none();
            if is_last {
                let mut message = Vec::new();
                region.copy_out(at, length, &mut message);
                first = Some((message, begin + size_of_message(length) as u64));
            }
            is_last
        });
        match first {
            Some((message, end)) if !is_last => {
                self.taken_back = end;
                self.drop_until(end);
                Some(message)
            }
            first => {
                self.take_rest();
                first.map(|(message, _)| message)
            }
        }
    }

    /// Continues after everything in the lane.
    fn take_rest(&mut self) {
        self.taken_back = self.tail();
        self.forget_old();
        self.lent = 0;
    }

    /// Drops the chunks whose last record is before `position`.
    fn drop_until(&mut self, position: u64) {
        while self.older.front().is_some_and(|link| link.end.is_some_and(|end| end <= position)) {
            self.older.pop_front();
        }
    }

    /// Returns the number of unread messages whose records begin before `position`.
    pub(crate) fn unread_before(&self, position: u64) -> usize {
        let mut count = 0;
        self.visit_unread(|begin, _, _, _| {
            count += usize::from(begin < position);
            begin < position
        });
        count
    }

    /// Returns `true` if the first message after the last accepted position was taken back.
    pub(crate) fn is_first_taken_back(&self) -> bool {
        self.taken_back > self.position
    }

    /// Returns the position of the first unread message's record.
    pub(crate) fn first_unread(&self) -> Option<u64> {
        let mut first = None;
        self.visit_unread(|begin, _, _, _| {
            first = Some(begin);
            false
        });
        first
    }

    /// Calls `each` with the unread messages in order, until it returns `false`: the position of
    /// the record, the chunk, and offset and length of the payload.
    ///
    /// The walk reads memory of this process, but begins at a position that a hostile receiver may
    /// choose, for example in the middle of a message, where there is no header. The walk therefore
    /// stops before it would leave the chunk's records.
    fn visit_unread(&self, mut each: impl FnMut(u64, &R, usize, usize) -> bool) {
        let mut position = self.position();
        let mut links = self.older.iter().chain(std::iter::once(&self.newest));
        let Some(mut link) = links.next() else { return };
        while position < self.tail() {
            let at = RING_AT + ((position - link.base) % ring(1 << link.log2) as u64) as usize;
            let word = link.region.word(at).load(Ordering::Relaxed);
            let Some(header) = RecordHeader::claimed(word) else { break };
            let size = match header {
                RecordHeader::Message(length) => size_of_message(length),
                RecordHeader::Padding(length) => HEADER + length,
                RecordHeader::Next(_) | RecordHeader::Stamp(_) => HEADER,
            };
            position += size as u64;
            if position > link.end.unwrap_or(self.tail()) || at + size > 1 << link.log2 {
                break;
            }
            match header {
                RecordHeader::Message(length) => {
                    if !each(position - size as u64, &link.region, at + HEADER, length) {
                        break;
                    }
                }
                RecordHeader::Padding(_) | RecordHeader::Stamp(_) => {}
                RecordHeader::Next(_) if link.end == Some(position) => {
                    let Some(next) = links.next() else { break };
                    link = next;
                }
                RecordHeader::Next(_) => break,
            }
        }
    }
}

/// Writes the first words of a new chunk, before another process can read them.
fn label<R: LaneMemory>(region: &R, log2: u32, sequence: u64, base: u64) {
    region.word(MAGIC_AT).store(CHUNK_MAGIC, Ordering::Relaxed);
    let halves = u64::from(VERSION) | u64::from(log2) << 32;
    region.word(VERSION_AT).store(halves, Ordering::Relaxed);
    region.word(SEQUENCE_AT).store(sequence, Ordering::Relaxed);
    region.word(BASE_AT).store(base, Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lane::page::MIN_LOG2;
    use crate::lane::region::models::ModelRegion;

    fn lane() -> LaneWriter<ModelRegion> {
        LaneWriter::new(ModelRegion::new(1 << MIN_LOG2), MIN_LOG2)
    }

    fn go_on(writer: &mut LaneWriter<ModelRegion>, log2: u32) {
        writer.go_on_in(ModelRegion::new(1 << log2), log2);
    }

    /// Regression test: a hostile peer may choose the words of a message, for example if the sender
    /// echoes what it receives. The peer also chooses the position at which the sender begins to
    /// search for unread messages. A `next` in the middle of a message led the search into the
    /// following chunk too early, at a position before that chunk's first record. The subtraction
    /// underflowed, which is a panic if overflow checks are enabled.
    #[test]
    fn next_header_inside_message_is_not_followed() {
        let mut writer = lane();
        let next = RecordHeader::Next(MIN_LOG2).word().to_ne_bytes();
        writer.push(&[next, next].concat());
        go_on(&mut writer, MIN_LOG2 + 1);
        writer.push(b"behind it");
        writer.believe(HEADER as u64).expect("between beginning and tail");
        assert_eq!(writer.take_back(), Vec::<Vec<u8>>::new());
        assert!(writer.is_read());
    }

    /// Regression test: a lane that returned its large chunk dropped the chunk before the receiver
    /// had read the `next` in it. If the receiver died at that point, its position was before the
    /// chain's first record. A successor then refused the handover, and `take_back` underflowed.
    #[test]
    fn receiver_dead_before_following_returned_chunk_loses_nothing() {
        let mut writer = lane();
        go_on(&mut writer, MIN_LOG2 + 1);
        writer.push(b"read");
        let read = writer.position() + writer.unread_bytes();
        writer.believe(read).expect("all of it");
        assert!(writer.is_read());
        go_on(&mut writer, MIN_LOG2);
        writer.forget_old();
        writer.push(b"unread");
        // The dead receiver's page still shows this position.
        writer.believe(read).expect("unchanged");
        assert_eq!(writer.position(), writer.base(), "a successor begins there");
        assert_eq!(writer.unread_bytes(), 16);
        assert_eq!(writer.take_back(), [b"unread"]);
    }

    /// Regression test: messages that were taken back counted as read. The dead receiver's page,
    /// which no process changes any more, showed a position before these messages, and the sender
    /// treated that position as invalid. Each later call returned EPROTO, and no successor could
    /// receive the lane.
    #[test]
    fn position_before_taken_back_messages_stays_valid() {
        let mut writer = lane();
        writer.push(b"read");
        writer.push(b"unread");
        writer.believe(16).expect("the first");
        assert_eq!(writer.take_back(), [b"unread"]);
        writer.believe(16).expect("the dead receiver's page still shows it");
        assert!(writer.is_read() && writer.unread_bytes() == 0);
        assert_eq!(writer.take_back(), Vec::<Vec<u8>>::new());
        assert_eq!(writer.make_space(4), FreeSpace::Here);
        writer.push(b"next");
        writer.believe(16).expect("as before");
        assert_eq!((writer.position(), writer.unread_bytes()), (32, 16));
        writer.believe(8).expect_err("before the last accepted position");
        assert_eq!(writer.take_back(), [b"next"]);
    }

    /// Regression test: a chunk was returned between `reserve` and `commit`. A message written into
    /// the large chunk was then published in the small chunk, whose memory ended before the
    /// following header.
    #[test]
    #[should_panic(expected = "a lane continued under a reservation")]
    fn reservation_in_old_chunk_is_not_published_in_new_one() {
        let mut writer = lane();
        go_on(&mut writer, MIN_LOG2 + 4);
        let place = writer.place();
        go_on(&mut writer, MIN_LOG2);
        writer.publish(place, 20_000);
    }

    #[test]
    fn padding_header_inside_message_is_not_followed() {
        let mut writer = lane();
        writer.push(&RecordHeader::Padding(0xffff_fff8).word().to_ne_bytes());
        writer.push(b"behind it");
        writer.believe(HEADER as u64).expect("between beginning and tail");
        assert_eq!(writer.take_back(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn take_back_returns_messages_of_all_chunks() {
        let mut writer = lane();
        for (log2, message) in (MIN_LOG2 + 1..).zip([&b"one"[..], b"two", b"three"]) {
            writer.push(message);
            go_on(&mut writer, log2);
        }
        writer.push(b"");
        assert_eq!(writer.take_back(), [&b"one"[..], b"two", b"three", b""]);
    }
}

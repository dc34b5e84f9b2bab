//! A lane at its receiver: [`InboundLane`].
//!
//! An [`InboundLane`] finds messages, acknowledges them, processes the sender's control messages,
//! and grants memory or requests it back. Everything that the sender wrote is an untrusted value; a
//! violation is a [`ProtocolError`], after which the caller removes the lane. Neighbours:
//! [`super::lanes`] holds all lanes of a mailbox, [`super::handshake`] makes them. Nothing here
//! waits.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;

use self::held::HeldRecords;
use self::memory::{MAX_REGROWTHS, bytes_of};
use super::message::{Message, SenderId};
use crate::error::{Error, Peer};
use crate::lane::control::Control;
use crate::lane::mapped::half_of_peer;
use crate::lane::page::{CLOSED_AT, MAX_LOG2, MIN_LOG2, REMOTE_REFUSED, UNGRANTED, WAITING_AT};
use crate::lane::reader::ProtocolError;
use crate::lane::region::LaneMemory;
use crate::lane::{LaneReader, Peeked};
use crate::life::Watch;
use crate::mailbox::wire::{self, ControlMessage, FenceMode, MOST_CHUNKS, most_chunks_passed};
use crate::sync::{Ordering, fence};
use crate::sys::fork::Guard;
use crate::sys::membarrier;
use crate::sys::region::PeerRegion;
use crate::sys::socket::{self, PassedMessage, PeerSocket};

mod held;
mod memory;

/// Result of a check of one lane, or of all lanes of a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneScan<T> {
    /// A message.
    Message(T),
    /// There is no message, and a sender rings when it sends a message. Or the lane waits for a
    /// resource that this process lacks, and the descriptor reports when to retry.
    Nothing,
    /// Not everything was checked, and no sender rings for the rest: the caller must check again.
    Again,
}

impl<T> LaneScan<T> {
    pub(super) fn message(self) -> Option<T> {
        if let Self::Message(found) = self { Some(found) } else { None }
    }
}

/// A lane, with everything that the receiver holds for it. What each message needs comes first
/// and together, so that the other fields do not spread it over more cache lines.
#[repr(C, align(64))]
pub(super) struct InboundLane {
    pub(super) reader: LaneReader<PeerRegion>,
    pub(super) control: Control,
    /// The reader's position when free space was last announced to the sender.
    pub(super) notified_at: u64,
    /// Number of messages found, which distinguishes busy lanes from idle ones.
    pub(super) found: u32,
    symmetric: bool,
    pub(super) id: SenderId,
    pub(super) peer: Peer,
    /// `found` at the last visit of [`super::lanes::Lanes::settle`].
    pub(super) found_before: u32,
    /// `true` if the connection hung up or the process ended: the lane is removed once it is read.
    pub(super) ended: bool,
    /// Chunks that were passed but not yet announced, oldest first.
    pub(super) passed: VecDeque<(PeerRegion, u32)>,
    /// `true` if the last call that read control messages left some in the queue.
    pub(super) more_notes: bool,
    /// The shortage of descriptors or memory because of which a message stays queued.
    unreceived: Option<Box<Error>>,
    /// `true` if the epoll set no longer reports the socket, because that message stays queued.
    pub(super) put_off: bool,
    /// The violation found in a chunk or in its control message.
    broken: Option<ProtocolError>,
    /// Total chunk size, in bytes, that the sender has requested and cannot have yet; otherwise 0.
    pub(super) wants: u64,
    /// Total chunk size, in bytes, that a message needs which stays queued; otherwise 0.
    pub(super) owed: u64,
    /// Time since which the lane has been empty, with a chunk larger than its first.
    pub(super) idle_since: Option<Instant>,
    /// `true` if the sender has returned memory and the lane has not grown since.
    is_shrunk: bool,
    /// Number of times, at most [`MAX_REGROWTHS`], that the lane has grown again after it returned
    /// memory.
    regrowths: u32,
    /// `true` if the sender was asked to return memory.
    requested_back: bool,
    /// `true` if the sender has reported the return, which is complete once the receiver reaches
    /// the newest chunk.
    returned: bool,
    pub(super) first_size: usize,
    /// Bytes that the sender may have without a request, in addition to its chunk.
    spare: u64,
    /// Bytes of chunks that the sender may have.
    pub(super) granted: u64,
    /// The part of `granted` that exceeds the caps.
    pub(super) excess: u64,
    /// Maximum number of bytes that the sender accepts.
    pub(super) cap: u64,
    pub(super) socket: PeerSocket,
    pub(super) doorbell: PeerSocket,
    /// [`super::listener::Listener::wait_number`] when the doorbell was last drained.
    pub(super) drained_at: u64,
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) watch: Watch,
    /// `true` while the control page shows that the program may have the first unread message.
    has_turn: bool,
    /// The records before a position, and the number of earlier owners that may have received them.
    doubt: (u64, u32),
    /// The position of the message that the program has put back.
    requeued_at: Option<u64>,
    /// In causal order, the position before which messages may belong to the last scan.
    pub(super) scan_end: u64,
    /// Maximum of `scan_end`, which grows when the lane continues in another chunk.
    scan_limit: u64,
    /// In causal order, the position of the last message whose stamp was compared with the clock.
    pub(super) late_at: Option<u64>,
    /// The messages that are read and not acknowledged.
    held: HeldRecords,
}

/// Initial state of a lane.
pub(super) struct LaneInit {
    pub(super) position: u64,
    /// Size in bytes of the chunk to which the lane returns when it is idle.
    pub(super) returns_to: usize,
    pub(super) reader: LaneReader<PeerRegion>,
    pub(super) passed: VecDeque<(PeerRegion, u32)>,
    pub(super) control: Control,
    pub(super) fences: FenceMode,
    pub(super) granted: u64,
    /// The part of `granted` that exceeds the caps.
    pub(super) excess: u64,
    pub(super) cap: u64,
    pub(super) doorbell: PeerSocket,
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) watch: Watch,
    pub(super) peer: Peer,
    pub(super) id: SenderId,
    /// The records before a position, and the number of earlier owners that may have received them.
    pub(super) doubt: (u64, u32),
}

impl InboundLane {
    pub(super) fn new(beginning: LaneInit, socket: PeerSocket) -> Self {
        let first_size = beginning.returns_to;
        let brought = beginning.reader.size() as u64 + bytes_of(&beginning.passed);
        Self {
            reader: beginning.reader,
            control: beginning.control,
            notified_at: beginning.position,
            symmetric: beginning.fences == FenceMode::Symmetric,
            found: 0,
            found_before: 0,
            ended: false,
            passed: beginning.passed,
            more_notes: false,
            unreceived: None,
            put_off: false,
            broken: None,
            wants: 0,
            owed: 0,
            idle_since: None,
            is_shrunk: false,
            regrowths: 0,
            requested_back: false,
            returned: false,
            first_size,
            spare: beginning.granted.saturating_sub(brought),
            granted: beginning.granted,
            excess: beginning.excess,
            cap: beginning.cap,
            socket,
            doorbell: beginning.doorbell,
            drained_at: 0,
            pidfd: beginning.pidfd,
            watch: beginning.watch,
            peer: beginning.peer,
            id: beginning.id,
            has_turn: false,
            doubt: beginning.doubt,
            requeued_at: None,
            scan_end: 0,
            scan_limit: 0,
            late_at: None,
            held: HeldRecords::default(),
        }
    }

    pub(super) fn is_symmetric(&self) -> bool {
        self.symmetric
    }

    /// Returns `true` if a control message waits for descriptors or memory of this process, or for
    /// a grant.
    pub(super) fn is_short(&self) -> bool {
        self.unreceived.is_some() || self.owed > 0
    }

    /// Returns the shortage because of which a control message waits.
    pub(super) fn lack(&self) -> Option<&Error> {
        self.unreceived.as_deref()
    }

    /// Returns the length of the next message, if it is complete, or within `looks` further checks,
    /// and no other work comes before it.
    #[inline(always)]
    pub(super) fn message(&mut self, looks: u32) -> Option<usize> {
        let looked = self.reader.look_within::<true>(looks, self.found);
        let Ok(Peeked::Message(length)) = looked else { return None };
        self.found = self.found.wrapping_add(1);
        Some(length)
    }

    /// Checks the next record, across at most one change of chunks.
    ///
    /// # Errors
    /// The sender broke the protocol.
    #[inline(always)]
    pub(super) fn look(&mut self) -> Result<LaneScan<usize>, ProtocolError> {
        match self.reader.look()? {
            Peeked::Message(length) => {
                self.found = self.found.wrapping_add(1);
                Ok(LaneScan::Message(length))
            }
            Peeked::Nothing => {
                if self.reader.position() != self.notified_at {
                    self.notify_space();
                }
                Ok(LaneScan::Nothing)
            }
            Peeked::Next(log2) => self.follow(log2),
        }
    }

    /// Returns `true` if there is no record. Used for lanes that are probably idle.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.reader.is_empty()
    }

    /// Returns `true` if there is no record, the sender may send more, and it knows all free space.
    #[inline(always)]
    pub(super) fn is_quiet(&self) -> bool {
        self.is_empty() && !self.ended && self.reader.position() == self.notified_at
    }

    /// Returns `true` if the lane is empty and has no held message, and its sender has not answered
    /// a request to return memory.
    pub(super) fn is_unresponsive(&self) -> bool {
        let needs_more = self.wants > 0 || self.owed > 0;
        self.requested_back && !self.returned && !needs_more && self.is_empty() && !self.holds()
    }

    /// Continues in the chunk that `next` announced; the sender passed the chunk earlier.
    #[cold]
    fn follow(&mut self, log2: u32) -> Result<LaneScan<usize>, ProtocolError> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let followed = self.follow_sound(log2);
        // The violation is stored, because a second check would not find the invalid message again.
        self.broken = followed.err();
        followed
    }

    fn follow_sound(&mut self, log2: u32) -> Result<LaneScan<usize>, ProtocolError> {
        if self.passed.is_empty() {
            self.read_notes()?;
        }
        let Some((region, passed)) = self.passed.pop_front() else {
            // The chunk may be queued after more control messages than one call reads, or this
            // process may lack the resources to receive it.
            return match (self.more_notes, self.is_short()) {
                (true, true) => Ok(LaneScan::Nothing),
                (true, false) => Ok(LaneScan::Again),
                (false, _) => Err(ProtocolError(
                    "a record continues in a next chunk, but no chunk was passed",
                )),
            };
        };
        if passed != log2 {
            return Err(ProtocolError(
                "a record names another size for the next chunk than the passed one has",
            ));
        }
        drop(self.reader.follow(region, log2));
        self.scan_end = self.scan_limit.min(self.chunk_end());
        if self.reader.size() > self.first_size && std::mem::take(&mut self.is_shrunk) {
            self.regrowths = (self.regrowths + 1).min(MAX_REGROWTHS);
        }
        self.first_size = self.first_size.min(self.reader.size());
        self.idle_since = None;
        // All earlier messages are acknowledged or held, because `look` is called only in that
        // state. Storing the position frees the old chunk, unless it has a held message.
        self.control.acknowledge(self.acked());
        self.lower_grant();
        match self.reader.look()? {
            Peeked::Message(length) => {
                self.found = self.found.wrapping_add(1);
                Ok(LaneScan::Message(length))
            }
            // Each check follows one chunk, so a chain of empty chunks takes several. If this chunk
            // is empty, the next check announces the position to the sender.
            Peeked::Nothing | Peeked::Next(_) => Ok(LaneScan::Again),
        }
    }

    /// Returns `true` if the sender's process died before it closed the sender. Called once the
    /// lane has ended.
    pub(super) fn died(&self) -> bool {
        // SYNC sender-closed: pairs with the store in `Sender::drop`, which precedes the close of
        // the socket. The kernel marks the liveness word of a process before it closes the
        // descriptors.
        let closed = half_of_peer(self.reader.region(), CLOSED_AT).load(Ordering::Acquire);
        closed == 0 && !self.watch.is_alive()
    }

    /// Announces that the program may get the message that was just found.
    #[inline]
    pub(super) fn begin_turn(&mut self) {
        if !self.has_turn {
            self.has_turn = true;
            self.control.set_turn(true);
        }
    }

    /// Announces that the program has had no message that is unread. Called when all that it was
    /// given is acknowledged or put back.
    #[inline]
    pub(super) fn end_turn(&mut self) {
        if self.has_turn && self.requeued_at != Some(self.reader.position()) {
            self.has_turn = false;
            self.control.set_turn(false);
        }
    }

    /// Records that the program has put the message that was just found back.
    pub(super) fn requeue(&mut self) {
        self.requeued_at = Some(self.reader.position());
    }

    /// Returns the number of owners that may have received the message that was just found before.
    #[inline]
    pub(super) fn redelivered(&self) -> u32 {
        let position = self.reader.position();
        let (end, owners) = self.doubt;
        let earlier = if position < end { owners } else { 0 };
        earlier.saturating_add((self.requeued_at == Some(position)).into())
    }

    /// Copies the message that was just found.
    #[inline(always)]
    pub(super) fn copy(&self, length: usize, into: &mut Vec<u8>) {
        self.reader.region().copy_out(self.reader.payload_at(), length, into);
    }

    /// Returns the address of the message that was just found.
    pub(super) fn payload(&self) -> std::ptr::NonNull<u8> {
        self.reader.region().place(self.reader.payload_at())
    }

    /// Acknowledges the message that was just found.
    #[inline(always)]
    pub(super) fn ack(&mut self, length: usize) {
        self.reader.advance(length);
        self.acknowledge_position();
        if self.reader.position() - self.notified_at >= (self.reader.size() / 4) as u64 {
            self.notify_space();
        }
    }

    /// Passes up to `most` queued messages to `each`, and acknowledges each when it returns.
    /// Returns their number.
    #[inline(always)]
    pub(super) fn drain(
        &mut self,
        most: usize,
        copied: &mut Vec<u8>,
        guard: Guard,
        each: &mut impl FnMut(&Message<'_>),
    ) -> usize {
        for count in 0..most {
            let Some(length) = self.message(0) else { return count };
            copied.clear();
            self.copy(length, copied);
            each(&Message {
                bytes: &mut *copied,
                sender: self.id,
                peer: self.peer,
                redelivered: 0,
            });
            // In a child that `each` forked, the page for acknowledgements is not mapped.
            if guard.is_forked() {
                return count + 1;
            }
            self.ack(length);
        }
        most
    }

    #[inline(always)]
    pub(super) fn acknowledge_position(&mut self) {
        self.control.acknowledge(self.reader.position());
    }

    /// Announces the free space, and wakes the sender if it waits for space or acknowledgements.
    #[cold]
    pub(super) fn notify_space(&mut self) {
        self.notified_at = self.reader.position();
        // The exact position, which does not include skipped padding yet, is stored first:
        // otherwise a sender that has seen the free space would find a position before it.
        let acked = self.acked();
        self.held.announced_at = acked;
        self.control.acknowledge(acked);
        self.control.make_space(acked);
        if self.sender_waits() {
            // A full queue already contains a `SPACE`, and a sender that has ended needs no
            // notification.
            let _ = socket::send(&self.socket, &wire::write(ControlMessage::Space), &[]);
        }
    }

    /// Wakes the sender if it waits and the position has advanced. [`InboundLane::ack`] collects
    /// several acknowledgements, since each wake-up costs time; without this call, a receiver that
    /// works long on each message would delay the sender.
    #[inline]
    pub(super) fn notify_if_waiting(&mut self) {
        if self.reader.position() != self.notified_at && self.sender_waits() {
            self.notify_space();
        }
    }

    /// Returns `true` if the sender waits. Called after the position was stored.
    #[inline]
    fn sender_waits(&self) -> bool {
        // This protocol mirrors the doorbell's: this end has stored its position and loads
        // `waiting`; the sender stores `waiting`, then loads the position once more.
        // SYNC space-waiting: pairs with the barrier in `AcceptedLane::heavy_fence`.
        if self.symmetric {
            fence(Ordering::SeqCst);
        } else {
            membarrier::light();
        }
        half_of_peer(self.reader.region(), WAITING_AT).load(Ordering::Relaxed) != 0
    }

    /// Processes a bounded number of the sender's control messages on the socket, so that one
    /// sender cannot block the receiver.
    ///
    /// # Errors
    /// A message that no honest sender sends.
    pub(super) fn read_notes(&mut self) -> Result<(), ProtocolError> {
        let mut bytes = [0; wire::LONGEST];
        self.more_notes = true;
        self.unreceived = None;
        self.owed = 0;
        for _ in 0..2 * MOST_CHUNKS {
            let received = match socket::receive(&self.socket, &mut bytes) {
                Ok(Some(received)) => received,
                Ok(None) => {
                    self.more_notes = false;
                    return Ok(());
                }
                // This process is out of memory: the message stays queued and is received later.
                Err(lack) => {
                    self.unreceived = Some(Box::new(lack));
                    return Ok(());
                }
            };
            if received.hung_up {
                self.more_notes = false;
                self.ended = true;
                return Ok(());
            }
            if received.has_descriptors {
                if self.lacks_grant_for(&bytes[..received.len]) {
                    return Ok(());
                }
                let left = self.chunk_bytes_left();
                let expected = move |bytes: &[u8]| wire::expected(bytes, left);
                match socket::receive_passed(&self.socket, wire::LONGEST, false, expected) {
                    Ok(Some(passed)) => self.pass(passed)?,
                    Ok(None) => {}
                    // The message stays queued until this process has the resources to receive it.
                    Err(lack) => {
                        self.unreceived = Some(Box::new(lack));
                        return Ok(());
                    }
                }
                continue;
            }
            match wire::read_received(&bytes[..received.len], received.oversize) {
                Ok(ControlMessage::Want(bytes)) => {
                    self.cap = self.cap.max(bytes);
                    self.wants = bytes;
                }
                Ok(ControlMessage::Returned) if self.requested_back && !self.returned => {
                    self.returned = true;
                    self.wants = 0;
                    self.lower_grant();
                }
                _ => return Err(STRANGE_NOTE),
            }
        }
        Ok(())
    }

    /// Returns `true` if the next message passes a chunk that needs no grant, but exceeds the bytes
    /// granted to the lane: the mailbox lends them before the message is received.
    fn lacks_grant_for(&mut self, bytes: &[u8]) -> bool {
        let Ok(ControlMessage::Chunk(log2 @ MIN_LOG2..=MAX_LOG2, _)) = wire::read(bytes) else {
            return false;
        };
        let total = self.chunk_bytes() + (1 << log2);
        if total <= self.granted || total > UNGRANTED {
            return false;
        }
        self.owed = total;
        true
    }

    /// Adds the chunk that a control message passed.
    fn pass(&mut self, passed: PassedMessage) -> Result<(), ProtocolError> {
        let note = wire::read_received(&passed.bytes, passed.oversize);
        let (Ok(ControlMessage::Chunk(log2, _)), 1) = (note, passed.count) else {
            return Err(STRANGE_NOTE);
        };
        let together = bytes_of(&self.passed) + chunk_size(log2)? as u64;
        if self.passed.len() >= most_chunks_passed(together) {
            return Err(ProtocolError(
                "more chunks than their size allows were passed and not used",
            ));
        }
        if chunk_size(log2)? as u64 > self.chunk_bytes_left() {
            return Err(ProtocolError("a chunk is larger than the bytes that were granted"));
        }
        let mut memory = passed.memory.map_err(|unfit| ProtocolError(unfit.what()))?;
        self.passed.push_back((memory.pop().ok_or(STRANGE_NOTE)?, log2));
        Ok(())
    }

    /// Announces, if the receiver is a relay, that the sender broke the protocol: otherwise the
    /// sender would hand the lane over to the same relay again.
    pub(super) fn end_broken(&mut self) {
        if self.control.is_relay() {
            self.control.end_remotely(REMOTE_REFUSED, libc::EPROTO);
        }
    }

    /// Announces that the receiver accepts no more messages.
    pub(super) fn close(&mut self) {
        self.control.close();
        self.wake_sender();
    }

    /// Wakes a sender that waits, after its control page has changed.
    pub(super) fn wake_sender(&self) {
        let _ = socket::send(&self.socket, &wire::write(ControlMessage::Space), &[]);
    }
}

const STRANGE_NOTE: ProtocolError =
    ProtocolError("expected CHUNK, WANT or RETURNED in turn, found another message");

/// Returns the size in bytes of a chunk that a sender announced.
///
/// # Errors
/// The size is invalid.
pub(super) fn chunk_size(log2: u32) -> Result<usize, ProtocolError> {
    let possible = (MIN_LOG2..=MAX_LOG2).contains(&log2);
    possible
        .then(|| 1 << log2)
        .ok_or(ProtocolError("a chunk's size is not a power of two from 4 KiB to 1 GiB"))
}

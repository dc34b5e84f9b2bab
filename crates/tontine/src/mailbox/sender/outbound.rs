//! The sender's end of one lane: [`OutboundLane`].
//!
//! An [`OutboundLane`] checks the receiver, finds space, publishes messages, and hands the lane
//! over. It never waits. A [`Connection`] is the state of the connection, with its transitions; a
//! [`Growth`] manages the size of the lane.
//!
//! Neighbours: [`super`] contains the public calls, [`super::wait_limit`] the waiting,
//! [`crate::mailbox::receiver::inbound`] the receiver's end.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use super::accepted_lane::AcceptedLane;
use super::connection::{Connection, PendingLane};
use super::growth::{Growth, GrowthStep};
use super::owner_wait::OwnerWait;
use super::stream::StreamSpeed;
use super::succession::{self, Introduction, SuccessorSearch};
use crate::error::{Error, Peer, Result};
use crate::lane::LaneWriter;
use crate::lane::mapped::half_of_own;
use crate::lane::page::{MAX_LOG2, UNGRANTED, longest_message};
use crate::lane::writer::RecordSlot;
use crate::life::Life;
use crate::mailbox::address::Address;
use crate::mailbox::settings::{OnDeath, Settings};
use crate::mailbox::wire::{self, ControlMessage};
use crate::sync::Ordering;
use crate::sys::fork::Guard;
use crate::sys::region::OwnRegion;
use crate::sys::socket::{self, PeerSocket, SendResult};
use crate::sys::{pidfd, quarantine};

/// Maximum length in bytes of a message in the largest chunk.
const LONGEST_OF_ALL: usize = longest_message(1 << MAX_LOG2);

/// Maximum number of control messages processed per call.
const NOTES_AT_ONCE: usize = 32;

/// The sender's end of one lane.
pub(super) struct OutboundLane {
    pub(super) writer: LaneWriter<OwnRegion>,
    guard: Guard,
    pub(super) socket: PeerSocket,
    pub(super) connection: Connection,
    pub(super) growth: Growth,
    /// A pointer keeps the fields of all sends close.
    pub(super) stream: Box<StreamSpeed>,
    pub(super) succession: SuccessorSearch,
    pub(super) options: Settings,
    pub(super) life: &'static Life,
}

impl fmt::Debug for OutboundLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundLane")
            .field("address", &self.address())
            .field("unread_bytes", &self.writer.unread_bytes())
            .finish_non_exhaustive()
    }
}

/// Opening and queries.
impl OutboundLane {
    /// Opens a lane to the owner of `address`.
    ///
    /// # Errors
    /// The errors of [`Sender::connect`](super::Sender::connect).
    pub(super) fn connect(address: Address, options: Settings) -> Result<Self> {
        let address = address.into_absolute()?;
        let mut wait =
            options.wait_for_owner.map(|time| OwnerWait::new(time, options.interruptible));
        loop {
            match (Self::connect_now(&address, &options), &mut wait) {
                (Err(error @ Error::NoMailbox { .. }), Some(wait)) => wait.wait(&address, error)?,
                (connected, _) => return connected,
            }
        }
    }

    fn connect_now(address: &Address, options: &Settings) -> Result<Self> {
        let (socket, pending) = options.with_descriptors(|| {
            succession::connect(address, options, options.handshake_timeout)
        })?;
        Self::begin(socket, pending, Some(address.clone()), options.clone())
    }

    /// Opens a lane over an unused connection.
    ///
    /// # Errors
    /// The errors of [`Sender::from_socket`](super::Sender::from_socket).
    pub(super) fn begin(
        socket: PeerSocket,
        mut pending: PendingLane,
        address: Option<Address>,
        mut options: Settings,
    ) -> Result<Self> {
        if address.is_none() {
            // A lane without an address has no successor.
            options.on_death = OnDeath::Fail;
        }
        let life = options.with_descriptors(Life::register)?;
        options.with_descriptors(quarantine::prepare)?;
        let has_address = address.is_some();
        let (mut growth, mut writer) =
            options.with_descriptors(|| Growth::begin(&options, has_address))?;
        // The receiver may want stamps.
        writer.set_stamps(true);
        let guard = Guard::here()?;
        let succession = SuccessorSearch::new(address, options.on_death);
        let brought = Introduction { writer: &writer, growth: &growth, life, options: &options };
        options.with_descriptors(|| brought.send_hello(&succession, &socket, &mut pending))?;
        growth.passed_on();
        let connection = Connection::Pending(pending);
        let stream = Box::default();
        Ok(Self { writer, guard, socket, connection, growth, stream, succession, options, life })
    }

    pub(super) fn address(&self) -> Option<&Address> {
        self.succession.address()
    }

    pub(super) fn options(&self) -> &Settings {
        &self.options
    }

    /// Returns the socket, readable when the receiver has sent a control message or ended.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the receiver that has accepted the lane, or the last receiver that accepted it.
    pub(super) fn receiver(&self) -> Option<Peer> {
        self.connection.receiver()
    }

    /// Returns the length of the longest message that the caps allow.
    pub(super) fn max_message_len(&self) -> usize {
        longest_message(1 << self.growth.largest_log2(self.cap().0))
    }

    pub(super) fn unread_bytes(&self) -> u64 {
        self.writer.unread_bytes()
    }

    /// Returns `true` if, according to the last accepted position, everything is read.
    pub(super) fn is_read(&self) -> bool {
        self.writer.is_read()
    }

    /// Checks that this is not a forked child.
    ///
    /// # Errors
    /// [`Error::Forked`] if it is.
    #[inline(always)]
    pub(super) fn check(&self) -> Result<()> {
        if self.guard.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// Removes and returns the unread messages if the receiver has ended, with the number of those
    /// that a receiver may have processed; returns `None` otherwise.
    pub(super) fn take_back(&mut self) -> Option<(Vec<Vec<u8>>, usize)> {
        if !self.has_final_position() {
            return None;
        }
        let in_doubt = self.writer.unread_before(self.doubt_limit());
        let unread = self.writer.take_back();
        self.growth.release(&self.writer);
        Some((unread, in_doubt))
    }

    /// Removes and returns the first unread message; called once the position is final.
    pub(super) fn take_back_first(&mut self) -> Option<Vec<u8>> {
        let first = self.writer.take_back_first();
        self.growth.release(&self.writer);
        first
    }

    /// Returns `true` if the receiver has ended; the last position that it stored is then accepted.
    pub(super) fn has_final_position(&mut self) -> bool {
        self.look_at_reader();
        if self.connection.is_live() {
            return false;
        }
        // If the position is invalid, the lane ends, and the last accepted position stays valid.
        let _ = self.refresh();
        true
    }
}

/// Sending.
impl OutboundLane {
    /// Sends a message if the lane is open and has free space, without a system call, a fence or a
    /// lock. Returns `true` if it was sent.
    #[inline(always)]
    pub(super) fn send_fast(&mut self, message: &[u8]) -> bool {
        let Some(joined) = self.connection.open_mut() else { return false };
        if self.guard.is_forked()
            || !joined.is_open_unstamped()
            || !self.writer.fits_unstamped(message.len())
        {
            return false;
        }
        self.writer.push_unstamped(message);
        joined.ring_if_asleep();
        true
    }

    /// Does the work of `send_fast` for a receiver that wants each message stamped.
    pub(super) fn send_stamped(&mut self, message: &[u8]) -> bool {
        let has_space = self.has_space(message.len());
        if has_space && let Some(joined) = self.connection.open_mut() {
            self.writer.push(message);
            joined.ring_if_asleep();
        }
        has_space
    }

    /// Returns `true` if the lane is open and known to have free space for `length` bytes.
    #[inline(always)]
    pub(super) fn has_space(&self, length: usize) -> bool {
        // `length` is not the length of a slice: it is arbitrary, and may exceed all memory.
        let possible = length <= LONGEST_OF_ALL;
        possible && self.is_open() && !self.guard.is_forked() && self.writer.fits(length)
    }

    /// Returns `true` if an open lane's receiver lives, accepts messages and requests no memory
    /// back.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.connection.open().is_some_and(AcceptedLane::is_open)
    }

    /// Appends a message for which space was found.
    pub(super) fn push(&mut self, message: &[u8]) {
        self.writer.push(message);
        self.wake_receiver();
    }

    /// Returns the slot of the next message, for which space was found.
    pub(super) fn reserve(&self, length: usize) -> RecordSlot {
        assert!(self.writer.fits(length));
        self.writer.place()
    }

    /// Returns the memory of the newest chunk, and the offset of the next message's payload in it.
    pub(super) fn payload(&self) -> (&OwnRegion, usize) {
        (self.writer.region(), self.writer.payload_at())
    }

    /// Publishes the message that was written at `place`.
    pub(super) fn publish(&mut self, place: RecordSlot, length: usize) {
        self.writer.publish(place, length);
        self.wake_receiver();
    }

    /// Wakes the receiver if it sleeps; called after a header was stored.
    fn wake_receiver(&mut self) {
        if matches!(self.connection, Connection::Pending(_)) {
            // The receiver may have sent WELCOME and gone to sleep. Either its check before
            // sleeping saw the header, or it sent WELCOME before the header was stored, and WELCOME
            // has arrived: the socket's lock orders the two.
            self.listen();
        }
        if let Some(joined) = self.connection.open_mut() {
            joined.ring_if_asleep();
        } else if self.connection.is_unreadable() {
            // WELCOME carries the doorbell, but the descriptor table is full. A control message
            // wakes the receiver too.
            let note = wire::write(ControlMessage::Want(self.options.lane_cap));
            let _ = socket::send(&self.socket, &note, &[]);
        }
    }
}

/// Checks of the receiver.
impl OutboundLane {
    /// Processes control messages, and checks whether the receiver is dead, has closed, or requests
    /// memory back. Returns `Ok` if messages may be written to the lane.
    ///
    /// # Errors
    /// [`Error::Forked`], the reason why the lane has ended, or the error of its handover.
    pub(super) fn ready(&mut self) -> Result<()> {
        self.check()?;
        self.look_at_reader();
        self.look_for_another_owner();
        match &self.connection {
            Connection::Pending(_) => Ok(()),
            Connection::Open(joined) => {
                if joined.wants_memory_back() {
                    self.shrink();
                }
                Ok(())
            }
            Connection::Awaiting(_) => self.try_hand_over(),
            Connection::Ended(ended) => Err(ended.error()),
        }
    }

    /// Checks whether the receiver can still take the reserved message. Returns no chunk and does
    /// not look for a successor, because the message is in the newest chunk.
    ///
    /// # Errors
    /// The reason why the lane has ended.
    #[cold]
    #[inline(never)]
    pub(super) fn look_before_commit(&mut self) -> Result<()> {
        self.look_at_reader();
        self.check_ended()
    }

    /// Checks that the lane has not ended, without checking the receiver.
    ///
    /// # Errors
    /// The reason why the lane has ended.
    pub(super) fn check_ended(&self) -> Result<()> {
        match &self.connection {
            Connection::Ended(ended) => Err(ended.error()),
            _ => Ok(()),
        }
    }

    /// Processes control messages, and checks whether the receiver is dead or has closed.
    fn look_at_reader(&mut self) {
        self.listen();
        match &self.connection {
            Connection::Pending(_) => self.look_at_process(),
            Connection::Open(joined) if joined.is_gone() => self.end(joined.noticed_end()),
            _ => {}
        }
    }

    /// Ends the lane if the pidfd reports the end of the receiver's process; called after a sleep.
    pub(super) fn look_at_process(&mut self) {
        // A forked child that listened would receive messages that were sent to its parent.
        if self.check().is_err() || !self.connection.process().is_some_and(pidfd::has_ended) {
            return;
        }
        // Control messages sent before the end still count: since the last call the receiver may
        // have sent WELCOME, and acknowledged messages on the page passed with it.
        self.listen();
        // Another process may hold the listener, and accept the lane later, or at this moment.
        if self.connection.is_unanswered() && !self.withdraw() {
            return;
        }
        if self.connection.is_live() && !self.connection.is_unreadable() {
            self.end(self.connection.noticed_end());
        }
    }

    /// Processes the receiver's control messages on the socket.
    pub(super) fn listen(&mut self) {
        // The loop is bounded, because a hostile receiver may send faster than this process reads.
        for _ in 0..NOTES_AT_ONCE {
            let options = &self.options;
            match self.connection.hear(&self.socket, &|peer| options.admit(peer)) {
                Ok(true) => self.note_receiver(),
                Ok(false) if self.connection.lack().is_some_and(|lack| options.relieves(lack)) => {}
                Ok(false) => return,
                Err(reason) => return self.end(reason),
            }
        }
    }

    /// Accepts the receiver's exact read position.
    ///
    /// # Errors
    /// [`Error::Protocol`] if the position is impossible.
    pub(super) fn refresh(&mut self) -> Result<()> {
        self.connection.position().map_or(Ok(()), |position| self.accept_position(position))
    }

    /// Accepts the position up to which the receiver last announced free space: cheaper for both
    /// ends than the exact position, but older.
    ///
    /// # Errors
    /// The errors of [`OutboundLane::refresh`].
    pub(super) fn refresh_space(&mut self) -> Result<()> {
        match self.connection.space() {
            // A position before the known one frees nothing.
            Some(space) if space > self.writer.position() => self.accept_position(space),
            _ => Ok(()),
        }
    }

    fn accept_position(&mut self, position: u64) -> Result<()> {
        if self.writer.believe(position).is_err() {
            let what =
                "its read position is beyond the last message, or before one that it acknowledged";
            let error = Error::Protocol { peer: self.connection.peer(), what };
            self.end(error.clone());
            return Err(error);
        }
        self.growth.release(&self.writer);
        Ok(())
    }

    /// Ends the lane. The fast path sends nothing, whatever the liveness word shows: the connection
    /// is not open. If the lane waits for a successor, the slow path accepts messages and looks for
    /// it.
    pub(super) fn end(&mut self, reason: Error) {
        let (reason, is_waited_out) = match self.latched_end() {
            Some(latched) => (latched, false),
            None => {
                let is_waited_out = self.succession.is_waited_out(&reason);
                (reason, is_waited_out)
            }
        };
        self.growth.keep_for_successor(is_waited_out);
        if self.connection.is_live() {
            self.succession.ended_at = self.writer.tail();
        }
        self.connection.end(reason, is_waited_out);
        // The next receiver may want stamps.
        self.writer.set_stamps(true);
    }
}

/// Finding space.
impl OutboundLane {
    /// Checks that a message can ever fit into the lane.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the message can never fit.
    pub(super) fn check_length(&self, length: usize) -> Result<()> {
        self.growth.check_length(length, self.cap(), &self.writer)
    }

    fn cap(&self) -> (u64, Option<Peer>) {
        self.growth.cap(self.connection.open())
    }

    /// Returns the next step to find space for a message of `length` bytes.
    pub(super) fn plan_growth(&mut self, length: usize) -> Result<GrowthStep> {
        let granted = match &mut self.connection {
            Connection::Pending(_) => Some(UNGRANTED),
            Connection::Open(joined) => joined.granted(),
            Connection::Awaiting(awaiting) => {
                Some(self.growth.expected_grant(awaiting.last(), &self.writer))
            }
            Connection::Ended(ended) => return Err(ended.error()),
        };
        let cap = self.cap().0;
        Ok(self.growth.plan(length, cap, granted, &self.writer))
    }

    /// Continues in a larger chunk. Returns `false` if caps or memory do not allow that now.
    pub(super) fn grow(&mut self, length: usize) -> Result<bool> {
        match self.plan_growth(length)? {
            GrowthStep::Stay => {
                let limit = self.options.handshake_timeout;
                self.growth.check_held(length, &self.writer, limit).map(|()| false)
            }
            GrowthStep::GoOnIn(log2) => self.go_on_in(log2),
            GrowthStep::AskFor(bytes) => {
                if let Some(joined) = self.connection.open()
                    && self.growth.is_request_due(bytes)
                {
                    joined.want(&self.socket, bytes)?;
                }
                Ok(false)
            }
        }
    }

    /// Passes a new chunk to the receiver, then publishes that the lane continues in it. Returns
    /// `false` if memory or descriptors are short, as if the cap were reached.
    pub(super) fn go_on_in(&mut self, log2: u32) -> Result<bool> {
        match self.make_and_pass(log2) {
            Err(error) if error.is_shortage() => Ok(false),
            done => done,
        }
    }

    fn make_and_pass(&mut self, log2: u32) -> Result<bool> {
        let options = &self.options;
        let (region, descriptor) = options.with_descriptors(|| self.growth.make_chunk(log2))?;
        // A dead receiver receives no more chunks: HELLO passes all of them to its successor.
        if self.connection.is_live() {
            let note = wire::write(ControlMessage::Chunk(log2, self.writer.sequence()));
            let pass = || socket::send(&self.socket, &note, &[descriptor.as_fd()]);
            match options.with_descriptors(pass)? {
                SendResult::Yes => {}
                SendResult::Full => return Ok(false),
                SendResult::Gone => {
                    // A receiver that refuses the lane has sent the reason.
                    self.listen();
                    if self.connection.is_live() && !self.connection.is_unreadable() {
                        self.end(self.connection.noticed_end());
                    }
                    return Ok(false);
                }
            }
        }
        self.writer.go_on_in(region, log2);
        self.growth.goes_on_in(log2, descriptor);
        self.wake_receiver();
        Ok(true)
    }

    /// Returns to a small chunk if everything in the large one is read, and gives up the rest of
    /// the grant.
    fn shrink(&mut self) {
        let Connection::Open(joined) = &mut self.connection else { return };
        let Some(granted) = joined.unanswered_request() else { return };
        if self.refresh().is_err() || !self.writer.is_read() {
            return;
        }
        let cap = self.cap().0;
        let small = self.growth.smaller_log2(cap, granted, &self.writer);
        // If there is no memory for the small chunk, the lane keeps the large one.
        if small.is_some_and(|small| self.go_on_in(small) == Ok(true)) {
            self.writer.forget_old();
            self.growth.release(&self.writer);
        }
        if let Connection::Open(joined) = &mut self.connection {
            joined.say_returned(&self.socket);
        }
        self.growth.returned();
    }
}

/// Waiting.
impl OutboundLane {
    /// Stores the word `waiting` or `closed` in every chunk that the receiver may be reading.
    pub(super) fn store_in_chunks(&self, at: usize, value: bool) {
        for link in self.writer.chain() {
            half_of_own(&link.region, at).store(u32::from(value), Ordering::Release);
        }
    }

    /// Executes the fence between the store of `waiting` and the last check. Returns `false` if the
    /// kernel no longer allows the barrier, so that a wake-up could be lost.
    pub(super) fn heavy_fence(&self) -> bool {
        self.connection.open().is_none_or(AcceptedLane::heavy_fence)
    }

    /// Returns `true` while a call waits for an event that no descriptor reports: a successor, a
    /// free descriptor, or the release of a chunk by the receiver.
    pub(super) fn has_unannounced(&self) -> bool {
        let connection = &self.connection;
        !connection.is_live() || connection.is_unreadable() || self.growth.is_memory_held()
    }

    /// Returns `true` while the receiver is not known to have ended.
    pub(super) fn is_live(&self) -> bool {
        self.connection.is_live()
    }

    /// Returns the socket and the pidfd, each only if waiting for it is useful. A socket that hung
    /// up stays readable permanently. A socket whose WELCOME does not fit into the descriptor table
    /// stays readable until the table has space; until then only a timeout can end the wait.
    pub(super) fn watched(&self) -> (Option<BorrowedFd<'_>>, Option<BorrowedFd<'_>>) {
        let shows = self.connection.is_live() && !self.connection.is_unreadable();
        (shows.then_some(self.socket.as_fd()), self.connection.process())
    }
}

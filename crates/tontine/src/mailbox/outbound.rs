//! The sender's end of one lane: [`OutboundLane`].
//!
//! It notices what happens to the receiver, finds space, publishes, and hands the lane over. It
//! never waits. The state of the connection, and what leads from one to another, is a
//! [`Connection`]; how far the lane has grown, a [`Growth`].
//!
//! Neighbours: [`super::sender`] has the calls, [`super::patience`] waits; [`super::inbound`] is
//! the receiver's end.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::address::Address;
use super::connection::{Connection, PendingLane};
use super::growth::{Growth, GrowthStep, SpaceRequest};
use super::joined::Joined;
use super::options::{OnDeath, Options};
use super::succession::{self, Introduction, SuccessorSearch};
use super::wire::{self, Note};
use crate::error::{Error, Peer, Result};
use crate::lane::mapped::half_of_own;
use crate::lane::page::{MOST_LOG2, WAITING_AT, longest_message};
use crate::lane::writer::Place;
use crate::lane::{Room, Writer};
use crate::life::Life;
use crate::sync::{Ordering, fence};
use crate::sys::fork::Guard;
use crate::sys::region::OwnRegion;
use crate::sys::socket::{self, Sent, Socket};
use crate::sys::{pidfd, quarantine};

/// No chunk takes more.
const LONGEST_OF_ALL: usize = longest_message(1 << MOST_LOG2);

/// What the receiver says is taken in so many pieces, before it is the caller's turn again.
const NOTES_AT_ONCE: usize = 32;

/// One lane, as its sender has it.
pub(super) struct OutboundLane {
    writer: Writer<OwnRegion>,
    guard: Guard,
    socket: Socket,
    connection: Connection,
    growth: Growth,
    succession: SuccessorSearch,
    options: Options,
    life: &'static Life,
}

impl fmt::Debug for OutboundLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundLane")
            .field("address", &self.address())
            .field("unread_bytes", &self.writer.unread_bytes())
            .finish_non_exhaustive()
    }
}

/// Begin, and what a caller asks.
impl OutboundLane {
    /// Begins a lane to the owner of `address`.
    ///
    /// # Errors
    /// As [`Sender::connect`](super::Sender::connect).
    pub(super) fn connect(address: Address, options: Options) -> Result<Self> {
        let address = address.into_absolute()?;
        let (socket, pending) = succession::connect(&address, &options, options.handshake_timeout)?;
        Self::begin(socket, pending, Some(address), options)
    }

    /// Begins a lane over an unused connection.
    ///
    /// # Errors
    /// A lane for [`Sender::from_socket`](super::Sender::from_socket).
    pub(super) fn begin(
        socket: Socket,
        mut pending: PendingLane,
        address: Option<Address>,
        mut options: Options,
    ) -> Result<Self> {
        if address.is_none() {
            // There is no address to look for a successor at.
            options.on_death = OnDeath::Fail;
        }
        let life = Life::register()?;
        quarantine::prepare()?;
        let (mut growth, writer) = Growth::begin(&options)?;
        let guard = Guard::here()?;
        let succession = SuccessorSearch::new(address, options.on_death);
        let brought = Introduction { writer: &writer, growth: &growth, life, options: &options };
        brought.say_hello(&succession, &socket, &mut pending)?;
        growth.passed_on();
        let connection = Connection::Pending(pending);
        Ok(Self { writer, guard, socket, connection, growth, succession, options, life })
    }

    pub(super) fn address(&self) -> Option<&Address> {
        self.succession.address()
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// Readable at word from the receiver, and at its end.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the receiver that has accepted the lane, or the last one that had.
    pub(super) fn receiver(&self) -> Option<Peer> {
        self.connection.receiver()
    }

    /// The longest message that the caps allow.
    pub(super) fn longest_message(&self) -> usize {
        longest_message(1 << self.growth.largest_log2(self.cap().0))
    }

    pub(super) fn unread_bytes(&self) -> u64 {
        self.writer.unread_bytes()
    }

    /// Returns `true` if everything was read, as far as is known.
    pub(super) fn is_read(&self) -> bool {
        self.writer.is_read()
    }

    /// Refuses a forked child.
    ///
    /// # Errors
    /// [`Error::Forked`].
    #[inline(always)]
    pub(super) fn check(&self) -> Result<()> {
        if self.guard.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// Returns what was not read, if the receiver is gone; `None` if it is not. Afterwards there is
    /// nothing unread.
    pub(super) fn take_back(&mut self) -> Option<Vec<Vec<u8>>> {
        self.look_at_reader();
        if self.connection.is_live() {
            return None;
        }
        // A false position ends the lane; the last one believed stands.
        let _ = self.refresh();
        let unread = self.writer.take_back();
        self.growth.release(&self.writer);
        Some(unread)
    }
}

/// Send.
impl OutboundLane {
    /// The whole of a `send` where nothing is in the way: no system call, no fence, no lock.
    #[inline(always)]
    pub(super) fn send_fast(&mut self, message: &[u8]) -> bool {
        let Some(joined) = self.connection.open() else { return false };
        if self.guard.is_forked() || !joined.is_open() || !self.writer.fits(message.len()) {
            return false;
        }
        self.writer.push(message);
        joined.ring_if_asleep();
        true
    }

    /// Whether a message of `length` bytes could be sent at once, without looking for room.
    #[inline(always)]
    pub(super) fn has_room(&self, length: usize) -> bool {
        // A number is not a slice: it may be more than there is memory.
        let possible = length <= LONGEST_OF_ALL;
        possible && self.is_open() && !self.guard.is_forked() && self.writer.fits(length)
    }

    /// Returns `true` if the receiver of an open lane lives, takes messages, and wants nothing
    /// back.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.connection.open().is_some_and(Joined::is_open)
    }

    /// Appends a message for which space was found.
    pub(super) fn push(&mut self, message: &[u8]) {
        self.writer.push(message);
        self.published();
    }

    /// Returns where the next message stands, for which space was found.
    pub(super) fn reserve(&self, length: usize) -> Place {
        assert!(self.writer.fits(length));
        self.writer.place()
    }

    /// Returns the memory of the newest chunk, and where in it the next message's payload goes.
    pub(super) fn payload(&self) -> (&OwnRegion, usize) {
        (self.writer.region(), self.writer.payload_at())
    }

    /// Makes what was written at `place` a message.
    pub(super) fn publish(&mut self, place: Place, length: usize) {
        self.writer.publish(place, length);
        self.published();
    }

    /// After a header store: wakes a receiver that sleeps.
    fn published(&mut self) {
        if matches!(self.connection, Connection::Pending(_)) {
            // It may have welcomed us and gone to sleep since we last looked. Either it saw our
            // store in its look before sleeping, or its WELCOME was sent before that and is here:
            // the socket's lock orders the two.
            self.listen();
        }
        if let Some(joined) = self.connection.open() {
            joined.ring_if_asleep();
        } else if self.connection.is_unreadable() {
            // Its WELCOME has the doorbell, and finds no room in our descriptor table. A note wakes
            // a receiver as well.
            let note = wire::write(Note::Want(self.options.lane_cap));
            let _ = socket::send(&self.socket, &note, &[]);
        }
    }
}

/// Notice what happens to the receiver.
impl OutboundLane {
    /// Whether anything may be sent: listens, and sees whether the reader is dead, closed, or wants
    /// its memory back.
    ///
    /// # Errors
    /// [`Error::Forked`]; the reason why the lane has ended; what hinders its handover.
    pub(super) fn ready(&mut self) -> Result<()> {
        self.check()?;
        self.look_at_reader();
        self.look_for_another_owner();
        match &self.connection {
            Connection::Pending(_) => Ok(()),
            Connection::Open(joined) => {
                if joined.wants_memory_back() {
                    self.give_back();
                }
                Ok(())
            }
            Connection::Awaiting(_) => self.look_for_successor(),
            Connection::Ended(ended) => Err(ended.error()),
        }
    }

    /// Whether the reader takes what was reserved. Only looks: what was written stands in the
    /// newest chunk, so nothing is given back here, and no successor looked for.
    ///
    /// # Errors
    /// The reason why the lane has ended.
    #[cold]
    #[inline(never)]
    pub(super) fn look_before_commit(&mut self) -> Result<()> {
        self.look_at_reader();
        self.check_ended()
    }

    /// Refuses what an ended lane cannot do, without a look at the receiver.
    ///
    /// # Errors
    /// The reason why the lane has ended.
    pub(super) fn check_ended(&self) -> Result<()> {
        match &self.connection {
            Connection::Ended(ended) => Err(ended.error()),
            _ => Ok(()),
        }
    }

    /// Takes what the receiver said, and looks whether it is dead or has closed.
    fn look_at_reader(&mut self) {
        self.listen();
        match &self.connection {
            Connection::Pending(_) => self.look_at_process(),
            Connection::Open(joined) if joined.is_gone() => self.end(joined.noticed_end()),
            _ => {}
        }
    }

    /// After a sleep: whether the reader's process has ended, whatever its life word says.
    pub(super) fn look_at_process(&mut self) {
        // A forked child that listened would take what was sent to its parent.
        if self.check().is_err() || !self.connection.process().is_some_and(pidfd::has_ended) {
            return;
        }
        // What it said before its end counts: it may have welcomed us, and acknowledged on the page
        // that came with that, since we listened.
        self.listen();
        if self.connection.is_live() && !self.connection.is_unreadable() {
            self.end(self.connection.noticed_end());
        }
    }

    /// Takes what the receiver said on the socket.
    pub(super) fn listen(&mut self) {
        // A hostile receiver may say things faster than we read them.
        for _ in 0..NOTES_AT_ONCE {
            let options = &self.options;
            match self.connection.hear(&self.socket, &|peer| options.admit(peer)) {
                Ok(true) => {}
                Ok(false) => return,
                Err(reason) => return self.end(reason),
            }
        }
    }

    /// Believes how far the receiver has read, exactly, if it can be believed.
    ///
    /// # Errors
    /// [`Error::Protocol`]: it cannot.
    pub(super) fn refresh(&mut self) -> Result<()> {
        self.connection.position().map_or(Ok(()), |position| self.believe(position))
    }

    /// The same of what the receiver last told of room: cheaper for both, and a little behind.
    ///
    /// # Errors
    /// As [`OutboundLane::refresh`].
    pub(super) fn refresh_room(&mut self) -> Result<()> {
        match self.connection.room() {
            // Behind what is known already there is no news.
            Some(room) if room > self.writer.position() => self.believe(room),
            _ => Ok(()),
        }
    }

    fn believe(&mut self, position: u64) -> Result<()> {
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

    /// Ends the lane. From here on the fast path sends nothing, whatever the life word says: the
    /// connection is not open. A lane that waits for a successor takes messages by the slow path,
    /// which looks for one.
    fn end(&mut self, reason: Error) {
        let is_waited_out = self.succession.is_waited_out(&reason);
        self.connection.end(reason, is_waited_out);
    }
}

/// Find space.
impl OutboundLane {
    /// Refuses a message that will never fit, as soon as that is certain.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub(super) fn check_length(&self, length: usize) -> Result<()> {
        self.growth.check_length(length, self.cap(), &self.writer)
    }

    fn cap(&self) -> (u64, Option<Peer>) {
        self.growth.cap(self.connection.open())
    }

    /// Whether the reader of an open lane has made room meanwhile: what a full ring needs once a
    /// lap.
    pub(super) fn find_room_read_meanwhile(&mut self, length: usize) -> bool {
        !self.guard.is_forked()
            && self.is_open()
            && self.refresh_room().is_ok()
            && (self.writer.fits(length) || self.writer.make_room(length) == Room::Here)
    }

    /// Whether a message has room now, in this chunk or in a new one. Unless it is `thorough`, it
    /// looks only where room is announced.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::Protocol`]; what the system says.
    pub(super) fn find_room(&mut self, request: &mut SpaceRequest, thorough: bool) -> Result<bool> {
        let length = request.length;
        self.check_length(length)?;
        if self.writer.fits(length) {
            return Ok(true);
        }
        if !thorough {
            self.refresh_room()?;
            return Ok(self.writer.make_room(length) == Room::Here);
        }
        self.refresh()?;
        match self.writer.make_room(length) {
            Room::Here => Ok(true),
            Room::Never => Ok(self.grow(length)? && self.writer.make_room(length) == Room::Here),
            Room::Later if self.reader_keeps_up(request) => Ok(false),
            Room::Later => match self.grow(length) {
                // The message fits into this chunk once the reader has made room.
                Err(Error::FileTooLarge { .. }) => Ok(false),
                grown => Ok(grown? && self.writer.make_room(length) == Room::Here),
            },
        }
    }

    fn reader_keeps_up(&self, request: &mut SpaceRequest) -> bool {
        self.connection.open().is_some_and(|joined| request.waits_for(joined, &self.writer))
    }

    /// Goes on in a larger chunk. `false` where caps or memory do not allow it now.
    fn grow(&mut self, length: usize) -> Result<bool> {
        let granted = match &mut self.connection {
            // Nothing is granted yet but what it was brought.
            Connection::Pending(_) => None,
            Connection::Open(joined) => joined.granted(),
            Connection::Awaiting(awaiting) => {
                Some(self.growth.expected_grant(awaiting.last(), &self.writer))
            }
            Connection::Ended(ended) => return Err(ended.error()),
        };
        let cap = self.cap().0;
        match self.growth.plan(length, cap, granted, &self.writer) {
            GrowthStep::Stay => Ok(false),
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

    /// Passes a new chunk, then publishes that it is the next.
    fn go_on_in(&mut self, log2: u32) -> Result<bool> {
        let Some((region, descriptor)) = Growth::make_chunk(log2)? else { return Ok(false) };
        // A dead reader takes no more chunks: its successor gets them all at once.
        if let Some(joined) = self.connection.open() {
            let sequence = self.writer.sequence();
            match joined.pass_chunk(&self.socket, log2, sequence, descriptor.as_fd())? {
                Sent::Yes => {}
                Sent::Full => return Ok(false),
                Sent::Gone => {
                    self.end(joined.noticed_end());
                    return Ok(false);
                }
            }
        }
        self.writer.go_on_in(region, log2);
        self.growth.goes_on_in(log2, descriptor);
        self.published();
        Ok(true)
    }

    /// Returns to a small chunk, if everything in the large one is read, and gives up what was
    /// granted besides.
    fn give_back(&mut self) {
        let Connection::Open(joined) = &mut self.connection else { return };
        let Some(granted) = joined.granted() else { return };
        if self.refresh().is_err() || !self.writer.is_read() {
            return;
        }
        let cap = self.cap().0;
        let small = self.growth.smaller_log2(cap, granted, &self.writer);
        // Should there be no memory for the small one, the large one stays.
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

/// Wait.
impl OutboundLane {
    /// Tells the receiver, in every chunk that it may be reading, whether we wait.
    pub(super) fn say_waiting(&self, waits: bool) {
        for link in self.writer.chain() {
            half_of_own(&link.region, WAITING_AT).store(u32::from(waits), Ordering::Relaxed);
        }
    }

    /// Puts the barrier between `waiting` and the last look. `false` where the kernel forbids by
    /// now what makes it sure that we are woken.
    pub(super) fn separate_heavily(&self) -> bool {
        self.connection.open().is_none_or(Joined::separate_heavily)
    }

    /// Returns `true` while something that a call waits for is shown by no descriptor: a successor,
    /// a free descriptor, or a chunk that the receiver let go of.
    pub(super) fn has_unannounced(&self) -> bool {
        let connection = &self.connection;
        !connection.is_live() || connection.is_unreadable() || self.growth.is_memory_held()
    }

    /// Returns `true` while the receiver is not known to be gone.
    pub(super) fn is_live(&self) -> bool {
        self.connection.is_live()
    }

    /// What tells of the receiver, and is not readable already for as long as nothing changes: a
    /// socket that hung up is for ever, one with a message for which our table is full until it has
    /// room. Then only time passes.
    pub(super) fn watched(&self) -> (Option<BorrowedFd<'_>>, Option<BorrowedFd<'_>>) {
        let shows = self.connection.is_live() && !self.connection.is_unreadable();
        (shows.then_some(self.socket.as_fd()), self.connection.process())
    }
}

/// Hand over.
impl OutboundLane {
    /// Hands the lane to the next owner of the address, if there is one yet. If there is none, that
    /// is no error: messages wait in the lane.
    ///
    /// # Errors
    /// What keeps any successor from being reached: that ends the lane, and the mail can be taken
    /// back. Or what this process has been short of for longer than the handshake's deadline.
    fn look_for_successor(&mut self) -> Result<()> {
        let now = Instant::now();
        let Connection::Awaiting(awaiting) = &mut self.connection else { return Ok(()) };
        if !awaiting.is_look_due(now) {
            return Ok(());
        }
        let handed_over = self.hand_over();
        let Connection::Awaiting(awaiting) = &mut self.connection else { return handed_over };
        let Err(error) = handed_over else { return Ok(()) };
        match error {
            // Nobody is there yet, or died in the same moment, or has a full queue: what the dead
            // one left stands as it was.
            Error::NoMailbox { .. } | Error::TimedOut | Error::WouldBlock => {
                awaiting.note_shortage(now, false);
                Ok(())
            }
            error if error.is_shortage() || error.errno() == libc::ENOBUFS => {
                let lasted = awaiting.note_shortage(now, true);
                if lasted < self.options.handshake_timeout { Ok(()) } else { Err(error) }
            }
            error => {
                self.end(error.clone());
                Err(error)
            }
        }
    }

    fn hand_over(&mut self) -> Result<()> {
        let Some(address) = self.succession.address() else { return Err(Error::WouldBlock) };
        let (socket, mut pending) = succession::connect(address, &self.options, Duration::ZERO)?;
        // How far the dead one had come, before its page goes.
        self.refresh()?;
        let (writer, growth) = (&self.writer, &self.growth);
        let next = self.succession.next_handover();
        next.announce(writer);
        let brought = Introduction { writer, growth, life: self.life, options: &self.options };
        if let Err(error) = brought.say_hello(&next, &socket, &mut pending) {
            self.succession.announce(writer);
            return Err(error);
        }
        if let Connection::Awaiting(awaiting) = &self.connection {
            self.growth.handed_over(awaiting.last());
        }
        self.succession = next;
        self.socket = socket;
        self.connection = Connection::Pending(pending);
        Ok(())
    }

    /// Where nobody has answered: whether somebody else owns the path by now. A listener that only
    /// a forked child of a dead owner holds accepts connections, and nobody reads them.
    ///
    /// As long as the path leads where it led there is nobody else to turn to, and a slow owner
    /// keeps our place in its queue.
    fn look_for_another_owner(&mut self) {
        let Connection::Pending(pending) = &mut self.connection else { return };
        if !self.options.on_death.waits() || !pending.is_look_elsewhere_due(Instant::now()) {
            return;
        }
        let leads_to = self.succession.address().and_then(Address::leads_to);
        if pending.was_replaced(leads_to) && self.withdraw() {
            self.end(self.connection.noticed_end());
        }
    }

    /// Takes back a `HELLO` that nobody has answered. `false` where somebody had, or has ended.
    fn withdraw(&mut self) -> bool {
        let next = self.succession.next_handover();
        next.announce(&self.writer);
        // SYNC handover: pairs with the fence in `Mailbox::begin`, where it is explained.
        fence(Ordering::SeqCst);
        self.listen();
        if self.connection.is_unanswered() {
            self.succession = next;
            return true;
        }
        // Whoever answered and saw that we withdrew hangs up, having read nothing.
        self.succession.announce(&self.writer);
        false
    }
}

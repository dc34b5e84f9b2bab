//! The sending end: [`Sender`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::account::ChunkAccount;
use super::address::{Address, FileId};
use super::connection::{Connection, Heard};
use super::growth::first_log2;
use super::joined::Joined;
use super::options::{Fences, Options};
use super::patience::Patience;
use super::reservation::Reservation;
use super::succession;
use super::wire::{self, FenceMode, Note};
use crate::error::{Error, Peer, Result};
use crate::lane::page::{CLOSED, GIVE_BACK, MOST_LOG2, longest_message};
use crate::lane::{Room, Writer};
use crate::life::Life;
use crate::sys::fork::Guard;
use crate::sys::region::OwnRegion;
use crate::sys::socket::{self, Socket};
use crate::sys::{membarrier, pidfd, quarantine};

/// No chunk takes more.
const LONGEST_OF_ALL: usize = longest_message(1 << MOST_LOG2);

/// What the receiver says is taken in so many pieces, before it is the caller's turn again.
const NOTES_AT_ONCE: usize = 32;

/// One sender's lane to a mailbox.
///
/// It is used by one thread at a time; a lane of one's own is [`Sender::try_clone`].
pub struct Sender {
    pub(super) writer: Writer<OwnRegion>,
    guard: Guard,
    pub(super) connection: Connection,
    /// The reason why nothing can be sent any more; set by [`Sender::end`] alone.
    pub(super) ended: Option<Error>,
    pub(super) options: Options,
    pub(super) address: Option<Address>,
    pub(super) life: &'static Life,
    /// The share of the cap that the chunks take, and their descriptors where a successor may want
    /// them.
    pub(super) chunks: ChunkAccount,
    /// When a successor was last looked for.
    pub(super) looked: Option<Instant>,
    /// When it was last looked whether somebody else owns the path that nobody answers.
    pub(super) looked_elsewhere: Option<Instant>,
    /// Since when this has failed for lack of something.
    pub(super) short_since: Option<Instant>,
    /// Which of the lane's `HELLO`s counts; 0 is the one that began it.
    pub(super) handover: u32,
    /// What the address's path led to just before the connection was made.
    pub(super) leads_to: Option<FileId>,
    /// Something waits on the socket that we have too many descriptors open for.
    pub(super) unreadable: bool,
    /// The cap of the last reader that welcomed us; our own before there was one.
    pub(super) most_before: u64,
    /// When more room was last asked for, and how much.
    pub(super) wanted: Option<(Instant, u64)>,
    /// Since when a message has waited for room that an awake reader may make.
    pub(super) full_since: Option<Instant>,
    /// Told by [`Sender::arm`] that it waits.
    pub(super) armed: bool,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender")
            .field("address", &self.address)
            .field("unread_bytes", &self.writer.unread_bytes())
            .finish_non_exhaustive()
    }
}

impl Options {
    /// A lane to the mailbox at `address`: [`Sender::connect`] with these settings.
    ///
    /// # Errors
    /// As there.
    pub fn connect(&self, address: impl Into<Address>) -> Result<Sender> {
        Sender::open(address.into(), self.clone())
    }

    /// A lane over a connected socket: [`Sender::over`] with these settings.
    ///
    /// # Errors
    /// As there.
    pub fn over(&self, socket: OwnedFd) -> Result<Sender> {
        Sender::open_over(socket, self.clone())
    }
}

impl Sender {
    /// Begins a lane to the mailbox at `address`.
    ///
    /// It returns as soon as the connection stands; the receiver takes it when it next receives.
    /// What is sent meanwhile waits in the lane. That the receiver refuses us shows at a later
    /// call.
    ///
    /// # Errors
    /// [`Error::NoMailbox`] where nobody listens there; [`Error::TimedOut`] where its owner accepts
    /// nobody within the handshake's deadline; [`Error::Denied`] where it belongs to a user who is
    /// not allowed; [`Error::BadAddress`] for what cannot be an address; [`Error::WouldBlock`]
    /// where the socket has no room for the first message; [`Error::NotMainThread`] where the
    /// process has no [`Life`] and this thread cannot give it one; what the system says where
    /// memory or descriptors are short.
    pub fn connect(address: impl Into<Address>) -> Result<Self> {
        Options::new().connect(address)
    }

    /// Begins a lane over a connected `SOCK_SEQPACKET` socket whose other end a mailbox
    /// [adopts](super::Mailbox::adopt).
    ///
    /// # Errors
    /// [`Error::BadSocket`] if it is of another kind, or not connected; else as
    /// [`Sender::connect`].
    pub fn over(socket: OwnedFd) -> Result<Self> {
        Options::new().over(socket)
    }

    pub(super) fn open(address: Address, options: Options) -> Result<Self> {
        let address = address.into_absolute()?;
        let leads_to = address.leads_to();
        let connection = succession::connect(&address, &options, options.handshake_deadline)?;
        let mut sender = Self::begin(connection, options)?;
        sender.leads_to = leads_to;
        sender.address = Some(address);
        Ok(sender)
    }

    pub(super) fn open_over(socket: OwnedFd, options: Options) -> Result<Self> {
        socket::check_connected(&socket)?;
        let socket = Socket::new(socket)?;
        socket::pass_credentials(&socket)?;
        Self::begin(Connection::over(socket), options)
    }

    fn begin(connection: Connection, options: Options) -> Result<Self> {
        let life = Life::current().map_or_else(Life::join, Ok)?;
        quarantine::prepare()?;
        let log2 = first_log2(&options);
        let (region, descriptor) = OwnRegion::new("tontine-chunk", 1 << log2)?;
        let mut sender = Self {
            writer: Writer::new(region, log2),
            guard: Guard::here()?,
            connection,
            ended: None,
            most_before: options.lane_cap,
            options,
            address: None,
            life,
            chunks: ChunkAccount::new(log2, descriptor),
            looked: None,
            looked_elsewhere: None,
            short_since: None,
            handover: 0,
            leads_to: None,
            unreadable: false,
            wanted: None,
            full_since: None,
            armed: false,
        };
        sender.say_hello()?;
        if !sender.options.on_death.waits() {
            sender.chunks.close_descriptors();
        }
        Ok(sender)
    }

    /// A lane of its own to the same mailbox, for another thread.
    ///
    /// # Errors
    /// [`Error::NoMailbox`] for a lane over a socket that was passed in, which has no address; else
    /// as [`Sender::connect`].
    pub fn try_clone(&self) -> Result<Self> {
        self.check()?;
        let none = || Error::NoMailbox { address: "a socket that was passed in".into() };
        Self::open(self.address.clone().ok_or_else(none)?, self.options.clone())
    }

    /// Sends a message; waits for room where there is none.
    ///
    /// To a living receiver that is awake this makes no system call.
    ///
    /// A signal does not end the wait: the handler runs, and the wait continues. To end it on a
    /// signal, call [`Sender::try_send`] and [`Sender::arm`], and wait on a signalfd or the reading
    /// end of a pipe next to [`Sender::descriptor`]. The same holds for [`Sender::send_timeout`]
    /// and [`Sender::wait_read`].
    ///
    /// It may return `Ok` before the receiver has admitted the sender: the message waits in the
    /// lane then, and that the receiver refuses us shows at a later call.
    ///
    /// # Errors
    /// [`Error::OwnerDied`] where the reader is dead, [`Error::Closed`] where it takes no more, and
    /// then nothing was sent; [`Error::TooLarge`]; [`Error::Forked`]; [`Error::Denied`],
    /// [`Error::Version`] and [`Error::Protocol`] where the receiver refused the lane or broke it.
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        if self.send_fast(message) { Ok(()) } else { self.send_slowly(message, &Patience::Endless) }
    }

    /// Sends a message if there is room, or if the lane may grow.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where there is none; else as [`Sender::send`].
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<()> {
        if self.send_fast(message) { Ok(()) } else { self.send_slowly(message, &Patience::None) }
    }

    /// Sends a message; waits for room for at most `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] where there was none in time; else as [`Sender::send`].
    pub fn send_timeout(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        if self.send_fast(message) {
            return Ok(());
        }
        self.send_slowly(message, &Patience::until(timeout))
    }

    /// Room for a message of `length` bytes, to be written in place; waits for it.
    ///
    /// # Errors
    /// As [`Sender::send`].
    #[inline]
    pub fn reserve(&mut self, length: usize) -> Result<Reservation<'_>> {
        if !self.has_room(length) {
            self.make_room(length, &Patience::Endless)?;
        }
        Ok(Reservation::new(self, length))
    }

    /// As [`Sender::reserve`], without waiting.
    ///
    /// # Errors
    /// As [`Sender::try_send`].
    #[inline]
    pub fn try_reserve(&mut self, length: usize) -> Result<Reservation<'_>> {
        if !self.has_room(length) {
            self.make_room(length, &Patience::None)?;
        }
        Ok(Reservation::new(self, length))
    }

    /// Takes back what a dead or closed reader did not acknowledge, in order; afterwards there is
    /// nothing unread.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] while the reader is alive: it may be reading them.
    pub fn unread(&mut self) -> Result<Vec<Vec<u8>>> {
        self.check()?;
        self.listen();
        if self.ended.is_none() {
            self.look_at_reader();
        }
        if self.ended.is_none() {
            return Err(Error::WouldBlock);
        }
        // A false position ends in `ended`; the last one believed stands.
        let _ = self.refresh();
        let unread = self.writer.take_back();
        self.chunks.release_until(self.writer.chunks());
        Ok(unread)
    }

    /// Bytes in the lane that the reader has not acknowledged, 8 a message and padding included.
    pub fn unread_bytes(&mut self) -> u64 {
        if !self.guard.is_forked() {
            self.listen();
            let _ = self.refresh();
        }
        self.writer.unread_bytes()
    }

    /// Waits until everything is read and acknowledged, for at most `timeout` where there is one.
    /// Whether the reader ends afterwards does not matter. A signal does not end the wait, see
    /// [`Sender::send`].
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::OwnerDied`] or [`Error::Closed`] where the reader will not
    /// read it, unless the options say to wait for its successor.
    pub fn wait_read(&mut self, timeout: Option<Duration>) -> Result<()> {
        let patience = timeout.map_or(Patience::Endless, Patience::until);
        self.wait_until(&patience, |sender, thorough| {
            if !thorough {
                sender.refresh_room()?;
                return Ok(sender.writer.is_read());
            }
            let ready = sender.ready();
            // A reader that ends when it has read everything has done what was waited for.
            if !sender.guard.is_forked() && sender.refresh().is_ok() && sender.writer.is_read() {
                return Ok(true);
            }
            ready.map(|()| false)
        })
    }

    /// Does what there is to do between messages: takes word of room, gives a large chunk back that
    /// the lane no longer needs, looks for a successor. There is no thread that would do it: call
    /// it when the descriptor is readable, or now and then.
    ///
    /// # Errors
    /// As [`Sender::send`]; also where everything was read before the reader ended, since the
    /// descriptor is readable from then on, and for ever: wait for it no more. Whether anything is
    /// left tell [`Sender::unread`] and [`Sender::wait_read`].
    pub fn service(&mut self) -> Result<()> {
        self.ready()?;
        self.refresh()?;
        Ok(())
    }

    /// Readable when [`Sender::service`] has something to do: the reader's end, or, once armed,
    /// room. Another one after each hand-over to a successor: register it anew when a call returned
    /// after the reader's end.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.connection.socket.as_fd()
    }

    /// Who receives, once it has taken the connection.
    pub fn peer(&self) -> Option<Peer> {
        self.connection.last().map(|joined| joined.peer)
    }

    /// The longest message that the lane's cap allows: a little less than a quarter of it. A record
    /// takes half of its chunk at most, and beside a new chunk there is the one before it.
    ///
    /// The receiver's cap is known once it has taken the connection; where it is smaller than ours,
    /// the answer is smaller from then on.
    pub fn longest_message(&self) -> usize {
        longest_message(1 << self.largest_log2(self.cap().0))
    }

    /// Whether its reader's end is waited out.
    pub(crate) fn waits_for_successor(&self) -> bool {
        self.options.on_death.waits()
    }

    #[inline(always)]
    pub(super) fn check(&self) -> Result<()> {
        if self.guard.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// The whole of a `send` where nothing is in the way: no system call, no fence, no lock.
    #[inline(always)]
    fn send_fast(&mut self, message: &[u8]) -> bool {
        let Some(joined) = &self.connection.joined else { return false };
        if self.guard.is_forked() || !joined.is_open() || !self.writer.fits(message.len()) {
            return false;
        }
        self.writer.push(message);
        joined.ring_if_asleep();
        true
    }

    /// Whether a message of `length` bytes could be sent at once, without looking for room.
    #[inline(always)]
    fn has_room(&self, length: usize) -> bool {
        let open = self.connection.joined.as_ref().is_some_and(Joined::is_open);
        // A number is not a slice: it may be more than there is memory.
        let possible = length <= LONGEST_OF_ALL;
        possible && open && !self.guard.is_forked() && self.writer.fits(length)
    }

    #[cold]
    #[inline(never)]
    fn send_slowly(&mut self, message: &[u8], patience: &Patience) -> Result<()> {
        self.make_room(message.len(), patience)?;
        self.writer.push(message);
        self.published();
        Ok(())
    }

    /// After a header store: wakes a receiver that sleeps.
    pub(super) fn published(&mut self) {
        if self.connection.joined.is_none() {
            // It may have welcomed us and gone to sleep since we last looked. Either it saw our
            // store in its look before sleeping, or its WELCOME was sent before that and is here:
            // the socket's lock orders the two.
            self.listen();
        }
        if let Some(joined) = &self.connection.joined {
            joined.ring_if_asleep();
        } else if self.unreadable {
            // Its WELCOME has the doorbell, and finds no room in our descriptor table. A note wakes
            // a receiver as well.
            let note = wire::write(Note::Want(self.options.lane_cap));
            let _ = socket::send(&self.connection.socket, &note, &[]);
        }
    }

    /// Whether the reader of an open lane has made room meanwhile: what a full ring needs once a
    /// lap.
    fn find_room_read_meanwhile(&mut self, length: usize) -> bool {
        !self.guard.is_forked()
            && self.connection.joined.as_ref().is_some_and(Joined::is_open)
            && self.refresh_room().is_ok()
            && (self.writer.fits(length) || self.writer.make_room(length) == Room::Here)
    }

    fn make_room(&mut self, length: usize, patience: &Patience) -> Result<()> {
        self.check()?;
        self.disarm();
        // Before anybody adds to the number.
        self.check_length(length)?;
        // A program may send to a dead receiver often, and nothing changes that answer.
        if let Some(ended) = &self.ended
            && !self.is_waited_out(ended)
        {
            return Err(ended.clone());
        }
        if self.find_room_read_meanwhile(length) {
            return Ok(());
        }
        let at_once = matches!(patience, Patience::None);
        self.full_since = None;
        self.wait_until(patience, |sender, thorough| {
            if thorough {
                sender.ready()?;
            }
            sender.find_room(length, at_once, thorough)
        })
        .map_err(|error| match (error, patience) {
            (Error::TimedOut, Patience::None) => Error::WouldBlock,
            (error, _) => error,
        })
    }

    /// Whether anything may be sent: listens, and sees whether the reader is dead, closed, or wants
    /// its memory back.
    pub(super) fn ready(&mut self) -> Result<()> {
        self.look_for_end()?;
        let joined = self.connection.joined.as_ref();
        if joined.is_some_and(|joined| joined.state() & GIVE_BACK != 0) {
            self.give_back();
        }
        Ok(())
    }

    /// The same, but that nothing is given back: the writer stays where it is.
    pub(super) fn look_for_end(&mut self) -> Result<()> {
        self.check()?;
        self.listen();
        if self.ended.is_none() {
            self.look_at_reader();
        }
        if self.ended.is_none() && self.connection.joined.is_none() {
            self.look_for_another_owner();
        }
        match &self.ended {
            None => Ok(()),
            Some(ended) if self.is_waited_out(ended) => self.look_for_successor(),
            Some(ended) => Err(ended.clone()),
        }
    }

    pub(super) fn look_at_reader(&mut self) {
        let Some(joined) = &self.connection.joined else { return self.look_at_process() };
        if !joined.is_alive() || joined.state() & CLOSED != 0 {
            self.end(self.connection.end());
        }
    }

    /// Ends the lane. From here on the fast path sends nothing, whatever the life word says: its
    /// receiver is no longer joined. A lane that waits for a successor takes messages by the slow
    /// path, which looks for one.
    pub(super) fn end(&mut self, error: Error) {
        self.ended = Some(error);
        self.connection.leave();
    }

    /// After a sleep: whether the reader's process has ended, whatever its life word says.
    pub(super) fn look_at_process(&mut self) {
        let (_, process) = self.connection.waits();
        // A forked child that listened would take what was sent to its parent.
        if self.check().is_err() || self.ended.is_some() || !process.is_some_and(pidfd::has_ended) {
            return;
        }
        // What it said before its end counts: it may have welcomed us, and acknowledged on the page
        // that came with that, since we listened.
        self.listen();
        if self.ended.is_none() && !self.unreadable {
            self.end(self.connection.end());
        }
    }

    /// Takes what the receiver said on the socket.
    pub(super) fn listen(&mut self) {
        self.unreadable = false;
        // A hostile receiver may say things faster than we read them.
        for _ in 0..NOTES_AT_ONCE {
            if self.ended.is_some() {
                return;
            }
            let options = &self.options;
            match self.connection.hear(&|peer| options.admit(peer)) {
                Ok(Heard::Nothing) => return,
                Ok(Heard::Unreadable) => {
                    self.unreadable = true;
                    return;
                }
                Ok(Heard::Something) => {}
                Ok(Heard::HungUp) => self.end(self.connection.end()),
                Err(error) => self.end(error),
            }
        }
    }

    /// Believes how far the receiver has read, exactly, if it can be believed.
    pub(super) fn refresh(&mut self) -> Result<()> {
        let position = self.connection.last().map(Joined::position);
        position.map_or(Ok(()), |position| self.believe(position))
    }

    /// The same of what the receiver last told of room: cheaper for both, and a little behind.
    pub(super) fn refresh_room(&mut self) -> Result<()> {
        match self.connection.last().map(Joined::room) {
            // Behind what is known already there is no news.
            Some(room) if room > self.writer.position() => self.believe(room),
            _ => Ok(()),
        }
    }

    fn believe(&mut self, position: u64) -> Result<()> {
        if self.writer.believe(position).is_err() {
            let what = "it says it has read what was not sent, or has not read what it had";
            let error = Error::Protocol { peer: self.connection.peer(), what };
            self.end(error.clone());
            return Err(error);
        }
        self.chunks.release_until(self.writer.chunks());
        Ok(())
    }

    /// What we can, and what we bring.
    pub(super) fn fences(&self) -> FenceMode {
        let asymmetric = self.options.fences == Fences::Asymmetric && membarrier::register();
        if asymmetric { FenceMode::Asymmetric } else { FenceMode::Symmetric }
    }
}

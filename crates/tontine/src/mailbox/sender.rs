//! The sending end: [`Sender`].

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::address::Address;
use super::options::{Fences, OnDeath, Options, Waiting};
use super::outbound::{Connection, Heard, Joined};
use super::succession;
use super::wire::{self, FenceMode, MOST_CHUNKS, Note};
use crate::error::{Error, Peer, Result};
use crate::lane::mapped::half_of_own;
use crate::lane::page::{
    CLOSED, GIVE_BACK, LEAST_LOG2, MOST_LOG2, WAITING_AT, log2_for, longest_message,
};
use crate::lane::{Room, Writer};
use crate::life::Life;
use crate::sync::Ordering;
use crate::sys::fork::Guard;
use crate::sys::membarrier;
use crate::sys::region::OwnRegion;
use crate::sys::socket::{self, Sent};

/// Chunks of this size or more fill before they grow: 64 KiB.
const COMFORTABLE_LOG2: u32 = 16;

/// An awake reader that makes no room for so long does not keep up.
const KEEPING_UP: Duration = Duration::from_micros(100);

/// Looks for room before the clock is asked.
const LOOKS: u32 = 32;

/// A sender that waits for its reader's successor looks this often for one.
const LOOK_FOR_SUCCESSOR: Duration = Duration::from_millis(10);

/// How long a sleep may be that nobody is sure to interrupt.
const UNSURE_SLEEP: Duration = Duration::from_millis(1);

/// The longest sleep without a look at the life word: only an exec of a reader with forked children
/// passes pidfd and hang-up by.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// One sender's lane to a mailbox.
///
/// It is used by one thread at a time; a lane of one's own is [`Sender::try_clone`].
pub struct Sender {
    pub(super) writer: Writer<OwnRegion>,
    guard: Guard,
    pub(super) connection: Connection,
    /// Why nothing can be sent any more.
    pub(super) ended: Option<Error>,
    pub(super) options: Options,
    pub(super) address: Option<Address>,
    pub(super) life: &'static Life,
    /// Descriptors of the chunks, in the chain's order, where a successor may want them.
    pub(super) kept: Vec<OwnedFd>,
    /// When a successor was last looked for.
    pub(super) looked: Option<Instant>,
    /// Since when a message has waited for room that an awake reader may make.
    full_since: Option<Instant>,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender")
            .field("address", &self.address)
            .field("unread_bytes", &self.writer.unread_bytes())
            .finish_non_exhaustive()
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
    /// [`Error::NoMailbox`] where nobody listens there; [`Error::NotMainThread`] where the process
    /// has no [`Life`] and this thread cannot give it one.
    pub fn connect(address: impl Into<Address>) -> Result<Self> {
        Options::new().connect(address)
    }

    /// Begins a lane over a connected `SOCK_SEQPACKET` socket whose other end a mailbox
    /// [adopts](super::Mailbox::adopt).
    ///
    /// # Errors
    /// As [`Sender::connect`].
    pub fn over(socket: OwnedFd) -> Result<Self> {
        Options::new().over(socket)
    }

    pub(super) fn open(address: Address, options: Options) -> Result<Self> {
        let socket = succession::connect(&address, &options)?;
        let mut sender = Self::open_over(socket, options)?;
        sender.address = Some(address);
        Ok(sender)
    }

    pub(super) fn open_over(socket: OwnedFd, options: Options) -> Result<Self> {
        let life = Life::current().map_or_else(Life::join, Ok)?;
        socket::pass_credentials(&socket)?;
        let log2 = first_log2(&options);
        let (region, descriptor) = OwnRegion::new("tontine-chunk", 1 << log2)?;
        let mut sender = Self {
            writer: Writer::new(region, log2),
            guard: Guard::here()?,
            connection: Connection::new(socket),
            ended: None,
            options,
            address: None,
            life,
            kept: vec![descriptor],
            looked: None,
            full_since: None,
        };
        sender.say_hello()?;
        if sender.options.on_death == OnDeath::Fail {
            sender.kept.clear();
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
    pub fn reserve(&mut self, length: usize) -> Result<Reservation<'_>> {
        self.make_room(length, &Patience::Endless)?;
        Ok(Reservation { sender: self, length })
    }

    /// As [`Sender::reserve`], without waiting.
    ///
    /// # Errors
    /// As [`Sender::try_send`].
    pub fn try_reserve(&mut self, length: usize) -> Result<Reservation<'_>> {
        self.make_room(length, &Patience::None)?;
        Ok(Reservation { sender: self, length })
    }

    /// Takes back what a dead or closed reader did not acknowledge, in order; afterwards there is
    /// nothing unread.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] while the reader is alive: it may be reading them.
    pub fn unread(&mut self) -> Result<Vec<Vec<u8>>> {
        self.check()?;
        self.listen();
        if self.ended.is_none() && self.is_open_or_unknown() {
            return Err(Error::WouldBlock);
        }
        // A false position ends in `ended`; the last one believed stands.
        let _ = self.refresh();
        self.kept.drain(..self.kept.len().saturating_sub(1));
        Ok(self.writer.take_back())
    }

    /// Bytes in the lane that the reader has not acknowledged, 8 a message and padding included.
    pub fn unread_bytes(&mut self) -> u64 {
        self.listen();
        let _ = self.refresh();
        self.writer.unread_bytes()
    }

    /// Waits until everything is read and acknowledged, for at most `timeout` where there is one.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::OwnerDied`] or [`Error::Closed`] where the reader will not read
    /// it; with [`OnDeath::WaitForSuccessor`] a death is waited out.
    pub fn wait_read(&mut self, timeout: Option<Duration>) -> Result<()> {
        let patience = timeout.map_or(Patience::Endless, Patience::until);
        self.wait_until(&patience, |sender, thorough| {
            if thorough {
                sender.ready()?;
            }
            sender.refresh()?;
            Ok(sender.writer.is_read())
        })
    }

    /// Does what there is to do between messages: takes word of room, gives a large chunk back that
    /// the lane no longer needs, looks for a successor. There is no thread that would do it: call it
    /// when the descriptor is readable, or now and then.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn service(&mut self) -> Result<()> {
        self.ready()?;
        self.refresh()?;
        Ok(())
    }

    /// Readable when [`Sender::service`] has something to do: room, or the reader's end.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.connection.socket.as_fd()
    }

    /// Who receives, once it has taken the connection.
    pub fn peer(&self) -> Option<Peer> {
        self.connection.joined.as_ref().map(|joined| joined.peer)
    }

    /// The longest message that the lane's cap allows: a little less than a quarter of it. A record
    /// takes half of its chunk at most, and beside a new chunk there is the one before it.
    pub fn longest_message(&self) -> usize {
        let half = (self.options.lane_cap.ilog2() - 1).clamp(LEAST_LOG2, MOST_LOG2);
        longest_message(1 << half.max(first_log2(&self.options)))
    }

    #[inline(always)]
    fn check(&self) -> Result<()> {
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

    #[cold]
    #[inline(never)]
    fn send_slowly(&mut self, message: &[u8], patience: &Patience) -> Result<()> {
        self.make_room(message.len(), patience)?;
        self.writer.push(message);
        self.published();
        Ok(())
    }

    /// After a header store: wakes a receiver that sleeps.
    fn published(&mut self) {
        if self.connection.joined.is_none() {
            // It may have welcomed us and gone to sleep since we last looked. Either it saw our
            // store in its look before sleeping, or its WELCOME was sent before that and is here:
            // the socket's lock orders the two.
            self.listen();
        }
        if let Some(joined) = &self.connection.joined {
            joined.ring_if_asleep();
        }
    }

    fn make_room(&mut self, length: usize, patience: &Patience) -> Result<()> {
        let at_once = matches!(patience, Patience::None);
        self.full_since = None;
        self.wait_until(patience, |sender, thorough| {
            if thorough {
                sender.ready()?;
            }
            sender.find_room(length, at_once)
        })
        .map_err(|error| match (error, patience) {
            (Error::TimedOut, Patience::None) => Error::WouldBlock,
            (error, _) => error,
        })
    }

    /// Calls `done` until it says so; spins, then sleeps, as the options say. Told to be thorough,
    /// it looks for more than room.
    fn wait_until(
        &mut self,
        patience: &Patience,
        mut done: impl FnMut(&mut Self, bool) -> Result<bool>,
    ) -> Result<()> {
        if done(self, true)? {
            return Ok(());
        }
        let spin_until = match self.options.waiting {
            _ if self.ended.is_some() => Some(Instant::now()),
            Waiting::Spin => None,
            Waiting::Sleep => Some(Instant::now()),
            Waiting::SpinThenSleep(time) => Instant::now().checked_add(time),
        };
        loop {
            if patience.is_over() {
                return Err(Error::TimedOut);
            }
            for look in 0..LOOKS {
                if done(self, look == 0)? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            if spin_until.is_some_and(|until| Instant::now() >= until)
                && self.sleep(patience, &mut done)?
            {
                return Ok(());
            }
        }
    }

    /// Waits in the kernel for word from the receiver, or its end. Returns whether it is done.
    fn sleep(
        &mut self,
        patience: &Patience,
        done: &mut impl FnMut(&mut Self, bool) -> Result<bool>,
    ) -> Result<bool> {
        self.say_waiting(1);
        let sure = self.connection.joined.as_ref().is_none_or(Joined::separate_heavily);
        let slept = match done(self, true) {
            Ok(false) => {
                let longest = match (sure, &self.ended) {
                    (true, None) => LONGEST_SLEEP,
                    (true, Some(_)) => LOOK_FOR_SUCCESSOR,
                    (false, _) => UNSURE_SLEEP,
                };
                self.poll(patience.left(longest)).map(|()| false)
            }
            other => other,
        };
        self.say_waiting(0);
        slept
    }

    /// Tells the receiver, in every chunk that it may be reading, whether we wait.
    fn say_waiting(&self, waiting: u32) {
        for link in self.writer.chain() {
            half_of_own(&link.region, WAITING_AT).store(waiting, Ordering::Relaxed);
        }
    }

    fn poll(&self, timeout: Duration) -> Result<()> {
        let (socket, process) = self.connection.waits();
        let mut watched: Vec<PollFd<'_>> = Vec::with_capacity(2);
        // A socket that hung up is readable for ever; then only time passes.
        if self.ended.is_none() {
            watched.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
            watched.extend(process.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        let timeout = Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::system("poll", errno)),
        }
    }

    /// Whether anything may be sent: listens, and sees whether the reader is dead, closed, or wants
    /// its memory back.
    fn ready(&mut self) -> Result<()> {
        self.check()?;
        self.listen();
        if self.ended.is_none() {
            self.look_at_reader();
        }
        if self.connection.joined.as_ref().is_some_and(|joined| joined.state() & GIVE_BACK != 0) {
            self.give_back();
        }
        let Some(ended) = &self.ended else { return Ok(()) };
        if !matches!(ended, Error::OwnerDied { .. })
            || self.options.on_death != OnDeath::WaitForSuccessor
        {
            return Err(ended.clone());
        }
        self.look_for_successor()
    }

    fn look_at_reader(&mut self) {
        let Some(joined) = &self.connection.joined else { return };
        let peer = joined.peer;
        if !joined.is_alive() {
            self.ended = Some(Error::OwnerDied { peer });
        } else if joined.state() & CLOSED != 0 {
            self.ended = Some(Error::Closed { peer });
        }
    }

    fn is_open_or_unknown(&self) -> bool {
        self.connection.joined.as_ref().is_none_or(Joined::is_open)
    }

    /// Takes what the receiver said on the socket.
    fn listen(&mut self) {
        while self.ended.is_none() {
            let options = &self.options;
            match self.connection.hear(|uid| options.admits(uid)) {
                Ok(Heard::Nothing) => return,
                Ok(Heard::Something) => {}
                Ok(Heard::HungUp) => {
                    let peer = self.connection.peer();
                    let joined = self.connection.joined.as_ref();
                    let closed = joined.is_some_and(|joined| joined.state() & CLOSED != 0);
                    self.ended = Some(if closed {
                        Error::Closed { peer }
                    } else {
                        Error::OwnerDied { peer }
                    });
                }
                Err(error) => self.ended = Some(error),
            }
        }
    }

    /// Believes the receiver's position, if it can be believed.
    pub(super) fn refresh(&mut self) -> Result<()> {
        let Some(joined) = &self.connection.joined else { return Ok(()) };
        let before = self.writer.chain().len();
        if self.writer.believe(joined.position()).is_err() {
            let what = "it says it has read what was not sent, or has not read what it had";
            let error = Error::Protocol { peer: joined.peer, what };
            self.ended = Some(error.clone());
            return Err(error);
        }
        let dropped = before - self.writer.chain().len();
        self.kept.drain(..dropped.min(self.kept.len()));
        Ok(())
    }

    /// Whether a message of `length` bytes has room now, in this chunk or in a new one.
    fn find_room(&mut self, length: usize, at_once: bool) -> Result<bool> {
        if length > self.longest_message() {
            let most = self.longest_message() as u64;
            return Err(Error::TooLarge { len: length as u64, most });
        }
        if self.writer.fits(length) {
            return Ok(true);
        }
        self.refresh()?;
        match self.writer.make_room(length) {
            Room::Here => Ok(true),
            Room::Never => Ok(self.grow(length)? && self.writer.make_room(length) == Room::Here),
            Room::Later if !at_once && self.reader_keeps_up() => Ok(false),
            Room::Later => Ok(self.grow(length)? && self.writer.make_room(length) == Room::Here),
        }
    }

    /// Whether the lane is better left as it is: a reader that is at work makes room soon, and a
    /// chunk that stays in the cache is worth more than one that never fills.
    fn reader_keeps_up(&mut self) -> bool {
        let Some(joined) = &self.connection.joined else { return false };
        if self.writer.log2() < COMFORTABLE_LOG2 || self.ended.is_some() || joined.is_asleep() {
            return false;
        }
        let since = *self.full_since.get_or_insert_with(Instant::now);
        since.elapsed() < KEEPING_UP
    }

    /// Goes on in a larger chunk. `false` where caps or memory do not allow it now.
    fn grow(&mut self, length: usize) -> Result<bool> {
        let needed = log2_for(length).unwrap_or(MOST_LOG2);
        let log2 = (self.writer.log2() + 1).max(needed).min(MOST_LOG2);
        let granted = match &self.connection.joined {
            Some(joined) => joined.granted(),
            None if self.ended.is_some() => self.writer.bytes().max(self.options.lane_cap),
            // Nothing is granted yet but what it was brought.
            None => 0,
        };
        let cap = self.options.lane_cap;
        if self.writer.chain().len() == MOST_CHUNKS {
            return Ok(false);
        }
        let fits = |log2: u32, cap: u64| self.writer.bytes() + (1 << log2) <= cap;
        // Doubling is a habit, not a need: what is left of the cap may hold a smaller one.
        let left = cap.saturating_sub(self.writer.bytes()).max(1).ilog2();
        let log2 = log2.min(left);
        if log2 < needed.max(LEAST_LOG2) {
            return Ok(false);
        }
        if !fits(log2, granted) {
            if self.connection.joined.is_none() {
                return Ok(false);
            }
            let wanted = wire::write(Note::Want(cap));
            socket::send(&self.connection.socket, &wanted, &[])?;
            return Ok(false);
        }
        self.go_on_in(log2)
    }

    /// Returns to a small chunk, if everything in the large one is read.
    fn give_back(&mut self) {
        let small = first_log2(&self.options);
        if self.refresh().is_ok() && self.writer.is_read() && self.writer.log2() > small {
            // Should there be no memory for the small one, the large one stays.
            if let Ok(true) = self.go_on_in(small) {
                self.writer.forget_old();
                self.kept.drain(..self.kept.len().saturating_sub(1));
            }
        }
    }

    /// Passes a new chunk, then publishes that it is the next.
    fn go_on_in(&mut self, log2: u32) -> Result<bool> {
        let (region, descriptor) = match OwnRegion::new("tontine-chunk", 1 << log2) {
            Ok(made) => made,
            // No memory, no descriptor: as if the cap were reached.
            Err(error) if is_shortage(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        // A dead reader takes no more chunks: its successor gets them all at once.
        if self.ended.is_none() {
            let note = wire::write(Note::Chunk(log2, self.writer.sequence()));
            match socket::send(&self.connection.socket, &note, &[descriptor.as_fd()])? {
                Sent::Yes => {}
                Sent::Full => return Ok(false),
                Sent::Gone => {
                    let peer = self.connection.peer();
                    self.ended = Some(Error::OwnerDied { peer });
                    return Ok(false);
                }
            }
        }
        self.writer.go_on_in(region, log2);
        if self.options.on_death == OnDeath::WaitForSuccessor {
            self.kept.push(descriptor);
        }
        self.published();
        Ok(true)
    }

    /// What we can, and what we bring.
    pub(super) fn fences(&self) -> FenceMode {
        let asymmetric = self.options.fences == Fences::Asymmetric && membarrier::register();
        if asymmetric { FenceMode::Asymmetric } else { FenceMode::Symmetric }
    }
}

/// Two to this power are the bytes of a lane's first chunk.
fn first_log2(options: &Options) -> u32 {
    options.first_chunk.min(options.lane_cap).ilog2()
}

fn is_shortage(error: &Error) -> bool {
    [libc::ENOMEM, libc::ENOSPC, libc::EMFILE, libc::ENFILE].contains(&error.errno())
}

/// How long a call may wait.
enum Patience {
    None,
    Until(Instant),
    Endless,
}

impl Patience {
    fn until(timeout: Duration) -> Self {
        Instant::now().checked_add(timeout).map_or(Self::Endless, Self::Until)
    }

    fn is_over(&self) -> bool {
        match self {
            Self::None => true,
            Self::Until(until) => Instant::now() >= *until,
            Self::Endless => false,
        }
    }

    fn left(&self, most: Duration) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Until(until) => until.saturating_duration_since(Instant::now()).min(most),
            Self::Endless => most,
        }
    }
}

/// Room for one message, written in place. Dropped without [`Reservation::commit`], nothing was sent.
#[derive(Debug)]
pub struct Reservation<'a> {
    sender: &'a mut Sender,
    length: usize,
}

impl Reservation<'_> {
    /// Sends what stands in it.
    ///
    /// # Errors
    /// The reader died or closed meanwhile, and nothing was sent.
    pub fn commit(self) -> Result<()> {
        if !self.sender.connection.joined.as_ref().is_none_or(Joined::is_alive) {
            self.sender.ready()?;
        }
        self.sender.writer.publish(self.length);
        self.sender.published();
        Ok(())
    }
}

impl Deref for Reservation<'_> {
    type Target = [u8];

    #[allow(unsafe_code, reason = "a view of our own memory")]
    fn deref(&self) -> &[u8] {
        let writer = &self.sender.writer;
        // SAFETY: the room was found to fit; nobody else writes it, and nobody publishes it while
        // the sender is borrowed. What an earlier lap left there are initialised bytes.
        unsafe {
            let start = writer.region().base().add(writer.payload_at());
            std::slice::from_raw_parts(start.as_ptr(), self.length)
        }
    }
}

impl DerefMut for Reservation<'_> {
    #[allow(unsafe_code, reason = "a view of our own memory")]
    fn deref_mut(&mut self) -> &mut [u8] {
        let writer = &self.sender.writer;
        // SAFETY: as above; `self` is borrowed mutably.
        unsafe {
            let start = writer.region().base().add(writer.payload_at());
            std::slice::from_raw_parts_mut(start.as_ptr(), self.length)
        }
    }
}

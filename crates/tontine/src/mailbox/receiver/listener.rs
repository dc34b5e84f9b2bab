//! Connections of a mailbox: [`Listener`] owns the listening socket, the pending connections, and
//! the epoll set behind the mailbox's single descriptor.
//!
//! Work that fails for lack of descriptors or memory is *deferred*: its entry in the set becomes
//! edge-triggered, and a timer in the set fires when a retry is due. A caller that waits on the
//! descriptor therefore sleeps until the retry. Doorbells are edge-triggered too, because their
//! rings may stay queued. Neighbours: [`super::service`] processes the events,
//! [`super::handshake`] makes lanes from pending connections.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::bound_path::BoundPath;
use crate::error::{Error, Result};
use crate::mailbox::address::{Address, AddressKind};
use crate::mailbox::wire::{ControlMessage, DecodeError};
use crate::sys::fork::Guard;
use crate::sys::quarantine;
use crate::sys::socket::{self, ListenerSocket, PassedMessage, PeerSocket};

/// Maximum number of accepted connections without `HELLO`; one more drops the oldest.
const MAX_SILENT_CONNECTIONS: usize = 64;

/// Maximum number of events returned per call.
const EVENTS: usize = 64;

/// Time after which deferred work is retried.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Level-triggered events, reported as long as the descriptor is readable.
const STEADILY: epoll::EventFlags = epoll::EventFlags::IN;

/// Edge-triggered events, reported once, then again for each new event.
const ONCE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ET);

/// Maximum number of connections that wait to be accepted; the kernel's own limit may be lower.
pub(super) const BACKLOG: i32 = 4096;

/// Source of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventSource {
    /// The listener: a sender is connecting.
    Listener,
    /// The connection with this number, which has not sent `HELLO`.
    PendingConnection(u32),
    /// A lane's socket: a control message, or the hang-up.
    Socket(u32, u32),
    /// A lane's doorbell.
    Doorbell(u32, u32),
    /// The end of a lane's process.
    Process(u32, u32),
    /// A timer event: a retry of deferred work is due.
    Timer,
    /// A thread that wakes the mailbox.
    Waker,
}

const KIND_SHIFT: u32 = 56;
const GENERATION_SHIFT: u32 = 32;
pub(super) const GENERATION_MASK: u32 = 0x00ff_ffff;

impl EventSource {
    /// Encodes the source as the user data of an event.
    ///
    /// ```text
    ///  63     56 55           32 31                             0
    /// +---------+---------------+--------------------------------+
    /// |  kind   |  generation   |          slot or number        |
    /// +---------+---------------+--------------------------------+
    /// ```
    fn word(self) -> u64 {
        let (kind, slot, generation) = match self {
            Self::Listener => (0, 0, 0),
            Self::PendingConnection(number) => (1, number, 0),
            Self::Socket(slot, generation) => (2, slot, generation),
            Self::Doorbell(slot, generation) => (3, slot, generation),
            Self::Process(slot, generation) => (4, slot, generation),
            Self::Timer => (5, 0, 0),
            Self::Waker => (6, 0, 0),
        };
        u64::from(slot)
            | u64::from(generation & GENERATION_MASK) << GENERATION_SHIFT
            | kind << KIND_SHIFT
    }

    /// Decodes the user data of an event.
    fn of(word: u64) -> Self {
        let slot = word as u32;
        let generation = (word >> GENERATION_SHIFT) as u32 & GENERATION_MASK;
        match word >> KIND_SHIFT {
            0 => Self::Listener,
            1 => Self::PendingConnection(slot),
            2 => Self::Socket(slot, generation),
            3 => Self::Doorbell(slot, generation),
            4 => Self::Process(slot, generation),
            5 => Self::Timer,
            _ => Self::Waker,
        }
    }
}

/// Returns `true` if the generations are equal in the bits that an event carries.
pub(super) fn same_generation(event: u32, generation: u32) -> bool {
    event == generation & GENERATION_MASK
}

/// A connection that is not a lane yet.
pub(super) struct PendingConnection {
    number: u32,
    pub(super) socket: PeerSocket,
    /// `true` if the program added the connection with `adopt`: it may be silent indefinitely.
    adopted: bool,
    /// Time since which the connection has been silent, or deferred.
    since: Instant,
    /// The first message, if it arrived before the handshake was deferred.
    pub(super) first_message: Option<FirstMessage>,
    /// The shortage because of which the connection was deferred.
    pub(super) lack: Option<Error>,
    /// `true` once the shortage was reported to the program.
    reported: bool,
}

/// A connection's first message, with the descriptors that it passed.
pub(super) type FirstMessage = (Result<ControlMessage, DecodeError>, PassedMessage);

/// The next connection that was accepted.
pub(super) enum NextConnection {
    /// No connection waits.
    Nothing,
    /// The number of a pending connection.
    Pending(u32),
    /// A connection of a user that is not allowed, from which nothing was received.
    Stranger(PeerSocket, Error),
}

impl PendingConnection {
    /// Returns `true` if the handshake timeout applies to the connection.
    fn has_deadline(&self) -> bool {
        !self.adopted || self.lack.is_some()
    }
}

/// The listener, pending connections and epoll set of one mailbox.
pub(super) struct Listener {
    set: OwnedFd,
    listener: Option<ListenerSocket>,
    /// `true` while accepting connections is deferred.
    is_paused: bool,
    /// Created early, because no descriptor may be left for a timer when work is deferred.
    timer: OwnedFd,
    timer_runs: bool,
    bound: Option<BoundPath>,
    connections: Vec<PendingConnection>,
    next_number: u32,
    wait_number: u64,
    /// The number of the wait last announced to senders.
    announced: u64,
    guard: Guard,
}

impl Listener {
    /// Makes the set, and opens a listener at `address`, if one is given.
    ///
    /// # Errors
    /// [`Error::AddrInUse`] if the address has a live owner, [`Error::InvalidAddress`] if it is
    /// invalid, or the error of a system call.
    pub(super) fn open(address: Option<&Address>, mode: u32) -> Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| Error::system("epoll_create1", errno))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|errno| Error::system("timerfd_create", errno))?;
        let mut door = Self {
            set,
            listener: None,
            is_paused: false,
            timer,
            timer_runs: false,
            bound: None,
            connections: Vec::new(),
            next_number: 0,
            wait_number: 1,
            announced: 0,
            guard: Guard::here()?,
        };
        door.watch(door.timer.as_fd(), EventSource::Timer)?;
        match address.map(|address| &address.0) {
            None => return Ok(door),
            Some(AddressKind::Abstract(name)) => {
                let listener = ListenerSocket::new()?;
                socket::bind_abstract(&listener, name)?;
                door.listener = Some(listener);
            }
            Some(AddressKind::Path(path)) => {
                let (listener, bound) = BoundPath::bind(path, mode, BACKLOG)?;
                door.listener = Some(listener);
                door.bound = Some(bound);
            }
        }
        if let Some(listener) = &door.listener {
            socket::pass_credentials(listener)?;
            if door.bound.is_none() {
                socket::listen(listener, BACKLOG)?;
            }
            door.watch(listener.as_fd(), EventSource::Listener)?;
        }
        Ok(door)
    }

    /// Accepts connections at a listening socket that was passed to this process.
    ///
    /// # Errors
    /// [`Error::System`] if the socket cannot be watched, or its options cannot be set.
    pub(super) fn listen(&mut self, socket: OwnedFd) -> Result<()> {
        let listener = ListenerSocket::passed(socket)?;
        socket::pass_credentials(&listener)?;
        socket::set_nonblocking(&listener)?;
        // A second `listen` would name this process as the listener's, so that senders would be
        // refused from its death until its successor calls `listen`.
        self.watch(listener.as_fd(), EventSource::Listener)?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Returns the descriptor that becomes readable when an event is pending.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Adds `descriptor` to the set, which then reports it for as long as it is readable.
    ///
    /// # Errors
    /// [`Error::System`] if there is no memory for another entry in the set.
    pub(super) fn watch(&self, descriptor: BorrowedFd<'_>, about: EventSource) -> Result<()> {
        self.set_flags(descriptor, about, STEADILY)
    }

    /// Adds `descriptor` to the set, which then reports each new event of it once.
    ///
    /// # Errors
    /// The errors of [`Listener::watch`].
    pub(super) fn watch_edges(&self, descriptor: BorrowedFd<'_>, about: EventSource) -> Result<()> {
        self.set_flags(descriptor, about, ONCE)
    }

    /// Defers the work for `descriptor`: the set reports it once more, then only at new events, and
    /// the timer fires when a retry is due. A second call would make the set report it once more.
    ///
    /// # Errors
    /// The errors of [`Listener::watch`], if the descriptor was not watched.
    pub(super) fn defer(&mut self, descriptor: BorrowedFd<'_>, about: EventSource) -> Result<()> {
        self.try_later();
        self.set_flags(descriptor, about, ONCE)
    }

    fn set_flags(
        &self,
        descriptor: BorrowedFd<'_>,
        about: EventSource,
        flags: epoll::EventFlags,
    ) -> Result<()> {
        let data = epoll::EventData::new_u64(about.word());
        // Modifying an entry needs no memory.
        match epoll::modify(&self.set, descriptor, data, flags) {
            Err(Errno::NOENT) => epoll::add(&self.set, descriptor, data, flags),
            done => done,
        }
        .map_err(|errno| Error::system("epoll_ctl", errno))
    }

    /// Sets the timer to fire when a retry is due.
    pub(super) fn try_later(&mut self) {
        if !self.timer_runs {
            self.timer_runs = self.set_timer(TRY_AGAIN_AFTER);
        }
    }

    /// Stops the timer, which has fired.
    pub(super) fn stop_timer(&mut self) {
        if self.timer_runs {
            self.set_timer(Duration::ZERO);
            self.timer_runs = false;
        }
    }

    fn set_timer(&self, after: Duration) -> bool {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec { tv_sec: 0, tv_nsec: after.subsec_nanos().into() };
        let once = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_ok()
    }

    /// Removes `descriptor` from the set.
    pub(super) fn unwatch(&self, descriptor: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.set, descriptor);
    }

    /// Returns the number, not 0, of the current or next wait for events. A sender rings at most
    /// once per wait.
    pub(super) fn wait_number(&self) -> u64 {
        self.wait_number
    }

    /// Returns the number of the next wait, to announce it to senders.
    pub(super) fn announce(&mut self) -> u64 {
        self.announced = self.wait_number;
        self.wait_number
    }

    /// Returns `true` if the next wait was announced: its events may have happened.
    pub(super) fn is_announced(&self) -> bool {
        self.announced == self.wait_number
    }

    /// Waits for events, for at most `timeout` if given, and returns them. A signal ends the wait,
    /// like an event.
    ///
    /// # Errors
    /// - [`Error::Interrupted`] if a signal handler ran during the wait.
    /// - [`Error::System`] if `epoll_wait` fails.
    pub(super) fn events(&mut self, timeout: Option<Duration>) -> Result<Vec<EventSource>> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().min(i64::MAX as u64).cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let buffer = rustix::buffer::spare_capacity(&mut events);
        let waited = epoll::wait(&self.set, buffer, timeout.as_ref());
        // The set reports each ring once. A sender may ring once more as of now.
        self.wait_number += 1;
        match waited {
            Ok(_) => Ok(events.iter().map(|event| EventSource::of(event.data.u64())).collect()),
            Err(Errno::INTR) => Err(Error::Interrupted),
            Err(errno) => Err(Error::system("epoll_wait", errno)),
        }
    }

    /// Accepts the next connection, and calls `admit` to check the process that connected. Receives
    /// nothing.
    ///
    /// # Errors
    /// [`Error::System`] if no descriptor is free, or if too many refused connections are still
    /// being closed.
    pub(super) fn accept(
        &mut self,
        admit: impl Fn(&PeerSocket) -> Result<()>,
    ) -> Result<NextConnection> {
        let Some(listener) = &self.listener else { return Ok(NextConnection::Nothing) };
        if quarantine::is_behind() {
            return Err(Error::system("closing refused connections", Errno::AGAIN));
        }
        let Some(socket) = socket::accept(listener)? else { return Ok(NextConnection::Nothing) };
        let socket = PeerSocket::new(socket)?;
        if let Err(error) = admit(&socket) {
            return Ok(NextConnection::Stranger(socket, error));
        }
        let strangers = self.connections.iter().filter(|connection| !connection.adopted).count();
        if strangers >= MAX_SILENT_CONNECTIONS
            && let Some(oldest) = self.connections.iter().position(|connection| !connection.adopted)
        {
            // The oldest is unlikely to be honest: honest senders send `HELLO` immediately.
            let oldest = self.connections.remove(oldest);
            self.unwatch(oldest.socket.as_fd());
        }
        // Set the option here too: a connection made before the listener had the option lacks it.
        socket::pass_credentials(&socket)?;
        Ok(NextConnection::Pending(self.add_pending(socket, false)))
    }

    /// Adds a connected socket that the program passed as a pending connection.
    ///
    /// # Errors
    /// [`Error::InvalidSocket`] or [`Error::System`] if the descriptor is not a connected socket of
    /// the expected type or cannot be watched.
    pub(super) fn adopt(&mut self, socket: OwnedFd) -> Result<()> {
        socket::check_connected(&socket)?;
        let socket = PeerSocket::new(socket)?;
        socket::pass_credentials(&socket)?;
        let number = self.add_pending(socket, true);
        match self.connection(number).and_then(|connection| connection.lack.clone()) {
            None => Ok(()),
            Some(lack) => {
                self.take(number);
                Err(lack)
            }
        }
    }

    /// Adds a pending connection, and returns its number.
    fn add_pending(&mut self, socket: PeerSocket, adopted: bool) -> u32 {
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        let lack = self.watch(socket.as_fd(), EventSource::PendingConnection(number)).err();
        let since = Instant::now();
        self.connections.push(PendingConnection {
            number,
            socket,
            adopted,
            since,
            first_message: None,
            lack,
            reported: false,
        });
        number
    }

    fn connection(&self, number: u32) -> Option<&PendingConnection> {
        self.connections.iter().find(|connection| connection.number == number)
    }

    /// Removes and returns a pending connection, which stays in the epoll set.
    pub(super) fn take(&mut self, number: u32) -> Option<PendingConnection> {
        let place = self.connections.iter().position(|connection| connection.number == number)?;
        Some(self.connections.remove(place))
    }

    /// Puts a connection back, to wait for its first message.
    pub(super) fn keep(&mut self, mut connection: PendingConnection) {
        if connection.lack.take().is_some() {
            connection.lack = self
                .watch(connection.socket.as_fd(), EventSource::PendingConnection(connection.number))
                .err();
        }
        if connection.lack.is_some() {
            self.try_later();
        }
        // The connection is inserted at its old position, because the oldest must be first.
        let place = self.connections.partition_point(|other| other.since <= connection.since);
        self.connections.insert(place, connection);
    }

    /// Defers a connection until the resources to accept it are available; no other connection is
    /// accepted before it. Returns `true` if the connection was not already deferred.
    pub(super) fn keep_for_later(
        &mut self,
        mut connection: PendingConnection,
        lack: Error,
    ) -> bool {
        connection.lack = Some(lack);
        let is_new = !std::mem::replace(&mut connection.reported, true);
        if is_new {
            // The delay is now this process's fault, so the timeout starts again.
            connection.since = Instant::now();
            // This call needs no memory, because the descriptor is already in the set.
            let _ = self.defer(
                connection.socket.as_fd(),
                EventSource::PendingConnection(connection.number),
            );
        }
        self.try_later();
        let place = self.connections.partition_point(|other| other.since <= connection.since);
        self.connections.insert(place, connection);
        is_new
    }

    /// Returns `true` if a connection may become a lane, or accepting connections is deferred.
    pub(super) fn is_connecting(&self) -> bool {
        self.is_paused || !self.connections.is_empty()
    }

    /// Returns `true` if a connection is deferred.
    pub(super) fn has_deferred(&self) -> bool {
        self.connections.iter().any(|connection| connection.lack.is_some())
    }

    /// Returns the numbers of the connections whose first message, or end, has arrived. Makes one
    /// system call if there are connections without a message.
    pub(super) fn heard_numbers(&self) -> Vec<u32> {
        let silent = self.connections.iter().filter(|connection| connection.lack.is_none());
        let (numbers, mut sockets): (Vec<u32>, Vec<PollFd<'_>>) =
            silent.map(|one| (one.number, PollFd::new(&one.socket, PollFlags::IN))).unzip();
        if numbers.is_empty() {
            return numbers;
        }
        let failed = poll(&mut sockets, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_err();
        let heard = numbers.into_iter().zip(sockets);
        heard
            .filter(|(_, socket)| failed || !socket.revents().is_empty())
            .map(|(number, _)| number)
            .collect()
    }

    /// Returns the numbers of the deferred connections.
    pub(super) fn deferred_numbers(&self) -> Vec<u32> {
        let put_off = self.connections.iter().filter(|connection| connection.lack.is_some());
        put_off.map(|connection| connection.number).collect()
    }

    /// Stops accepting connections until [`Listener::resume_accept`]. Returns `true` if accepting
    /// was not already paused.
    pub(super) fn pause_accept(&mut self) -> bool {
        let is_new = !self.is_paused;
        self.is_paused = true;
        self.try_later();
        if is_new && let Some(listener) = &self.listener {
            // This call needs no memory, because the descriptor is already in the set.
            let _ = self.set_flags(listener.as_fd(), EventSource::Listener, ONCE);
        }
        is_new
    }

    /// Resumes accepting connections.
    pub(super) fn resume_accept(&mut self) {
        if std::mem::take(&mut self.is_paused)
            && let Some(listener) = &self.listener
        {
            let _ = self.watch(listener.as_fd(), EventSource::Listener);
        }
    }

    /// Returns `true` if work is deferred.
    pub(super) fn is_waiting(&self) -> bool {
        self.timer_runs
    }

    /// Returns `true` if accepting connections is deferred.
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Removes and returns the connections that have been silent, or deferred, for longer than
    /// `deadline`.
    pub(super) fn expire(&mut self, deadline: Duration) -> Vec<PendingConnection> {
        let over = |connection: &mut PendingConnection| {
            connection.has_deadline() && connection.since.elapsed() > deadline
        };
        let expired: Vec<PendingConnection> = self.connections.extract_if(.., over).collect();
        // The sockets are removed explicitly, because a forked child's copies would keep them in
        // the set.
        expired.iter().for_each(|connection| self.unwatch(connection.socket.as_fd()));
        expired
    }

    /// Returns the time until the connection that has been silent longest exceeds `deadline`.
    pub(super) fn next_expiry(&self, deadline: Duration) -> Option<Duration> {
        let connections = self.connections.iter().filter(|connection| connection.has_deadline());
        let longest = connections.map(|connection| connection.since.elapsed()).max()?;
        Some(deadline.saturating_sub(longest).saturating_add(Duration::from_millis(1)))
    }

    /// Returns an error, once, if the mailbox's path no longer leads here.
    pub(super) fn look_at_names(&mut self) -> Option<Error> {
        self.bound.as_mut()?.look()
    }

    /// Removes the names and closes the listener, so that no process can connect any more.
    pub(super) fn close(&mut self) {
        let bound = self.bound.take();
        if let Some(bound) = &bound {
            bound.unlink();
        }
        self.listener = None;
        drop(bound);
        self.connections.clear();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // In a forked child, the name and the listener belong to the parent.
        if !self.guard.is_forked() {
            self.close();
        }
    }
}

//! Where senders knock: [`Door`], the listener, those who are not taken yet, and the one descriptor
//! that tells of everything.
//!
//! What cannot be dealt with for want of descriptors or memory is *put off*: the set tells of it
//! once and not again and again, and a timer in the set tells when to try again. So whoever waits
//! for the descriptor sleeps meanwhile, and is woken in time.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::address::{Address, FileId, Place, file_id};
use super::wire::{Note, Unreadable};
use crate::error::{Error, Peer, Result};
use crate::life::PathLock;
use crate::sys::fork::Guard;
use crate::sys::quarantine;
use crate::sys::socket::{self, Passed, Socket, SocketPath};

/// Connections that were accepted and have not said `HELLO`: beyond this the oldest is dropped.
const MOST_KNOCKERS: usize = 64;

/// Events taken in one go.
const EVENTS: usize = 64;

/// What was put off is tried again after so long.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// To be told as long as there is something to do.
const STEADILY: epoll::EventFlags = epoll::EventFlags::IN;

/// To be told of what is there, and then of what comes anew only.
const ONCE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ET);

/// Those who connect while nobody accepts wait here; the kernel's own limit may be lower.
const BACKLOG: i32 = 4096;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// Somebody connects.
    Listener,
    /// A connection of this number that has not said `HELLO`.
    Knocker(u32),
    /// A lane's socket: notes, or the hang-up.
    Socket(u32, u32),
    /// A lane's doorbell.
    Doorbell(u32, u32),
    /// The end of a lane's process.
    Process(u32, u32),
    /// It is time to try again what was put off.
    Timer,
}

const KIND_SHIFT: u32 = 56;
const GENERATION_SHIFT: u32 = 32;
pub(super) const GENERATION_MASK: u32 = 0x00ff_ffff;

impl About {
    /// ```text
    ///  63     56 55           32 31                             0
    /// +---------+---------------+--------------------------------+
    /// |  kind   |  generation   |          slot or number        |
    /// +---------+---------------+--------------------------------+
    /// ```
    fn word(self) -> u64 {
        let (kind, slot, generation) = match self {
            Self::Listener => (0, 0, 0),
            Self::Knocker(number) => (1, number, 0),
            Self::Socket(slot, generation) => (2, slot, generation),
            Self::Doorbell(slot, generation) => (3, slot, generation),
            Self::Process(slot, generation) => (4, slot, generation),
            Self::Timer => (5, 0, 0),
        };
        u64::from(slot)
            | u64::from(generation & GENERATION_MASK) << GENERATION_SHIFT
            | kind << KIND_SHIFT
    }

    fn of(word: u64) -> Self {
        let slot = word as u32;
        let generation = (word >> GENERATION_SHIFT) as u32 & GENERATION_MASK;
        match word >> KIND_SHIFT {
            0 => Self::Listener,
            1 => Self::Knocker(slot),
            2 => Self::Socket(slot, generation),
            3 => Self::Doorbell(slot, generation),
            4 => Self::Process(slot, generation),
            _ => Self::Timer,
        }
    }
}

/// Whether an event's generation is this one, as far as an event holds it.
pub(super) fn same_generation(event: u32, generation: u32) -> bool {
    event == generation & GENERATION_MASK
}

/// A connection that is no lane yet.
pub(super) struct Knocker {
    number: u32,
    pub(super) socket: Socket,
    /// The program gave it to us: it may be silent for as long as the program likes.
    adopted: bool,
    /// Since when it has been silent, or put off.
    since: Instant,
    /// What it said, where it could not be answered at once.
    pub(super) said: Option<Said>,
    /// For want of what it was put off.
    pub(super) lack: Option<Error>,
    /// The program was told of that.
    told: bool,
}

/// A connection's first message, with what it passed.
pub(super) type Said = (Result<Note, Unreadable>, Passed);

/// The next connection that was accepted.
pub(super) enum Accepted {
    /// None is waiting.
    Nothing,
    /// A connection that is pending, by its number.
    Pending(u32),
    /// The process that connected belongs to a user that is not allowed: nothing was received.
    Stranger(Socket, Error),
}

impl Knocker {
    /// Whether it may wait for so long and no longer.
    fn has_deadline(&self) -> bool {
        !self.adopted || self.lack.is_some()
    }
}

/// Listener and epoll set.
pub(super) struct Door {
    set: OwnedFd,
    listener: Option<OwnedFd>,
    /// Newcomers are put off.
    is_shut: bool,
    /// Made before there is anything to put off: then there may be no descriptor for it.
    timer: OwnedFd,
    timer_runs: bool,
    /// The listener's path and socket file. Removed on drop; the path lock is released after that.
    bound: Option<(PathBuf, FileId)>,
    _lock: Option<PathLock>,
    knockers: Vec<Knocker>,
    next_number: u32,
    guard: Guard,
}

impl Door {
    /// Opens at `address`, or without one.
    ///
    /// # Errors
    /// The address has a living owner, is not ours to take, or is none.
    pub(super) fn open(address: Option<&Address>, mode: u32) -> Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| Error::system("epoll_create1", errno))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|errno| Error::system("timerfd_create", errno))?;
        let mut door = Self {
            set,
            listener: None,
            is_shut: false,
            timer,
            timer_runs: false,
            bound: None,
            _lock: None,
            knockers: Vec::new(),
            next_number: 0,
            guard: Guard::here()?,
        };
        door.watch(door.timer.as_fd(), About::Timer)?;
        match address.map(|address| &address.0) {
            None => return Ok(door),
            Some(Place::Abstract(name)) => {
                let listener = socket::seqpacket()?;
                socket::bind_abstract(&listener, name)?;
                door.listener = Some(listener);
            }
            Some(Place::Path(path)) => {
                // What no socket can have gets no lock file.
                SocketPath::new(path)?;
                door._lock = Some(PathLock::acquire(path)?);
                let (listener, file) =
                    take_over(path, mode).map_err(|error| error.at(path.display()))?;
                door.listener = Some(listener);
                door.bound = Some((path.clone(), file));
            }
        }
        if let Some(listener) = &door.listener {
            socket::pass_credentials(listener)?;
            if door.bound.is_none() {
                socket::listen(listener, BACKLOG)?;
            }
            door.watch(listener.as_fd(), About::Listener)?;
        }
        Ok(door)
    }

    /// The descriptor that becomes readable when there is something to do.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Tells from now on that `descriptor` is readable.
    ///
    /// # Errors
    /// There is no memory for one more in the set.
    pub(super) fn watch(&self, descriptor: BorrowedFd<'_>, about: About) -> Result<()> {
        self.tell(descriptor, about, STEADILY)
    }

    /// Tells of `descriptor` once more, then only what is new, and when it is time to try again.
    /// Not to be said twice: it would tell again.
    ///
    /// # Errors
    /// As [`Door::watch`], where it was not watched.
    pub(super) fn put_off(&mut self, descriptor: BorrowedFd<'_>, about: About) -> Result<()> {
        self.try_later();
        self.tell(descriptor, about, ONCE)
    }

    fn tell(
        &self,
        descriptor: BorrowedFd<'_>,
        about: About,
        flags: epoll::EventFlags,
    ) -> Result<()> {
        let data = epoll::EventData::new_u64(about.word());
        // What is in the set already needs no memory.
        match epoll::modify(&self.set, descriptor, data, flags) {
            Err(Errno::NOENT) => epoll::add(&self.set, descriptor, data, flags),
            done => done,
        }
        .map_err(|errno| Error::system("epoll_ctl", errno))
    }

    /// Has the timer tell when it is time to try again.
    pub(super) fn try_later(&mut self) {
        if !self.timer_runs {
            self.timer_runs = self.set_timer(TRY_AGAIN_AFTER);
        }
    }

    /// Has the timer say nothing more. It has told.
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

    /// Tells no longer of `descriptor`.
    pub(super) fn unwatch(&self, descriptor: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.set, descriptor);
    }

    /// What has happened, within `timeout`; for ever where there is none. A signal ends the wait
    /// like an event.
    ///
    /// # Errors
    /// `epoll_wait` fails.
    pub(super) fn events(&self, timeout: Option<Duration>) -> Result<Vec<About>> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().min(i64::MAX as u64).cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let buffer = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.set, buffer, timeout.as_ref()) {
            Ok(_) => Ok(events.iter().map(|event| About::of(event.data.u64())).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(errno) => Err(Error::system("epoll_wait", errno)),
        }
    }

    /// Accepts the next connection, and has `admit` look at the process that connected. Receives
    /// nothing.
    ///
    /// # Errors
    /// There is no descriptor for it; or too many of those that were refused are still open.
    pub(super) fn accept(&mut self, admit: impl Fn(Peer) -> Result<()>) -> Result<Accepted> {
        let Some(listener) = &self.listener else { return Ok(Accepted::Nothing) };
        if quarantine::is_behind() {
            return Err(Error::system("closing refused connections", Errno::AGAIN));
        }
        let Some(socket) = socket::accept(listener)? else { return Ok(Accepted::Nothing) };
        let socket = Socket::new(socket)?;
        if let Err(error) = admit(socket::owner(&socket)?.peer()) {
            return Ok(Accepted::Stranger(socket, error));
        }
        let strangers = self.knockers.iter().filter(|knocker| !knocker.adopted).count();
        if strangers >= MOST_KNOCKERS
            && let Some(oldest) = self.knockers.iter().position(|knocker| !knocker.adopted)
        {
            // Whoever means it says `HELLO` with its first breath.
            let oldest = self.knockers.remove(oldest);
            self.unwatch(oldest.socket.as_fd());
        }
        // Who connected before the listener was told to has not inherited it.
        socket::pass_credentials(&socket)?;
        Ok(Accepted::Pending(self.let_knock(socket, false)))
    }

    /// Waits for the `HELLO` of a connected socket of the program's.
    ///
    /// # Errors
    /// It is no socket, or cannot be watched.
    pub(super) fn adopt(&mut self, socket: OwnedFd) -> Result<()> {
        socket::check_connected(&socket)?;
        let socket = Socket::new(socket)?;
        socket::pass_credentials(&socket)?;
        let number = self.let_knock(socket, true);
        match self.knocker(number).and_then(|knocker| knocker.lack.clone()) {
            None => Ok(()),
            Some(lack) => {
                self.take(number);
                Err(lack)
            }
        }
    }

    fn let_knock(&mut self, socket: Socket, adopted: bool) -> u32 {
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        let lack = self.watch(socket.as_fd(), About::Knocker(number)).err();
        let since = Instant::now();
        self.knockers.push(Knocker {
            number,
            socket,
            adopted,
            since,
            said: None,
            lack,
            told: false,
        });
        number
    }

    fn knocker(&self, number: u32) -> Option<&Knocker> {
        self.knockers.iter().find(|knocker| knocker.number == number)
    }

    /// Takes a connection out of those who wait. The set still tells of it.
    pub(super) fn take(&mut self, number: u32) -> Option<Knocker> {
        let place = self.knockers.iter().position(|knocker| knocker.number == number)?;
        Some(self.knockers.remove(place))
    }

    /// Lets a connection wait until it speaks.
    pub(super) fn keep(&mut self, mut knocker: Knocker) {
        if knocker.lack.take().is_some() {
            knocker.lack = self.watch(knocker.socket.as_fd(), About::Knocker(knocker.number)).err();
        }
        if knocker.lack.is_some() {
            self.try_later();
        }
        // In its old place: the oldest is the first.
        let place = self.knockers.partition_point(|other| other.since <= knocker.since);
        self.knockers.insert(place, knocker);
    }

    /// Lets a connection wait until there is what it takes to welcome it; nobody else is accepted
    /// before. Returns whether that is new.
    pub(super) fn keep_for_later(&mut self, mut knocker: Knocker, lack: Error) -> bool {
        knocker.lack = Some(lack);
        let is_new = !std::mem::replace(&mut knocker.told, true);
        if is_new {
            // From now on it is we who take long.
            knocker.since = Instant::now();
            // It is in the set, and needs no memory there.
            let _ = self.put_off(knocker.socket.as_fd(), About::Knocker(knocker.number));
        }
        self.try_later();
        let place = self.knockers.partition_point(|other| other.since <= knocker.since);
        self.knockers.insert(place, knocker);
        is_new
    }

    /// The numbers of those who were put off.
    pub(super) fn put_off_ones(&self) -> Vec<u32> {
        let put_off = self.knockers.iter().filter(|knocker| knocker.lack.is_some());
        put_off.map(|knocker| knocker.number).collect()
    }

    /// Accepts nobody, until [`Door::unshut`]. Returns whether that is new.
    pub(super) fn shut(&mut self) -> bool {
        let is_new = !self.is_shut;
        self.is_shut = true;
        self.try_later();
        if is_new && let Some(listener) = &self.listener {
            // It is in the set, and needs no memory there.
            let _ = self.tell(listener.as_fd(), About::Listener, ONCE);
        }
        is_new
    }

    /// Tells of newcomers as before.
    pub(super) fn unshut(&mut self) {
        if std::mem::take(&mut self.is_shut)
            && let Some(listener) = &self.listener
        {
            let _ = self.watch(listener.as_fd(), About::Listener);
        }
    }

    /// Whether something is put off.
    pub(super) fn is_waiting(&self) -> bool {
        self.timer_runs
    }

    /// Whether newcomers are put off.
    pub(super) fn is_shut(&self) -> bool {
        self.is_shut
    }

    /// Takes out those who have been silent, or put off, for longer than `deadline`.
    pub(super) fn expire(&mut self, deadline: Duration) -> Vec<Knocker> {
        let over =
            |knocker: &mut Knocker| knocker.has_deadline() && knocker.since.elapsed() > deadline;
        let expired: Vec<Knocker> = self.knockers.extract_if(.., over).collect();
        // A forked child of ours may hold a copy, and a copy keeps it in the set.
        expired.iter().for_each(|knocker| self.unwatch(knocker.socket.as_fd()));
        expired
    }

    /// When the longest silent one will have been silent for `deadline`.
    pub(super) fn next_expiry(&self, deadline: Duration) -> Option<Duration> {
        let knockers = self.knockers.iter().filter(|knocker| knocker.has_deadline());
        let longest = knockers.map(|knocker| knocker.since.elapsed()).max()?;
        Some(deadline.saturating_sub(longest).saturating_add(Duration::from_millis(1)))
    }

    /// Ends the name: no process can connect any more.
    pub(super) fn close(&mut self) {
        if let Some((path, file)) = self.bound.take()
            // As long as the listener is open, no other file has its inode.
            && std::fs::symlink_metadata(&path).is_ok_and(|found| file_id(&found) == file)
        {
            let _ = std::fs::remove_file(path);
        }
        if let Some(listener) = self.listener.take() {
            socket::close_listener(listener);
        }
        self.knockers.clear();
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // In a forked child name and listener are the parent's.
        if !self.guard.is_forked() {
            self.close();
        }
    }
}

/// Listens at `path` in place of a dead owner. Its path lock is ours already.
///
/// The socket is bound and listening under a name of its own first and renamed over the old one
/// then, so that the path always leads to somebody's socket.
fn take_over(path: &Path, mode: u32) -> Result<(OwnedFd, FileId)> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let address = || path.display().to_string();
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            let reason = "expected a socket or nothing at this path, found another file; remove it \
                       or choose another path";
            return Err(Error::InvalidAddress { address: address(), reason });
        }
        _ => {}
    }
    let temporary = SocketPath::temporary(path)?;
    let new = temporary.as_path();
    // The path lock proves that a process that made one of this name has ended.
    match std::fs::remove_file(new) {
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            let reason = "`bind` makes its socket under this name first, and found a folder; \
                          remove it or choose another path";
            return Err(Error::InvalidAddress { address: temporary.display().to_string(), reason });
        }
        // If it cannot be removed, `bind` fails and returns the reason.
        _ => {}
    }
    let listener = socket::seqpacket()?;
    socket::bind_path(&listener, &temporary)?;
    let named = (|| {
        let file = std::fs::symlink_metadata(new).map_err(|error| Error::io("lstat", &error))?;
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(new, permissions).map_err(|error| Error::io("chmod", &error))?;
        socket::listen(&listener, BACKLOG)?;
        std::fs::rename(new, path).map_err(|error| Error::io("rename", &error))?;
        Ok(file_id(&file))
    })();
    if named.is_err() {
        let _ = std::fs::remove_file(new);
    }
    named.map(|file| (listener, file))
}

//! Where senders knock: [`Door`], the listener, those who have not said who they are, and the one
//! descriptor that tells of everything.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::address::{Address, Place};
use crate::error::{Error, Result};
use crate::life::Claim;
use crate::sys::socket::{self, Socket};

/// Connections that have not said `HELLO`: beyond this the oldest is dropped.
const MOST_KNOCKERS: usize = 64;

/// Connections taken in one go.
const ACCEPTED_AT_ONCE: usize = 16;

/// Events taken in one go.
const EVENTS: usize = 64;

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
}

const KIND_SHIFT: u32 = 56;
const GENERATION_SHIFT: u32 = 32;
const GENERATION_MASK: u32 = 0x00ff_ffff;

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
            _ => Self::Process(slot, generation),
        }
    }
}

/// Whether an event's generation is this one, as far as an event holds it.
pub(super) fn same_generation(event: u32, generation: u32) -> bool {
    event == generation & GENERATION_MASK
}

/// A connection that has not said who it is.
pub(super) struct Knocker {
    pub(super) number: u32,
    pub(super) socket: Socket,
    since: Instant,
}

/// Listener and epoll set.
pub(super) struct Door {
    set: OwnedFd,
    listener: Option<OwnedFd>,
    /// Removed when the mailbox is dropped; the claim is given back after that.
    path: Option<PathBuf>,
    _claim: Option<Claim>,
    knockers: Vec<Knocker>,
    next_number: u32,
}

impl Door {
    /// Opens at `address`, or without one.
    ///
    /// # Errors
    /// The address has a living owner, is not ours to take, or is none.
    pub(super) fn open(address: Option<&Address>, mode: u32) -> Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| Error::system("epoll_create1", errno))?;
        let mut door = Self {
            set,
            listener: None,
            path: None,
            _claim: None,
            knockers: Vec::new(),
            next_number: 0,
        };
        match address.map(|address| &address.0) {
            None => return Ok(door),
            Some(Place::Abstract(name)) => {
                let listener = socket::seqpacket()?;
                socket::bind_abstract(&listener, name)?;
                door.listener = Some(listener);
            }
            Some(Place::Path(path)) => {
                socket::check_path(path)?;
                door._claim = Some(Claim::take(path)?);
                door.listener = Some(take_over(path, mode)?);
                door.path = Some(path.clone());
            }
        }
        if let Some(listener) = &door.listener {
            socket::pass_credentials(listener)?;
            if door.path.is_none() {
                socket::listen(listener, BACKLOG)?;
            }
            door.watch(listener.as_fd(), About::Listener, epoll::EventFlags::IN)?;
        }
        Ok(door)
    }

    /// The descriptor that becomes readable when there is something to do.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Tells of `flags` on `descriptor`.
    ///
    /// # Errors
    /// The set is full.
    pub(super) fn watch(
        &self,
        descriptor: BorrowedFd<'_>,
        about: About,
        flags: epoll::EventFlags,
    ) -> Result<()> {
        epoll::add(&self.set, descriptor, epoll::EventData::new_u64(about.word()), flags)
            .map_err(|errno| Error::system("epoll_ctl", errno))
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

    /// Takes those who connect; a bounded number.
    ///
    /// # Errors
    /// No descriptor is free for them.
    pub(super) fn accept(&mut self) -> Result<()> {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(listener) = &self.listener else { return Ok(()) };
            let Some(socket) = socket::accept(listener)? else { return Ok(()) };
            self.admit(socket)?;
        }
        Ok(())
    }

    /// Waits for a connected socket's `HELLO`.
    ///
    /// # Errors
    /// It cannot be watched.
    pub(super) fn admit(&mut self, socket: OwnedFd) -> Result<()> {
        if self.knockers.len() == MOST_KNOCKERS {
            // Whoever means it says `HELLO` with its first breath.
            let oldest = self.knockers.remove(0);
            self.unwatch(oldest.socket.as_fd());
        }
        let socket = Socket::new(socket)?;
        socket::pass_credentials(&socket)?;
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        self.watch(socket.as_fd(), About::Knocker(number), epoll::EventFlags::IN)?;
        self.knockers.push(Knocker { number, socket, since: Instant::now() });
        Ok(())
    }

    /// The connection of that number, if it has not been taken.
    pub(super) fn knocker(&self, number: u32) -> Option<&Knocker> {
        self.knockers.iter().find(|knocker| knocker.number == number)
    }

    /// Takes a connection out of those who wait.
    pub(super) fn take(&mut self, number: u32) -> Option<Socket> {
        let place = self.knockers.iter().position(|knocker| knocker.number == number)?;
        let knocker = self.knockers.remove(place);
        self.unwatch(knocker.socket.as_fd());
        Some(knocker.socket)
    }

    /// The numbers of all who have not said anything yet.
    pub(super) fn numbers(&self) -> Vec<u32> {
        self.knockers.iter().map(|knocker| knocker.number).collect()
    }

    /// Closes those who have been silent for longer than `deadline`.
    pub(super) fn expire(&mut self, deadline: Duration) {
        let silent = |knocker: &mut Knocker| knocker.since.elapsed() > deadline;
        let expired: Vec<Knocker> = self.knockers.extract_if(.., silent).collect();
        // A forked child of ours may hold a copy, and a copy keeps it in the set.
        expired.iter().for_each(|knocker| self.unwatch(knocker.socket.as_fd()));
    }

    /// When the longest silent one will have been silent for `deadline`.
    pub(super) fn next_expiry(&self, deadline: Duration) -> Option<Duration> {
        let longest = self.knockers.iter().map(|knocker| knocker.since.elapsed()).max()?;
        Some(deadline.saturating_sub(longest) + Duration::from_millis(1))
    }

    /// Ends the name: nobody can connect any more.
    pub(super) fn close(&mut self) {
        if let Some(path) = self.path.take() {
            let _ = std::fs::remove_file(path);
        }
        if let Some(listener) = self.listener.take() {
            socket::close_listener(listener);
        }
        self.knockers.clear();
    }

    /// In a forked child: the name is the parent's, and stays.
    pub(super) fn disown(&mut self) {
        self.path = None;
    }
}

/// `path` with something behind its name.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Listens at `path` in place of a dead owner. The claim is ours already.
///
/// The socket is bound and listening under a name of its own first and renamed over the old one
/// then, so that the path always leads to somebody's socket.
fn take_over(path: &Path, mode: u32) -> Result<OwnedFd> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let address = || path.display().to_string();
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            let why = "something else than a socket is there; remove it or choose another path";
            return Err(Error::BadAddress { address: address(), why });
        }
        _ => {}
    }
    let (new, _folder) = name_of_its_own(path)?;
    // The claim proves that whoever made one of this name is gone.
    let _ = std::fs::remove_file(&new);
    let listener = socket::seqpacket()?;
    socket::bind_path(&listener, &new)?;
    let named = (|| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&new, permissions).map_err(|error| io("chmod", &error))?;
        socket::listen(&listener, BACKLOG)?;
        std::fs::rename(&new, path).map_err(|error| io("rename", &error))
    })();
    if named.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    named.map(|()| listener)
}

/// `PATH.tmp`; where that is too long for a socket's address, a short name in the same folder, by
/// way of its descriptor, which must stay open as long as the name is used. The same each time: the
/// next owner finds and removes what a killed one left.
fn name_of_its_own(path: &Path) -> Result<(PathBuf, Option<OwnedFd>)> {
    let new = with_suffix(path, ".tmp");
    if socket::check_path(&new).is_ok() {
        return Ok((new, None));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder.unwrap_or(Path::new(".")), flags, Mode::empty())
        .map_err(|errno| Error::system("open of the folder", errno))?;
    let mut hasher = DefaultHasher::new();
    path.file_name().hash(&mut hasher);
    let new = format!("/proc/self/fd/{}/.{:016x}.tmp", folder.as_raw_fd(), hasher.finish());
    Ok((new.into(), Some(folder)))
}

fn io(call: &'static str, error: &std::io::Error) -> Error {
    Error::system(call, Errno::from_io_error(error).unwrap_or(Errno::IO))
}

//! Datagrams with descriptors and credentials: `SOCK_SEQPACKET` over Unix sockets.
//!
//! Making connections ([`seqpacket`], [`bind_path`], [`connect_path`], [`accept`], [`pair`]),
//! and messages over them ([`send`], [`receive()`]). Nothing here waits, except for a connection
//! to be queued, until a deadline. `MSG_DONTWAIT` and not `O_NONBLOCK` keeps messages from
//! waiting: the flag belongs to the open file, which a hostile peer may share and change.
//!
//! Neighbours: `mailbox` says what the messages mean. What is received here are claims, but for
//! [`Credentials`] and the pidfd, which the kernel vouches for. Descriptors that a peer passed are
//! received in a table of their own ([`receive_passed`]), and a socket that holds some is closed
//! there (`close`).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::{Errno, IoSlice};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

use crate::error::{Error, Result};

mod close;
mod option;
mod passed;
mod path;
mod receive;
#[cfg(test)]
mod tests;

pub(crate) use close::{Socket, close_listener};
pub(crate) use option::{
    check_connected, owner, owner_pidfd, pass_credentials, refuse_descriptors,
};
pub(crate) use passed::{Expected, Passed, receive_passed};
pub(crate) use path::SocketPath;
pub(crate) use receive::{Credentials, Received, receive};

/// The most descriptors that the kernel passes with one message (`SCM_MAX_FD`).
pub(crate) const MOST_DESCRIPTORS: usize = 253;

/// Bytes of `sun_path`, of which one is needed: for the end of a path, or the mark of an abstract
/// name.
const NAME_ROOM: usize = 108;

/// A signal may interrupt a call; so often, before we give up.
const INTERRUPTIONS: usize = 1000;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is in the peer's queue.
    Yes,
    /// The queue is full, or too many descriptors are on their way: later perhaps.
    Full,
    /// There is no peer any more.
    Gone,
}

/// A socket that is connected to nobody.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn seqpacket() -> Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Error::system("socket", errno))
}

/// Two that are connected to each other.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Error::system("socketpair", errno))
}

/// Gives the socket a name in the file system, which must be free.
///
/// # Errors
/// [`Error::AddrInUse`], [`Error::InvalidAddress`], [`Error::System`].
pub(crate) fn bind_path(fd: impl AsFd, path: &SocketPath) -> Result<()> {
    bind(fd, &Name::path(path)?)
}

/// Gives the socket a name that vanishes with it, in its network namespace.
///
/// # Errors
/// As [`bind_path`].
pub(crate) fn bind_abstract(fd: impl AsFd, name: impl AsRef<[u8]>) -> Result<()> {
    bind(fd, &Name::abstracted(name.as_ref())?)
}

/// Connects to the listener at a path; waits while its queue is full, until the deadline.
///
/// # Errors
/// [`Error::NoMailbox`] if no process listens, [`Error::TimedOut`], [`Error::InvalidAddress`],
/// [`Error::System`].
pub(crate) fn connect_path(
    fd: impl AsFd,
    path: impl AsRef<Path>,
    deadline: impl Into<Option<Instant>>,
) -> Result<()> {
    connect(fd.as_fd(), &Name::path(&SocketPath::new(path.as_ref())?)?, deadline.into())
}

/// As [`connect_path`], to an abstract name.
///
/// # Errors
/// As [`connect_path`].
pub(crate) fn connect_abstract(
    fd: impl AsFd,
    name: impl AsRef<[u8]>,
    deadline: impl Into<Option<Instant>>,
) -> Result<()> {
    connect(fd.as_fd(), &Name::abstracted(name.as_ref())?, deadline.into())
}

/// Lets others connect, `backlog` of them before the first is accepted. [`accept`] will not wait.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn listen(fd: impl AsFd, backlog: i32) -> Result<()> {
    rustix::io::ioctl_fionbio(&fd, true).map_err(|errno| Error::system("ioctl(FIONBIO)", errno))?;
    rustix::net::listen(&fd, backlog).map_err(|errno| Error::system("listen", errno))
}

/// The next who wants to connect; none where nobody does.
///
/// # Errors
/// [`Error::System`]: EMFILE and ENFILE where there is no room for a descriptor; the connection
/// stays in the queue.
pub(crate) fn accept(fd: impl AsFd) -> Result<Option<OwnedFd>> {
    for _ in 0..INTERRUPTIONS {
        match rustix::net::accept_with(&fd, SocketFlags::CLOEXEC) {
            Ok(connection) => return Ok(Some(connection)),
            Err(Errno::AGAIN) => return Ok(None),
            // Interrupted, or gone before it was accepted: the next one, perhaps.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => return Err(Error::system("accept4", errno)),
        }
    }
    Ok(None)
}

/// Sends one message with at most [`MOST_DESCRIPTORS`] descriptors, or nothing of it. Does not
/// wait.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn send(fd: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Sent> {
    assert!(fds.len() <= MOST_DESCRIPTORS, "{} descriptors in one message", fds.len());
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        debug_assert!(fits, "room for the most descriptors");
    }
    let bytes = [IoSlice::new(bytes)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    for _ in 0..INTERRUPTIONS {
        return match rustix::net::sendmsg(&fd, &bytes, &mut control, flags) {
            Ok(_) => Ok(Sent::Yes),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) => Ok(Sent::Full),
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(Sent::Gone),
            Err(errno) => Err(Error::system("sendmsg", errno)),
        };
    }
    Ok(Sent::Full)
}

/// An address, and how people write it.
struct Name {
    address: SocketAddrUnix,
    text: String,
}

impl Name {
    fn path(path: &SocketPath) -> Result<Self> {
        let text = path.display().to_string();
        match SocketAddrUnix::new(path.as_path()) {
            Ok(address) => Ok(Self { address, text }),
            Err(errno) => Err(Error::system("sockaddr_un", errno).at(text)),
        }
    }

    fn abstracted(name: &[u8]) -> Result<Self> {
        let text = format!("@{}", String::from_utf8_lossy(name));
        let reason = if name.is_empty() {
            "an abstract name has at least 1 byte; write a name after the @"
        } else {
            match SocketAddrUnix::new_abstract_name(name) {
                Ok(address) => return Ok(Self { address, text }),
                Err(_) => "an abstract name has at most 107 bytes; choose a shorter one",
            }
        };
        Err(Error::InvalidAddress { address: text, reason })
    }
}

fn bind(fd: impl AsFd, name: &Name) -> Result<()> {
    rustix::net::bind(fd, &name.address).map_err(|errno| match errno {
        Errno::ADDRINUSE => Error::AddrInUse { address: name.text.clone(), holder: None },
        errno => Error::system("bind", errno).at(&name.text),
    })
}

fn connect(fd: BorrowedFd<'_>, name: &Name, deadline: Option<Instant>) -> Result<()> {
    let limit = |left: Option<Duration>| {
        // A timeout of zero would mean none.
        let left = left.map(|left| left.max(Duration::from_millis(1)));
        sockopt::set_socket_timeout(fd, Timeout::Send, left)
            .map_err(|errno| Error::system("setsockopt(SO_SNDTIMEO)", errno))
    };
    let mut answer = Err(Errno::INTR);
    for _ in 0..INTERRUPTIONS {
        limit(deadline.map(|at| at.saturating_duration_since(Instant::now())))?;
        answer = rustix::net::connect(fd, &name.address);
        if answer != Err(Errno::INTR) {
            break;
        }
    }
    limit(None)?;
    answer.map_err(|errno| match errno {
        Errno::CONNREFUSED | Errno::NOENT => Error::NoMailbox { address: name.text.clone() },
        Errno::AGAIN => Error::TimedOut,
        errno => Error::system("connect", errno).at(&name.text),
    })
}

//! Messages with descriptors and credentials: `SOCK_SEQPACKET` over Unix sockets.
//!
//! The module makes connections ([`seqpacket`], [`bind_path`], [`connect_path`], [`accept`],
//! [`pair`]), and sends and receives messages over them ([`send`], [`receive()`]). Only connecting
//! waits: for space in the listener's queue, until a deadline. Sends and receives never block,
//! because they use `MSG_DONTWAIT`. They do not rely on `O_NONBLOCK`, which belongs to the open
//! file, which a hostile peer may share and change.
//!
//! Neighbours: `mailbox` defines the messages. Everything that is received here is untrusted,
//! except [`SenderCredentials`] and the pidfd, which come from the kernel. Descriptors that a peer
//! passed are received in a separate table ([`receive_passed`]), and a socket whose queue contains
//! descriptors is closed there (`close`).

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
mod occupant;
mod option;
mod passed;
mod path;
mod receive;
#[cfg(test)]
mod tests;

pub(crate) use close::{ListenerSocket, PeerSocket};
pub(crate) use occupant::{ListenerProcess, Occupant, occupant, set_mode, set_mode_of_file};
pub(crate) use option::{
    check_connected, check_listening, owner, owner_groups, owner_pidfd, pass_credentials,
    pass_credentials_to_reader, refuse_descriptors,
};
pub(crate) use passed::{DescriptorKind, PassedMessage, receive_passed};
pub(crate) use path::SocketPath;
pub(crate) use receive::{ReceivedPacket, SenderCredentials, receive};

/// Maximum number of descriptors that the kernel passes with one message (`SCM_MAX_FD`).
pub(crate) const MOST_DESCRIPTORS: usize = 253;

/// Bytes of `sun_path`, including the zero after a path or before an abstract name.
const NAME_SPACE: usize = 108;

/// Maximum number of signals that may interrupt a call before it fails.
const INTERRUPTIONS: usize = 1000;

/// Result of sending a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendResult {
    /// The message is in the peer's queue.
    Yes,
    /// The queue is full: a later attempt may succeed.
    Full,
    /// The peer has closed the connection.
    Gone,
}

/// Returns a socket that is not connected.
///
/// # Errors
/// [`Error::System`] if the kernel refuses a socket.
pub(crate) fn seqpacket() -> Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Error::system("socket", errno))
}

/// Returns two sockets that are connected to each other.
///
/// # Errors
/// [`Error::System`] if the kernel refuses them.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Error::system("socketpair", errno))
}

/// Binds the socket to a path in the file system, which must be free.
///
/// # Errors
/// [`Error::AddrInUse`], [`Error::InvalidAddress`] or [`Error::SystemAt`].
pub(crate) fn bind_path(fd: impl AsFd, path: &SocketPath) -> Result<()> {
    bind(fd, &SocketName::path(path)?)
}

/// Binds the socket to an abstract name in its network namespace. The name ends with the socket.
///
/// # Errors
/// The errors of [`bind_path`].
pub(crate) fn bind_abstract(fd: impl AsFd, name: impl AsRef<[u8]>) -> Result<()> {
    bind(fd, &SocketName::abstracted(name.as_ref())?)
}

/// Connects to the listener at a path; waits while its queue is full, until the deadline.
///
/// # Errors
/// [`Error::NoMailbox`] if no process listens, [`Error::TimedOut`] at the deadline,
/// [`Error::InvalidAddress`], or [`Error::System`] if another call fails.
pub(crate) fn connect_path(
    fd: impl AsFd,
    path: impl AsRef<Path>,
    deadline: impl Into<Option<Instant>>,
) -> Result<()> {
    connect(fd.as_fd(), &SocketName::path(&SocketPath::new(path.as_ref())?)?, deadline.into())
}

/// Connects to the listener at an abstract name, like [`connect_path`].
///
/// # Errors
/// The errors of [`connect_path`].
pub(crate) fn connect_abstract(
    fd: impl AsFd,
    name: impl AsRef<[u8]>,
    deadline: impl Into<Option<Instant>>,
) -> Result<()> {
    connect(fd.as_fd(), &SocketName::abstracted(name.as_ref())?, deadline.into())
}

/// Makes [`accept`] nonblocking.
///
/// # Errors
/// [`Error::System`] if `ioctl` fails.
pub(crate) fn set_nonblocking(fd: impl AsFd) -> Result<()> {
    rustix::io::ioctl_fionbio(&fd, true).map_err(|errno| Error::system("ioctl(FIONBIO)", errno))
}

/// Listens for connections, with a queue of `backlog`. Makes [`accept`] nonblocking.
///
/// # Errors
/// [`Error::System`] if `ioctl` or `listen` fails.
pub(crate) fn listen(fd: impl AsFd, backlog: i32) -> Result<()> {
    set_nonblocking(&fd)?;
    rustix::net::listen(&fd, backlog).map_err(|errno| Error::system("listen", errno))
}

/// Accepts the next connection; returns `None` if no connection waits.
///
/// # Errors
/// [`Error::System`], with EMFILE or ENFILE if no descriptor is free; the connection stays queued.
pub(crate) fn accept(fd: impl AsFd) -> Result<Option<OwnedFd>> {
    for _ in 0..INTERRUPTIONS {
        match rustix::net::accept_with(&fd, SocketFlags::CLOEXEC) {
            Ok(connection) => return Ok(Some(connection)),
            Err(Errno::AGAIN) => return Ok(None),
            // The call was interrupted, or the connection is already closed: try the next one.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => return Err(Error::system("accept4", errno)),
        }
    }
    Ok(None)
}

/// Sends one message with at most [`MOST_DESCRIPTORS`] descriptors, as a whole or not at all. Does
/// not wait.
///
/// # Errors
/// [`Error::System`] if `sendmsg` fails for a reason that [`SendResult`] does not cover: for
/// example with ETOOMANYREFS, if this user has too many descriptors in flight.
pub(crate) fn send(fd: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<SendResult> {
    assert!(fds.len() <= MOST_DESCRIPTORS, "{} descriptors in one message", fds.len());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        debug_assert!(fits, "space for the maximum");
    }
    let bytes = [IoSlice::new(bytes)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    for _ in 0..INTERRUPTIONS {
        return match rustix::net::sendmsg(&fd, &bytes, &mut control, flags) {
            Ok(_) => Ok(SendResult::Yes),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN | Errno::NOBUFS) => Ok(SendResult::Full),
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(SendResult::Gone),
            Err(errno) => Err(Error::system("sendmsg", errno)),
        };
    }
    Ok(SendResult::Full)
}

/// An address, with its text for errors.
struct SocketName {
    address: SocketAddrUnix,
    text: String,
}

impl SocketName {
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

fn bind(fd: impl AsFd, name: &SocketName) -> Result<()> {
    rustix::net::bind(fd, &name.address).map_err(|errno| match errno {
        Errno::ADDRINUSE => Error::AddrInUse { address: name.text.clone(), holder: None },
        errno => Error::system("bind", errno).at(&name.text),
    })
}

fn connect(fd: BorrowedFd<'_>, name: &SocketName, deadline: Option<Instant>) -> Result<()> {
    let limit = |left: Option<Duration>| {
        // The timeout is at least 1 ms, since zero would mean no timeout.
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

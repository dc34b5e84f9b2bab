//! Sockets that a service manager passes to a process at its start: [`activated_sockets`] and
//! [`Options::listen`].
//!
//! The protocol is systemd's (`sd_listen_fds(3)`): the descriptors begin at 3, `LISTEN_FDS` is
//! their number, `LISTEN_PID` the process that they are for, `LISTEN_FDNAMES` their names,
//! separated by colons. Neighbours: [`super::listener`] accepts connections at the socket.

#![allow(unsafe_code, reason = "descriptors that the environment names")]

use std::env;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::io::FdFlags;

use super::Mailbox;
use crate::error::{Error, Result};
use crate::mailbox::options::{Options, Receives};
use crate::sys::socket;

/// The first descriptor that is passed.
const FIRST: RawFd = 3;

/// A socket that a service manager passed to this process.
#[derive(Debug)]
#[non_exhaustive]
pub struct ActivatedSocket {
    /// The socket's name, such as `FileDescriptorName=` of a unit sets it; `"unknown"` if it has
    /// none.
    pub name: String,
    /// The socket.
    pub socket: OwnedFd,
}

impl<E: Receives> Options<E> {
    /// Opens a mailbox at a listening `SOCK_SEQPACKET` socket of `AF_UNIX`, with these settings.
    ///
    /// Another process made the socket and keeps it open, such as a service manager, which starts
    /// this process when a sender connects ([`activated_sockets`]). The address belongs to that
    /// process:
    ///
    /// - While no receiver runs, senders connect, send into their lanes, and wait for the next
    ///   receiver. A receiver that ends before it has accepted a lane does not end it.
    /// - A sender checks two users, which may differ: that of the process that called `listen`
    ///   (root for systemd's system manager), then the receiver's ([`Options::allow_uid`]).
    /// - There is no lock: two processes that listen at one socket share the senders.
    /// - The mailbox neither checks nor removes the path, and [`Options::mode`] has no effect.
    ///
    /// # Errors
    /// The socket is closed if `listen` fails.
    ///
    /// - [`Error::InvalidSocket`] if the socket has another type or family, or does not listen.
    /// - [`Error::System`] if the descriptor is not a socket.
    /// - The errors of [`Options::unbound`].
    ///
    /// # Examples
    /// ```
    /// use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    /// use tontine::mailbox::{Options, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    /// let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    /// rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    /// rustix::net::listen(&socket, 128).unwrap();
    ///
    /// let mut sender = Sender::connect(&path)?; // before a receiver runs
    /// sender.send(b"hello")?;
    /// let mut mailbox = Options::new().listen(socket)?;
    /// assert_eq!(&*mailbox.recv()?, b"hello");
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn listen(&self, socket: OwnedFd) -> Result<Mailbox> {
        socket::check_listening(&socket)?;
        let mut mailbox = self.unbound()?;
        mailbox.door.listen(socket)?;
        Ok(mailbox)
    }
}

/// Returns the sockets that a service manager passed to this process (`LISTEN_FDS`); none if it
/// passed none, or passed them to another process (`LISTEN_PID`).
///
/// Each call returns duplicates, in the order of the manager's configuration. The descriptors from
/// 3 on stay open until `exec`.
///
/// # Errors
/// - [`Error::InvalidSocket`] if `LISTEN_FDS` is not a number.
/// - [`Error::System`] if a descriptor is not open, or cannot be duplicated.
///
/// # Examples
/// A receiver that runs with and without a service manager:
///
/// ```
/// use tontine::mailbox::{Mailbox, Options, activated_sockets};
///
/// fn open(path: &std::path::Path) -> tontine::Result<Mailbox> {
///     match activated_sockets()?.pop() {
///         Some(activated) => Options::new().listen(activated.socket),
///         None => Mailbox::bind(path),
///     }
/// }
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let mailbox = open(&path)?;
/// # Ok::<(), tontine::Error>(())
/// ```
pub fn activated_sockets() -> Result<Vec<ActivatedSocket>> {
    let number = |name| env::var(name).ok().map(|text| text.trim().parse::<u32>());
    if number("LISTEN_PID") != Some(Ok(std::process::id())) {
        return Ok(Vec::new());
    }
    let count = match number("LISTEN_FDS") {
        None => return Ok(Vec::new()),
        Some(Ok(count)) => count,
        Some(Err(_)) => {
            return Err(Error::InvalidSocket {
                reason: "expected the number of passed descriptors in LISTEN_FDS, found another \
                         text; correct the program that sets it, or unset LISTEN_PID",
            });
        }
    };
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').chain(std::iter::repeat(""));
    let names = names.map(|name| if name.is_empty() { "unknown" } else { name });
    let passed = (FIRST..RawFd::MAX).take(count as usize);
    // All are checked before the first is duplicated: a duplicate could have the number of one that
    // is not open.
    passed.clone().try_for_each(close_on_exec)?;
    let socket = |(fd, name): (_, &str)| {
        Ok(ActivatedSocket { name: name.to_owned(), socket: duplicate(fd)? })
    };
    passed.zip(names).map(socket).collect()
}

/// Has `exec` close a passed descriptor.
fn close_on_exec(fd: RawFd) -> Result<()> {
    // SAFETY: the descriptor is used for one call, which fails if it is not open.
    let passed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_setfd(passed, FdFlags::CLOEXEC)
        .map_err(|errno| Error::system("fcntl of a descriptor in LISTEN_FDS", errno))
}

/// Returns a duplicate of a passed descriptor.
fn duplicate(fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: the descriptor is used for one call, which fails if it is not open.
    let passed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_dupfd_cloexec(passed, FIRST)
        .map_err(|errno| Error::system("fcntl(F_DUPFD_CLOEXEC)", errno))
}

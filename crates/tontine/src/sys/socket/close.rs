//! Closing sockets that a peer can fill: [`Socket`], [`close_listener`].
//!
//! A Unix socket holds the descriptors of messages that were not received, and the holder that
//! closes it last has the kernel drop them: an inotify instance takes 13 ms, an epoll set with
//! 15,000 entries 22 ms, a memfd 0.3 s for each GiB, a TCP socket as long as it was told to linger.
//! So a socket is shut down first, after which nothing more can be queued and the peer is told the
//! same as by a close. A socket of ours is closed at once if no descriptor is in its queue. Any
//! other, and each that a peer made, is closed by [`quarantine`], whose thread lets nothing linger
//! and waits in the caller's place.
//!
//! A message that was not received was in no table. So the kernel drops it without a flush (FUSE)
//! and without a look at record locks.

#![allow(unsafe_code, reason = "a descriptor that its drop gives away")]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt;
use rustix::net::{Shutdown, SocketType};

use super::receive::receive;
use super::{accept, option};
use crate::error::Result;
use crate::sys::fork::Guard;
use crate::sys::quarantine;

/// Maximum number of messages that are taken out of a socket before it is closed: more than the
/// kernel queues (`net.unix.max_dgram_qlen`) unless told otherwise.
const MAX_MESSAGES: usize = 32;

/// Maximum number of connections that are accepted from a listener before it is closed.
const MAX_PENDING: usize = 4096;

/// A socket that a peer can send to. To drop it never waits, whatever is in its queue, and ends the
/// connection even where a forked child holds a copy.
///
/// In a forked child the copy is closed and nothing else: the connection is the parent's.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: ManuallyDrop<OwnedFd>,
    guard: Guard,
    /// A peer made it, and may share it.
    of_peer: bool,
}

impl Socket {
    /// A socket that this process made.
    ///
    /// # Errors
    /// [`crate::Error::System`], where there is no memory to tell a forked child by.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self> {
        Self::made_by(false, fd)
    }

    /// A socket that a peer made and passed. The peer may share it, and set its options.
    ///
    /// # Errors
    /// Like [`Socket::new`].
    pub(super) fn of_peer(fd: OwnedFd) -> Result<Self> {
        Self::made_by(true, fd)
    }

    fn made_by(of_peer: bool, fd: OwnedFd) -> Result<Self> {
        Ok(Self { guard: Guard::here()?, fd: ManuallyDrop::new(fd), of_peer })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: dropped once, and not used afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if self.guard.is_forked() {
            return;
        }
        // From now on the kernel refuses all that is sent to it, under the lock of its queue.
        let _ = rustix::net::shutdown(&fd, Shutdown::Both);
        // A look at a queue proves nothing where the peer sets the socket's options (SO_PEEK_OFF).
        if self.of_peer || !is_emptied(&fd) {
            quarantine::close([fd]);
        }
    }
}

/// Closes a listener of ours, and every connection that it had not accepted: each has a queue.
pub(crate) fn close_listener(listener: OwnedFd) {
    // From now on the kernel refuses all that connect.
    let _ = rustix::net::shutdown(&listener, Shutdown::Both);
    for _ in 0..MAX_PENDING {
        match accept(&listener) {
            Ok(Some(connection)) => drop(Socket::new(connection)),
            Ok(None) => return,
            // The listener is shut down and has no connection left.
            Err(error) if error.errno() == libc::EINVAL => return,
            Err(_) => break,
        }
    }
    quarantine::close([listener]);
}

/// Takes messages without descriptors out of a socket that is shut down. Returns `true` if none is
/// left.
fn is_emptied(fd: &OwnedFd) -> bool {
    // Then each message has control data, the empty one too; the end of the connection has none.
    let _ = option::pass_credentials(fd);
    // A queue of datagrams has no end, and is empty when the kernel says that one would wait.
    let ends = sockopt::socket_type(fd).is_ok_and(|kind| kind == SocketType::SEQPACKET);
    for _ in 0..MAX_MESSAGES {
        match receive(fd, &mut []) {
            Ok(None) => return true,
            Ok(Some(left)) if left.hung_up => return ends,
            Ok(Some(left)) if left.has_descriptors => return false,
            Ok(Some(_)) => {}
            // It was never connected.
            Err(error) => return ends && error.errno() == libc::ENOTCONN,
        }
    }
    false
}

//! Closing sockets that a peer can fill: [`PeerSocket`], [`ListenerSocket`].
//!
//! A Unix socket holds the descriptors of unreceived messages, and its last close makes the kernel
//! drop them: an inotify instance takes 13 ms, an epoll set with 15,000 entries 22 ms, a memfd 0.3
//! s per GiB, a TCP socket its SO_LINGER time. So a socket is shut down first: no message can then
//! be queued, and the peer sees the same as after a close. A socket that this process made is
//! closed immediately if its queue contains no descriptor. Any other socket, and every socket that
//! a peer made, is closed by [`quarantine`], whose thread lets no socket linger and waits instead
//! of the caller.
//!
//! The descriptors of an unreceived message are in no table, so the kernel drops them without a
//! flush (FUSE) and without effect on record locks.

#![allow(unsafe_code, reason = "a drop that passes its descriptor on")]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt;
use rustix::net::{Shutdown, SocketType};

use super::receive::receive;
use super::{accept, option, seqpacket};
use crate::error::Result;
use crate::sys::fork::Guard;
use crate::sys::quarantine;

/// Maximum number of messages received from a socket before it is closed: more than the kernel
/// queues by default (`net.unix.max_dgram_qlen`).
const MAX_MESSAGES: usize = 32;

/// Maximum number of connections that are accepted from a listener before it is closed.
const MAX_PENDING: usize = 4096;

/// A socket that a peer can send to. Dropping it never waits, whatever is in its queue, and ends
/// the connection even if a forked child holds a copy.
///
/// In a forked child, dropping it closes only the child's copy, since the connection belongs to the
/// parent.
#[derive(Debug)]
pub(crate) struct PeerSocket {
    fd: ManuallyDrop<OwnedFd>,
    guard: Guard,
    /// `true` if a peer made the socket, and may share it.
    of_peer: bool,
}

impl PeerSocket {
    /// Wraps a socket that this process made.
    ///
    /// # Errors
    /// [`crate::Error::System`] if there is no memory for the [`Guard`].
    pub(crate) fn new(fd: OwnedFd) -> Result<Self> {
        Self::made_by(false, fd)
    }

    /// Wraps a socket that a peer made and passed. The peer may share it, and set its options.
    ///
    /// # Errors
    /// The errors of [`PeerSocket::new`].
    pub(super) fn of_peer(fd: OwnedFd) -> Result<Self> {
        Self::made_by(true, fd)
    }

    fn made_by(of_peer: bool, fd: OwnedFd) -> Result<Self> {
        Ok(Self { guard: Guard::here()?, fd: ManuallyDrop::new(fd), of_peer })
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        // SAFETY: the descriptor is taken once, and not used afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if self.guard.is_forked() {
            return;
        }
        // The kernel, under the lock of the queue, now refuses messages to the socket.
        let _ = rustix::net::shutdown(&fd, Shutdown::Both);
        // If the peer can set options (SO_PEEK_OFF), a check of the queue proves nothing.
        if self.of_peer || !is_emptied(&fd) {
            quarantine::close([fd]);
        }
    }
}

/// A listener. Dropping a listener of this process closes each unaccepted connection, which has a
/// queue too, and frees its name, unless a child that the program forked holds a copy. Dropping a
/// listener that was passed to this process leaves both to the process that passed it.
#[derive(Debug)]
pub(crate) struct ListenerSocket {
    fd: ManuallyDrop<OwnedFd>,
    guard: Guard,
    /// `true` if another process made the socket and may hold it.
    is_passed: bool,
}

impl ListenerSocket {
    /// Returns a socket that has no name yet.
    ///
    /// # Errors
    /// [`crate::Error::System`] if the kernel refuses a socket, or without memory.
    pub(crate) fn new() -> Result<Self> {
        let guard = Guard::here()?;
        let fd = quarantine::make_listener(seqpacket)?;
        Ok(Self { fd: ManuallyDrop::new(fd), guard, is_passed: false })
    }

    /// Wraps a listening socket that was passed to this process.
    ///
    /// # Errors
    /// [`crate::Error::System`] without memory.
    pub(crate) fn passed(fd: OwnedFd) -> Result<Self> {
        let guard = Guard::here()?;
        let fd = quarantine::make_listener(|| Ok(fd))?;
        Ok(Self { fd: ManuallyDrop::new(fd), guard, is_passed: true })
    }
}

impl AsFd for ListenerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for ListenerSocket {
    fn drop(&mut self) {
        // SAFETY: the descriptor is taken once, and not used afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if self.guard.is_forked() {
            return;
        }
        if self.is_passed {
            // Unaccepted connections are for the next receiver. If no other process holds the
            // socket, they are closed with it.
            return quarantine::close_listener(fd, false);
        }
        // The kernel now refuses connections.
        let _ = rustix::net::shutdown(&fd, Shutdown::Both);
        let is_empty = has_no_connection(&fd);
        quarantine::close_listener(fd, is_empty);
    }
}

/// Closes the unaccepted connections of a listener that is shut down. Returns `true` if none is
/// left.
fn has_no_connection(listener: &OwnedFd) -> bool {
    for _ in 0..MAX_PENDING {
        match accept(listener) {
            Ok(Some(connection)) => drop(PeerSocket::new(connection)),
            Ok(None) => return true,
            // The listener is shut down and has no connection left, or it never listened.
            Err(error) => return error.errno() == libc::EINVAL,
        }
    }
    false
}

/// Receives the messages without descriptors from a socket that is shut down. Returns `true` if the
/// queue is then empty.
fn is_emptied(fd: &OwnedFd) -> bool {
    // With this option, even an empty message has control data, unlike the end of the connection.
    let _ = option::pass_credentials_to_reader(fd);
    // A queue of datagrams has no end: it is empty when the kernel returns EAGAIN.
    let ends = sockopt::socket_type(fd).is_ok_and(|kind| kind == SocketType::SEQPACKET);
    for _ in 0..MAX_MESSAGES {
        match receive(fd, &mut []) {
            Ok(None) => return true,
            Ok(Some(left)) if left.hung_up => return ends,
            Ok(Some(left)) if left.has_descriptors => return false,
            Ok(Some(_)) => {}
            // The socket was never connected.
            Err(error) => return ends && error.errno() == libc::ENOTCONN,
        }
    }
    false
}

//! Closing what a hostile peer filled or passed, without waiting for it: [`Socket`],
//! [`close_hostile`], [`close_listener`].
//!
//! `close` can wait in three cases. A socket that was told to linger waits for a network that never
//! answers: it is told not to, first. A regular file has its file system flush it, and that file
//! system may be a process of the peer's (FUSE) which never answers. And a Unix socket holds the
//! descriptors of messages that nobody took: whoever closes it closes those, of whatever kind. So
//!
//! - a socket of our own that a peer can send to is a [`Socket`]. Dropped, it is shut down first,
//!   after which nothing more can be queued (the peer is told the same as by a close); what is
//!   queued is taken out, each descriptor closed with care; an empty one is closed at once;
//! - what is of another kind, or not empty after that, is closed by a thread that exists only as
//!   long as there is something for it. No file system is asked what a file is.
//!
//! Not covered: the peer shares a passed socket's open file and may change its mind about lingering
//! between our two calls; but only who closes it last waits. Files of file systems that never
//! answer hold up to [`MOST_THREADS`] threads for as long, and further ones stay open. The end of a
//! process waits for no socket (the kernel lets none linger then), but for such a file it does.

#![allow(unsafe_code, reason = "a descriptor that its drop gives away")]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, RecvFlags, Shutdown, SocketType};

use super::receive::{receive, take_whole};
use super::{accept, option};
use crate::error::Result;
use crate::sys::fork::{Guard, PerProcess};
use crate::sys::thread;

/// Threads that close at the same time.
const MOST_THREADS: usize = 4;

/// Messages that are taken out of a socket before it is closed: more than the kernel queues
/// (`net.unix.max_dgram_qlen`) unless told otherwise.
const MOST_MESSAGES: usize = 32;

/// Connections and descriptors that are taken out of each other, off the path.
const MOST_INSIDE: usize = 4096;

static CLOSER: PerProcess<Mutex<Closer>> = PerProcess::new(Mutex::default);

/// A socket of ours that a peer can send to. To drop it never waits, whatever is in its queue, and
/// ends the connection even where a forked child holds a copy.
///
/// In a forked child the copy is closed and nothing else: the connection is the parent's.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: ManuallyDrop<OwnedFd>,
    guard: Guard,
}

impl Socket {
    /// # Errors
    /// [`crate::Error::System`], where there is no memory to tell a forked child by.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self> {
        Ok(Self { guard: Guard::here()?, fd: ManuallyDrop::new(fd) })
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
        if !self.guard.is_forked() && !is_emptied(&fd) {
            let _ = close_elsewhere(fd);
        }
    }
}

/// Closes descriptors that a peer should not have passed, or that are no longer needed.
pub(crate) fn close_hostile(fds: impl IntoIterator<Item = OwnedFd>) {
    for fd in fds {
        if is_closed_at_once(&fd) {
            drop(fd);
        } else {
            // Without memory or threads it stays in the queue, for the next one's thread to close.
            let _ = close_elsewhere(fd);
        }
    }
}

/// Closes a listener of ours, and every connection that it had not accepted: each has a queue.
pub(crate) fn close_listener(listener: OwnedFd) {
    // Nobody connects from here on.
    let _ = rustix::net::shutdown(&listener, Shutdown::Both);
    for _ in 0..MOST_INSIDE {
        match accept(&listener) {
            Ok(Some(connection)) => drop(Socket::new(connection)),
            Ok(None) => return,
            // That it is shut down, once nobody is left.
            Err(error) if error.errno() == libc::EINVAL => return,
            Err(_) => break,
        }
    }
    let _ = close_elsewhere(listener);
}

/// What waits for the threads; no more than the descriptor table has room for.
#[derive(Debug, Default)]
struct Closer {
    waiting: Vec<OwnedFd>,
    threads: usize,
}

/// Shuts a socket down and takes out what is queued. Whether nothing is left.
fn is_emptied(fd: &OwnedFd) -> bool {
    // Then the kernel refuses whoever sends to it, under the lock that guards its queue.
    let _ = rustix::net::shutdown(fd, Shutdown::Both);
    // With credentials each message has something with it, the empty one too; the end has not.
    let _ = option::pass_credentials(fd);
    // A queue of datagrams has no end, and is empty when it says that one would have to wait.
    let ends = sockopt::socket_type(fd).is_ok_and(|kind| kind == SocketType::SEQPACKET);
    for _ in 0..MOST_MESSAGES {
        match receive(fd, &mut []) {
            Ok(None) => return true,
            Ok(Some(left)) if left.hung_up => return ends,
            Ok(Some(left)) if left.truncated => return false,
            Ok(Some(_)) => {}
            // It was never connected.
            Err(error) => return ends && error.errno() == libc::ENOTCONN,
        }
    }
    false
}

fn is_closed_at_once(fd: &OwnedFd) -> bool {
    if let Ok(domain) = sockopt::socket_domain(fd) {
        return if domain == AddressFamily::UNIX {
            is_empty_bell(fd)
        } else {
            sockopt::set_socket_linger(fd, None).is_ok()
        };
    }
    if rustix::fs::fcntl_get_seals(fd).is_ok() {
        return true;
    }
    // What the kernel remembers, without asking the file system.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let kind = rustix::fs::statx(fd, c"", flags, StatxFlags::TYPE)
        .map(|file| FileType::from_raw_mode(file.stx_mode.into()));
    match kind {
        Ok(FileType::RegularFile | FileType::Unknown) | Err(_) => is_anonymous(fd),
        // Only regular files are flushed; devices and pipes are the kernel's, whatever file system
        // their names are in.
        Ok(_) => true,
    }
}

/// A doorbell, the only Unix socket that honest peers pass, and nothing queued in it. What is
/// queued is not taken out here: it could be another one that is filled, and so on.
fn is_empty_bell(fd: &OwnedFd) -> bool {
    let _ = rustix::net::shutdown(fd, Shutdown::Both);
    let look = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    sockopt::socket_type(fd).is_ok_and(|kind| kind == SocketType::DGRAM)
        && rustix::net::recv(fd, &mut [0_u8; 1], look) == Err(Errno::AGAIN)
}

/// An eventfd, a pidfd and the like. The name of a file in a file system begins with a slash.
fn is_anonymous(fd: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::readlink(path, Vec::new()).is_ok_and(|name| {
        [&b"anon_inode:"[..], b"pidfd:"].iter().any(|kind| name.as_bytes().starts_with(kind))
    })
}

fn close_elsewhere(fd: OwnedFd) -> Result<()> {
    let closer = CLOSER.get()?;
    let mut state = closer.lock().unwrap_or_else(PoisonError::into_inner);
    state.waiting.push(fd);
    if state.threads < MOST_THREADS {
        thread::start("tontine-closer", || close_all(closer))?;
        state.threads += 1;
    }
    Ok(())
}

fn close_all(closer: &Mutex<Closer>) {
    loop {
        let mut state = closer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(next) = state.waiting.pop() else {
            state.threads -= 1;
            return;
        };
        drop(state);
        close_slowly(next);
    }
}

/// Closes it and all that is inside, and inside of that. Here it may wait; where it can be told not
/// to it does not, or one peer could keep the threads for ever.
fn close_slowly(fd: OwnedFd) {
    let mut left = vec![fd];
    let mut taken = 0;
    while let Some(fd) = left.pop() {
        if sockopt::socket_domain(&fd).is_ok_and(|domain| domain == AddressFamily::UNIX) {
            let _ = rustix::net::shutdown(&fd, Shutdown::Both);
            let _ = option::pass_credentials(&fd);
            while taken < MOST_INSIDE
                && let Some(inside) = take_inside(&fd)
            {
                taken += 1;
                left.extend(inside);
            }
        } else {
            let _ = sockopt::set_socket_linger(&fd, None);
        }
    }
}

/// What the next message in a Unix socket's queue brought, or the next connection in a listener's.
fn take_inside(fd: &OwnedFd) -> Option<Vec<OwnedFd>> {
    if sockopt::socket_acceptconn(fd).unwrap_or(false) {
        // The listener is shut down: this waits for nobody.
        return rustix::net::accept_with(fd, rustix::net::SocketFlags::CLOEXEC)
            .ok()
            .map(|connection| vec![connection]);
    }
    take_whole(fd.as_fd())
}

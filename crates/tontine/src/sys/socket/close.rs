//! Closing what a hostile peer passed, without waiting for it: [`close_hostile`].
//!
//! `close` can wait in two cases. A socket that was told to linger waits for a network that never
//! answers: it is told not to, first. A regular file has its file system flush it, and that file
//! system may be a process of the peer's (FUSE) which never answers: such a file is closed by a
//! thread that exists only as long as there is one to close. No file system is asked what a file
//! is.
//!
//! Not covered: the peer shares a socket's open file and may change its mind about lingering
//! between our two calls; but only who closes it last waits, and no longer than it asked for. The
//! end of a process closes what it has open, and waits too, unless it is killed.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::net::sockopt;

use crate::error::Result;
use crate::sys::fork::PerProcess;
use crate::sys::thread;

static CLOSER: PerProcess<Mutex<Closer>> = PerProcess::new(Mutex::default);

/// Closes descriptors that a peer should not have passed.
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

/// What waits for the thread; no more than the descriptor table has room for.
#[derive(Debug, Default)]
struct Closer {
    waiting: Vec<OwnedFd>,
    /// Whether there is a thread.
    at_work: bool,
}

fn is_closed_at_once(fd: &OwnedFd) -> bool {
    if sockopt::set_socket_linger(fd, None).is_ok() || rustix::fs::fcntl_get_seals(fd).is_ok() {
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
    if !state.at_work {
        thread::start("tontine-closer", || close_all(closer))?;
        state.at_work = true;
    }
    Ok(())
}

fn close_all(closer: &Mutex<Closer>) {
    loop {
        let mut state = closer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(next) = state.waiting.pop() else {
            state.at_work = false;
            return;
        };
        drop(state);
        // Here it may wait.
        drop(next);
    }
}

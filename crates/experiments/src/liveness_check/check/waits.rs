//! Non-blocking waits for the hang-up of a connection: [`Epoll`], [`Poll`], [`Select`].

#![allow(unsafe_code, reason = "system calls as a C program makes them, and an fd_set")]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::epoll;
use rustix::io::Errno;
use tontine_host::error::{ErrorContext, MeasureError, Result};

use super::{Check, last_errno};

/// An `epoll_wait` that returns immediately.
pub struct Epoll {
    set: OwnedFd,
}

impl Epoll {
    /// Creates a wait on a set without descriptors. It shows the cost of the call and checks
    /// nothing.
    ///
    /// # Errors
    /// Returns `Skipped` if epoll is refused.
    pub fn of_nothing() -> Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).setting_up("epoll_create1")?;
        Ok(Self { set })
    }

    /// Creates a wait for the hang-up of a connection.
    ///
    /// # Errors
    /// Returns `Skipped` if epoll is refused.
    pub fn of(line: BorrowedFd<'_>) -> Result<Self> {
        let this = Self::of_nothing()?;
        let hang_up = epoll::EventFlags::RDHUP;
        epoll::add(&this.set, line, epoll::EventData::new_u64(0), hang_up)
            .setting_up("epoll_ctl")?;
        Ok(this)
    }
}

impl Check for Epoll {
    const CALL: &'static str = "epoll_wait";

    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        let mut event = MaybeUninit::<libc::epoll_event>::uninit();
        // rustix's function is not used: it calls epoll_pwait2, which also reads the clock and
        // costs half as much again. SAFETY: the buffer has space for the one requested event.
        let ready = unsafe { libc::epoll_wait(self.set.as_raw_fd(), event.as_mut_ptr(), 1, 0) };
        nothing_ready(ready)
    }
}

/// `poll` on the connection.
pub struct Poll<'a>(pub BorrowedFd<'a>);

impl Check for Poll<'_> {
    const CALL: &'static str = "poll";

    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        let mut line = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // rustix's function is not used, because it calls ppoll.
        // SAFETY: the call passes one descriptor and a buffer of one entry.
        nothing_ready(unsafe { libc::poll(&mut line, 1, 0) })
    }
}

/// `select` on the connection: readable means hung up, because the monitored process sends nothing.
pub struct Select(RawFd);

impl Select {
    /// Creates a check of a connection.
    ///
    /// # Errors
    /// Returns `Skipped` if the descriptor's number exceeds what `select` supports.
    pub fn of(line: BorrowedFd<'_>) -> Result<Self> {
        let fd = line.as_raw_fd();
        if fd as usize >= libc::FD_SETSIZE {
            return Err(MeasureError::skip(format!(
                "select: descriptor {fd} is beyond FD_SETSIZE ({})",
                libc::FD_SETSIZE
            )));
        }
        Ok(Self(fd))
    }
}

impl Check for Select {
    const CALL: &'static str = "select";

    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        let mut readable = MaybeUninit::<libc::fd_set>::uninit();
        let mut at_once = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: FD_ZERO initialises the set; the descriptor is below FD_SETSIZE; null sets are
        // allowed.
        let ready = unsafe {
            libc::FD_ZERO(readable.as_mut_ptr());
            libc::FD_SET(self.0, readable.as_mut_ptr());
            let none = std::ptr::null_mut();
            libc::select(self.0 + 1, readable.as_mut_ptr(), none, none, &mut at_once)
        };
        nothing_ready(ready)
    }
}

/// Interprets a wait that returned immediately: if nothing is ready, the peer has not hung up.
fn nothing_ready(ready: i32) -> std::result::Result<bool, Errno> {
    if ready < 0 { Err(last_errno()) } else { Ok(ready == 0) }
}

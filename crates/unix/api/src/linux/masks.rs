//! The mask of the calling thread, and waiting for signals.
//!
//! [`timed_wait`] makes the system call itself, because the C library's sigtimedwait turns SI_TKILL
//! into SI_USER.

#![allow(unsafe_code, reason = "the C library's calls about masks")]

use std::ptr;
use std::time::Duration;

use super::convert::{check, check_long, from_sigset, last_error, to_sigset, to_timespec};
use super::info;
use crate::errno::{Errno, Result};
use crate::signal::SigSet;
use crate::sys::{SigInfo, SigmaskHow};

/// Size of the kernel's signal set in bytes.
const SET_BYTES: usize = 8;

/// Returns the mask of this thread, and with `Some` changes it: `sigprocmask`.
pub(super) fn change(change: Option<(SigmaskHow, SigSet)>) -> Result<SigSet> {
    let (how, set) = change.map_or((SigmaskHow::Block, SigSet::EMPTY), |(how, set)| (how, set));
    let how = match how {
        SigmaskHow::Block => libc::SIG_BLOCK,
        SigmaskHow::Unblock => libc::SIG_UNBLOCK,
        SigmaskHow::Set => libc::SIG_SETMASK,
    };
    let (set, mut old) = (to_sigset(set), to_sigset(SigSet::EMPTY));
    // SAFETY: both sets outlive the call.
    match unsafe { libc::pthread_sigmask(how, &raw const set, &raw mut old) } {
        0 => Ok(from_sigset(&old)),
        error => Err(Errno::from_raw(error)),
    }
}

/// Returns the pending signals: `sigpending`.
pub(super) fn pending() -> SigSet {
    let mut set = to_sigset(SigSet::EMPTY);
    // SAFETY: the set outlives the call, which fails only for a bad address.
    unsafe { libc::sigpending(&raw mut set) };
    from_sigset(&set)
}

/// Waits for a handler with a temporary mask: `sigsuspend`.
pub(super) fn suspend(mask: SigSet) -> Errno {
    let mask = to_sigset(mask);
    // SAFETY: the set outlives the call, which never succeeds.
    unsafe { libc::sigsuspend(&raw const mask) };
    last_error()
}

/// Waits for a handler: `pause`.
pub(super) fn pause() -> Errno {
    // SAFETY: the call takes no arguments, and never succeeds.
    unsafe { libc::pause() };
    last_error()
}

/// Takes a pending signal of the set: `sigtimedwait`.
pub(super) fn timed_wait(set: SigSet, timeout: Option<Duration>) -> Result<SigInfo> {
    let set = to_sigset(set);
    let timeout = timeout.map(to_timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    loop {
        // SAFETY: a siginfo_t is plain integers; all three arguments outlive the call.
        let found = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let (set, to) = (&raw const set, &raw mut info);
            check_long(libc::syscall(libc::SYS_rt_sigtimedwait, set, to, timeout, SET_BYTES))?;
            info
        };
        // The C library reserves 32 and 33 and does not block them, so they do not arrive here.
        if let Some(info) = info::decode(&found) {
            return Ok(info);
        }
    }
}

/// Sets the alarm: `alarm`.
pub(super) fn alarm(seconds: u32) -> u32 {
    // SAFETY: the call takes an integer and cannot fail.
    unsafe { libc::alarm(seconds) }
}

/// Sleeps: `nanosleep`.
pub(super) fn sleep(duration: Duration) -> std::result::Result<(), (Errno, Duration)> {
    let request = to_timespec(duration);
    let mut left = to_timespec(Duration::ZERO);
    // SAFETY: both outlive the call.
    check(unsafe { libc::nanosleep(&raw const request, &raw mut left) }).map(drop).map_err(
        |errno| {
            let left = Duration::new(left.tv_sec.unsigned_abs(), left.tv_nsec as u32);
            (errno, left)
        },
    )
}

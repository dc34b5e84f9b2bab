//! The system calls that send one signal: by number, to a thread, through a pidfd.
//!
//! [`super::send`] chooses the call for a target.

#![allow(unsafe_code, reason = "system calls that send")]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use super::convert::{check, check_long};
use super::info::QueuedSiginfo;
use crate::errno::{Errno, Result};
use crate::process::Tid;

/// `PIDFD_SIGNAL_PROCESS_GROUP` (Linux 6.9): addresses the group that the process leads or led.
const TO_GROUP: libc::c_uint = 1 << 2;

/// The lowest number for the pidfd of a child.
pub(super) const LOWEST_PIDFD: i32 = 512;

/// Returns a duplicate of the descriptor, for a caller that releases the table.
pub(super) fn own(pidfd: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(pidfd, LOWEST_PIDFD)
}

/// Moves the descriptor to a number that no program relies on, if such a number is free. A program
/// expects the next file that it opens to receive the lowest number that it has closed, even if it
/// forked a child in between.
pub(super) fn out_of_the_way(pidfd: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&pidfd, LOWEST_PIDFD).unwrap_or(pidfd)
}

/// Sends a signal to a process or group by number: kill(2).
pub(super) fn by_number(number: i32, signal: i32) -> Result<()> {
    // SAFETY: the call takes two integers.
    check(unsafe { libc::kill(number, signal) }).map(drop)
}

/// Sends a signal to the process of a pidfd.
pub(super) fn through(pidfd: BorrowedFd<'_>, signal: i32) -> Result<()> {
    pidfd_send(pidfd, signal, None, 0)
}

/// Returns `true` until the process is reaped, even while it is a zombie.
pub(super) fn is_unreaped(pidfd: BorrowedFd<'_>) -> bool {
    through(pidfd, 0) != Err(Errno::ESRCH)
}

/// Returns `true` if the group that the process leads or led has members; always `false` before
/// Linux 6.9.
pub(super) fn is_group(pidfd: BorrowedFd<'_>) -> bool {
    matches!(to_group(pidfd, 0), Ok(()) | Err(Errno::EPERM))
}

/// Sends a signal to the group that the process leads or led; `EINVAL` before Linux 6.9.
pub(super) fn to_group(pidfd: BorrowedFd<'_>, signal: i32) -> Result<()> {
    pidfd_send(pidfd, signal, None, TO_GROUP)
}

/// Sends a signal with information: pidfd_send_signal(2).
pub(super) fn pidfd_send(
    pidfd: BorrowedFd<'_>,
    signal: i32,
    sent: Option<&QueuedSiginfo>,
    flags: libc::c_uint,
) -> Result<()> {
    let call = libc::SYS_pidfd_send_signal;
    let sent = sent.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the descriptor is open; `sent` is null or refers to a value with the layout of a
    // siginfo_t, and outlives the call.
    check_long(unsafe { libc::syscall(call, pidfd.as_raw_fd(), signal, sent, flags) }).map(drop)
}

/// Sends a signal to a thread by tgkill(2).
pub(super) fn to_thread(process: i32, thread: Tid, signal: i32) -> Result<()> {
    // SAFETY: the call takes three integers.
    check_long(unsafe { libc::syscall(libc::SYS_tgkill, process, thread.0, signal) }).map(drop)
}

//! Waits of at most [`PATIENCE_MS`] for a notice from a pidfd, from another descriptor, or by any
//! call.

#![allow(unsafe_code, reason = "poll with a bare descriptor")]

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::checked;

/// Timeout for a notice.
pub(super) const PATIENCE_MS: libc::c_int = 5_000;

/// Waits until a pidfd signals that its process has ended.
///
/// # Errors
/// Returns `Failed` if the process does not end within five seconds.
pub(super) fn until_ended(pidfd: BorrowedFd<'_>) -> Result<()> {
    polled(pidfd.as_raw_fd(), libc::POLLIN)
}

/// Waits until a descriptor is ready for one of these events.
///
/// # Errors
/// Returns `Failed` if no event arrives within five seconds.
pub(super) fn polled(fd: RawFd, events: libc::c_short) -> Result<()> {
    let mut watched = libc::pollfd { fd, events, revents: 0 };
    told_in_time("poll", || {
        // SAFETY: the call passes one descriptor and a buffer of one entry.
        unsafe { libc::poll(&mut watched, 1, PATIENCE_MS) }
    })
}

/// Makes a call that returns the number of ready descriptors. Repeats it if a signal interrupts it.
pub(super) fn told_in_time(call: &str, mut wait: impl FnMut() -> libc::c_int) -> Result<()> {
    loop {
        match checked(wait()) {
            Ok(0) => {
                return Err(MeasureError::fail(format!(
                    "{call}: no notice within {PATIENCE_MS} \
                                                       ms"
                )));
            }
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).during(call),
        }
    }
}

//! Calls on descriptors by number: pipe, read, write, close, dup2. No call is retried.

#![allow(unsafe_code, reason = "calls that take any descriptor, open or not")]

use std::os::fd::IntoRawFd;

use rustix::pipe::{PipeFlags, pipe_with};

use super::convert::{check, check_long, to_errno};
use crate::errno::{Errno, Result};
use crate::terminal::Fd;

/// Creates a pipe whose ends are closed by exec: `pipe`.
pub(super) fn pipe() -> Result<(Fd, Fd)> {
    let (from, to) = pipe_with(PipeFlags::CLOEXEC).map_err(to_errno)?;
    Ok((Fd(from.into_raw_fd()), Fd(to.into_raw_fd())))
}

/// Reads from a descriptor: `read`.
pub(super) fn read(descriptor: Fd, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes only into the buffer.
    let read = unsafe { libc::read(descriptor.0, buffer.as_mut_ptr().cast(), buffer.len()) };
    counted(read)
}

/// Writes to a descriptor: `write`.
pub(super) fn write(descriptor: Fd, bytes: &[u8]) -> Result<usize> {
    // SAFETY: the kernel reads only the bytes of the slice.
    counted(unsafe { libc::write(descriptor.0, bytes.as_ptr().cast(), bytes.len()) })
}

/// Closes a descriptor: `close`.
pub(super) fn close(descriptor: Fd) -> Result<()> {
    // SAFETY: the call takes an integer. The caller of `Sys::close` must close only descriptors
    // that it owns.
    check(unsafe { libc::close(descriptor.0) }).map(drop)
}

/// Copies a descriptor: `dup2`. Exec does not close the copy.
pub(super) fn duplicate(from: Fd, to: Fd) -> Result<()> {
    // SAFETY: as for `close`.
    check(unsafe { libc::dup2(from.0, to.0) }).map(drop)
}

fn counted(returned: isize) -> Result<usize> {
    let counted = check_long(returned as libc::c_long)?;
    usize::try_from(counted).map_err(|_| Errno::EIO)
}

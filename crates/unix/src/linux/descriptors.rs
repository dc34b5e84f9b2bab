//! Descriptors by their numbers: pipe, read, write, close, dup2. Nothing is tried again.

#![allow(unsafe_code, reason = "calls that take any descriptor, open or not")]

use std::os::fd::IntoRawFd;

use rustix::pipe::{PipeFlags, pipe_with};

use super::convert::{check, check_long, to_errno};
use crate::errno::{Errno, Result};
use crate::terminal::Fd;

/// `pipe`, both ends closed by exec.
pub(super) fn pipe() -> Result<(Fd, Fd)> {
    let (from, to) = pipe_with(PipeFlags::CLOEXEC).map_err(to_errno)?;
    Ok((Fd(from.into_raw_fd()), Fd(to.into_raw_fd())))
}

/// `read`.
pub(super) fn read(descriptor: Fd, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes into the buffer, no further than it is long.
    let read = unsafe { libc::read(descriptor.0, buffer.as_mut_ptr().cast(), buffer.len()) };
    counted(read)
}

/// `write`.
pub(super) fn write(descriptor: Fd, bytes: &[u8]) -> Result<usize> {
    // SAFETY: the kernel reads the bytes, no further than they are long.
    counted(unsafe { libc::write(descriptor.0, bytes.as_ptr().cast(), bytes.len()) })
}

/// `close`.
pub(super) fn close(descriptor: Fd) -> Result<()> {
    // SAFETY: it takes an integer. That the descriptor is the caller's to close is what
    // `Sys::close` says.
    check(unsafe { libc::close(descriptor.0) }).map(drop)
}

/// `dup2`; the copy is not closed by exec.
pub(super) fn duplicate(from: Fd, to: Fd) -> Result<()> {
    // SAFETY: as for `close`.
    check(unsafe { libc::dup2(from.0, to.0) }).map(drop)
}

fn counted(returned: isize) -> Result<usize> {
    let counted = check_long(returned as libc::c_long)?;
    usize::try_from(counted).map_err(|_| Errno::EIO)
}

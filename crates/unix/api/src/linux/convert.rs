//! Conversions between the kernel's types and the crate's: results, signal sets, times, wait
//! options.
//!
//! [`super::info`] converts a `siginfo_t`, and [`super::terminal`] converts the modes of a
//! terminal.

#![allow(unsafe_code, reason = "a sigset_t is made of bits, and read as bits")]

use std::io;
use std::time::Duration;

use crate::errno::{Errno, Result};
use crate::process::Pid;
use crate::signal::{SigSet, Signal};
use crate::wait::WaitOptions;

/// Converts the result of a C function: −1 becomes the error in errno.
pub(super) fn check(returned: libc::c_int) -> Result<i32> {
    if returned == -1 { Err(last_error()) } else { Ok(returned) }
}

/// Like [`check`], for results of system calls and sizes.
pub(super) fn check_long(returned: libc::c_long) -> Result<libc::c_long> {
    if returned == -1 { Err(last_error()) } else { Ok(returned) }
}

/// Converts an error of rustix, because rustix's types do not appear in the public interface.
pub(super) fn to_errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}

/// Returns the error in errno.
pub(super) fn last_error() -> Errno {
    io::Error::last_os_error().into()
}

/// Returns the signal's number, or 0 for `None`, with which a call only checks permission and
/// existence.
pub(super) fn number(signal: Option<Signal>) -> i32 {
    signal.map_or(0, Signal::number)
}

/// Returns a handle without an ordinal for this number.
pub(super) fn bare(number: i32) -> Pid {
    Pid::number_only(number)
}

/// Converts a set to a `sigset_t`, a longer bit array whose first 64 bits are the kernel's set.
pub(super) fn to_sigset(set: SigSet) -> libc::sigset_t {
    // SAFETY: a sigset_t is plain bits; all zeros are the empty set.
    let mut kernel: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a sigset_t is longer than a u64 and aligned as an unsigned long, which has the
    // alignment of a u64 here; signal n is bit n - 1 of its first words, the low word first.
    unsafe { (&raw mut kernel).cast::<u64>().write(set.bits()) };
    kernel
}

/// Converts a `sigset_t` to a set.
pub(super) fn from_sigset(kernel: &libc::sigset_t) -> SigSet {
    // SAFETY: as in `to_sigset`, and every bit pattern is a valid u64.
    SigSet::from_bits(unsafe { std::ptr::from_ref(kernel).cast::<u64>().read() })
}

/// Converts a duration, saturating at the maximum of a timespec.
pub(super) fn to_timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Converts a time that the kernel measured, which is not negative.
pub(super) fn from_timeval(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_usec.unsigned_abs() as u32 * 1000)
}

/// Converts options to the flags of waitid(2).
pub(super) fn wait_flags(options: WaitOptions) -> i32 {
    let known = [
        (WaitOptions::NOHANG, libc::WNOHANG),
        (WaitOptions::EXITED, libc::WEXITED),
        (WaitOptions::STOPPED, libc::WSTOPPED),
        (WaitOptions::CONTINUED, libc::WCONTINUED),
        (WaitOptions::NOWAIT, libc::WNOWAIT),
    ];
    known.iter().filter(|(ours, _)| options.contains(*ours)).fold(0, |all, (_, flag)| all | flag)
}

const _: () = assert!(size_of::<libc::sigset_t>() >= 8 && align_of::<libc::sigset_t>() >= 8);
const _: () = assert!(cfg!(target_endian = "little"));

//! Between the kernel's words and the crate's: results, sets of signals, times, wait options.
//!
//! What a signal brings with it is [`super::info`]'s; terminal modes are [`super::terminal`]'s.

#![allow(unsafe_code, reason = "a sigset_t is made of bits, and read as bits")]

use std::io;
use std::time::Duration;

use crate::errno::{Errno, Result};
use crate::process::Pid;
use crate::signal::{SigSet, Signal};
use crate::wait::WaitOptions;

/// What the C library's convention says: −1, and errno.
pub(super) fn check(returned: libc::c_int) -> Result<i32> {
    if returned == -1 { Err(last_error()) } else { Ok(returned) }
}

/// The same for system calls and for sizes.
pub(super) fn check_long(returned: libc::c_long) -> Result<libc::c_long> {
    if returned == -1 { Err(last_error()) } else { Ok(returned) }
}

/// Returns the crate's error for one of rustix, which the public interface does not have.
pub(super) fn to_errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}

/// What errno says.
pub(super) fn last_error() -> Errno {
    io::Error::last_os_error().into()
}

/// The signal's number, and 0 where only the question is asked.
pub(super) fn number(signal: Option<Signal>) -> i32 {
    signal.map_or(0, Signal::number)
}

/// Whoever has this number.
pub(super) fn bare(number: i32) -> Pid {
    Pid::number_only(number)
}

/// The kernel's signal set: 64 bits, of which a `sigset_t` is a longer array.
pub(super) fn to_sigset(set: SigSet) -> libc::sigset_t {
    // SAFETY: a sigset_t is plain bits, of which all zeros are the empty set.
    let mut kernel: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: it is longer than a u64 and aligned as an unsigned long, which has the alignment of a
    // u64 here; signal n is bit n - 1 of its first words, little end first.
    unsafe { (&raw mut kernel).cast::<u64>().write(set.bits()) };
    kernel
}

/// The bits of one.
pub(super) fn from_sigset(kernel: &libc::sigset_t) -> SigSet {
    // SAFETY: as above, and every pattern of bits is a u64.
    SigSet::from_bits(unsafe { std::ptr::from_ref(kernel).cast::<u64>().read() })
}

/// The longest that fits, where it does not.
pub(super) fn to_timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// A time that the kernel measured, which is not negative.
pub(super) fn from_timeval(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_usec.unsigned_abs() as u32 * 1000)
}

/// The options as waitid(2) takes them.
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

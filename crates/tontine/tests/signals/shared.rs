//! Functions that send signals and read a process's signal state, for tests in forked children.

#![allow(unsafe_code, reason = "sigqueue and dispositions")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::mem::zeroed;
use std::ptr::null_mut;
use std::time::Duration;

use tontine::signal::Signal;

use crate::child::Child;

/// Longer than any expected event takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// Long enough to observe that no event happens.
pub(crate) const SHORT: Duration = Duration::from_millis(50);

/// Runs the check in a single-threaded child, with no signal blocked.
pub(crate) fn in_a_process(check: impl FnOnce()) {
    assert_eq!(status_of(check), 0, "the check in the child failed");
}

/// Ends a child in which a test runs, when the test ends.
pub(crate) struct EndOfChild;

impl Drop for EndOfChild {
    fn drop(&mut self) {
        // SAFETY: `_exit` only ends the process.
        unsafe { libc::_exit(if std::thread::panicking() { 101 } else { 0 }) }
    }
}

/// Runs the rest of the calling test alone, in a single-threaded child with no signal blocked, and
/// returns from the test in its parent.
macro_rules! in_own_process {
    () => {
        alone!();
        if let Ok(mut child) = crate::child::Child::split() {
            return assert_eq!(child.wait(), 0, "the test failed in the child");
        }
        let _end = crate::shared::EndOfChild;
    };
}

/// Runs `body` in a child. Returns the child's exit status, or 128 plus the signal that killed it.
pub(crate) fn status_of(body: impl FnOnce()) -> i32 {
    Child::fork(|_| body()).wait()
}

pub(crate) fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

pub(crate) fn kill(pid: i32, signal: Signal) {
    // SAFETY: `kill` only takes numbers.
    assert_eq!(unsafe { libc::kill(pid, signal.as_raw()) }, 0);
}

pub(crate) fn kill_self(signal: Signal) {
    kill(own_pid(), signal);
}

/// Sends a signal with a value; returns `false` if the queue is full.
pub(crate) fn try_queue(pid: i32, signal: Signal, value: i32) -> bool {
    let value = libc::sigval { sival_ptr: value as usize as *mut libc::c_void };
    // SAFETY: `sigqueue` only takes numbers.
    unsafe { libc::sigqueue(pid, signal.as_raw(), value) == 0 }
}

pub(crate) fn queue(pid: i32, signal: Signal, value: i32) {
    assert!(try_queue(pid, signal, value), "sigqueue: {}", std::io::Error::last_os_error());
}

pub(crate) fn realtime(number: u8) -> Signal {
    Signal::realtime(number).expect("thirty signals exist")
}

/// Returns the signals in `line` of the calling thread's status.
pub(crate) fn mask(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("proc");
    let line = status.lines().find_map(|one| one.strip_prefix(line)).expect("the line");
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).expect("a mask")
}

pub(crate) fn is_in(mask: u64, signal: Signal) -> bool {
    mask & (1 << (signal.as_raw() - 1)) != 0
}

/// Sets a disposition; returns the previous one.
pub(crate) fn dispose(signal: Signal, to: usize, flags: i32) -> (usize, i32) {
    // SAFETY: zero is a valid action; the pointers are to live locals. Only SIG_DFL and SIG_IGN are
    // passed.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = (zeroed(), zeroed());
        action.sa_sigaction = to;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal.as_raw(), &action, &mut before), 0);
        (before.sa_sigaction, before.sa_flags)
    }
}

/// Returns the current disposition: handler and flags.
pub(crate) fn disposition(signal: Signal) -> (usize, i32) {
    // SAFETY: as above.
    unsafe {
        let mut now: libc::sigaction = zeroed();
        assert_eq!(libc::sigaction(signal.as_raw(), null_mut(), &mut now), 0);
        (now.sa_sigaction, now.sa_flags)
    }
}

pub(crate) fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("proc").count()
}

/// Forbids this process to queue further signals for its user.
pub(crate) fn forbid_queueing() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &none) }, 0);
}

//! The function that runs a test in its own process, [`run`], and helpers for such tests.

#![allow(unsafe_code, reason = "a PID namespace is unshared")]

use std::time::Duration;

use rustix::thread::{UnshareFlags, unshare_unsafe};
use tontine_unix::{Errno, Fd, Pid, Sys, WaitOptions, WaitStatus, WaitedChild};

use crate::keeper::keep;

/// Maximum run time of a process, in seconds, even on a busy machine. SIGALRM terminates a process
/// that exceeds it.
const TIMEOUT_S: u32 = 300;

/// Runs `test` in a forked process, and fails if an assertion of `test` fails.
pub(crate) fn run(test: impl FnOnce(&dyn Sys) + Send + 'static) {
    let status = keep(move |sys| {
        test(sys);
        0
    });
    assert_eq!(status, Some(0));
}

/// Runs `test` like [`run`], as the first process of a PID namespace, in which it can choose the
/// numbers of processes. Does nothing if the user may not create a namespace.
pub(crate) fn in_namespace(test: impl FnOnce(&dyn Sys) + Send + 'static) {
    run(|sys| {
        // SAFETY: the call changes only the namespace of children created from now on, and no
        // descriptor.
        if unsafe { unshare_unsafe(UnshareFlags::NEWPID) }.is_err() {
            return;
        }
        let first = sys.fork(|sys| {
            sys.alarm(TIMEOUT_S);
            test(sys);
            0
        });
        assert_eq!(end(sys, first.unwrap()), WaitStatus::Exited(0));
    });
}

/// Waits until a child has ended and returns its status.
pub(crate) fn end(sys: &dyn Sys, child: Pid) -> WaitStatus {
    reap(sys, child).status
}

/// Reaps a child.
pub(crate) fn reap(sys: &dyn Sys, child: Pid) -> WaitedChild {
    loop {
        match sys.waitpid(child.into(), WaitOptions::empty()) {
            Ok(found) => return found.expect("the wait blocks"),
            Err(error) => assert_eq!(error, Errno::EINTR, "waiting for {child}"),
        }
    }
}

/// Returns a child that sleeps until a signal terminates it.
pub(crate) fn sleeper(sys: &dyn Sys) -> Pid {
    sys.fork(|sys| {
        loop {
            sys.pause();
        }
    })
    .expect("fork")
}

/// Writes one byte: the other side of [`await_byte`].
pub(crate) fn send_byte(sys: &dyn Sys, to: Fd) {
    assert_eq!(sys.write(to, b"."), Ok(1));
}

/// Blocks until a byte arrives.
pub(crate) fn await_byte(sys: &dyn Sys, from: Fd) {
    let mut byte = [0];
    assert_eq!(sys.read(from, &mut byte), Ok(1));
}

/// Polls until `holds` returns `true`, for changes that the kernel does not report.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("never happened: {what}");
}

/// Returns the state letter of a process from /proc, or `?` if the process does not exist.
pub(crate) fn state(number: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next()).unwrap_or('?')
}

/// Returns the number of descriptors that this process has open.
pub(crate) fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

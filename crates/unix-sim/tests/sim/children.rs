//! Helpers that create, signal and reap processes, shared by many tests.

use tontine_unix::{Children, Errno, Pid, SigAction, Signal, Sys, WaitOptions, WaitStatus};

/// The process argument that denotes the caller.
pub(crate) const SELF: Pid = Pid::number_only(0);

/// Returns a child that sleeps until a signal terminates it.
pub(crate) fn sleeper(sys: &dyn Sys) -> Pid {
    sys.fork(sleep_on).expect("within the limits")
}

/// Sleeps until a signal terminates the process. Never returns.
pub(crate) fn sleep_on(sys: &dyn Sys) -> i32 {
    loop {
        sys.pause();
    }
}

/// Returns a sleeper that leads its own group.
pub(crate) fn leader(sys: &dyn Sys) -> Pid {
    let child = sleeper(sys);
    sys.setpgid(child, child).expect("a child");
    child
}

/// Returns the process number without its handle. On Linux only the parent holds a handle of its
/// child, so other processes use the number.
pub(crate) const fn bare(pid: Pid) -> Pid {
    Pid::number_only(pid.number())
}

/// Waits until a child has ended, resuming the wait after signals, and returns its status.
#[track_caller]
pub(crate) fn end(sys: &dyn Sys, child: Pid) -> WaitStatus {
    changed(sys, child, WaitOptions::EXITED)
}

/// Like [`end`], but also returns when the child has stopped or continued.
#[track_caller]
pub(crate) fn change(sys: &dyn Sys, child: Pid) -> WaitStatus {
    changed(sys, child, WaitOptions::EXITED | WaitOptions::STOPPED | WaitOptions::CONTINUED)
}

#[track_caller]
fn changed(sys: &dyn Sys, child: Pid, options: WaitOptions) -> WaitStatus {
    loop {
        match sys.waitid(Children::One(child), options) {
            Ok(found) => return found.expect("the wait blocks").status,
            Err(error) => assert_eq!(error, Errno::EINTR, "waiting for {child}"),
        }
    }
}

/// Ignores a signal.
pub(crate) fn ignore(sys: &dyn Sys, signal: Signal) {
    sys.sigaction(signal, Some(SigAction::IGNORE)).expect("neither SIGKILL nor SIGSTOP");
}

//! Helpers that create, signal and reap processes, shared by many tests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tontine_unix::{
    Children, Errno, Fd, Pid, SigAction, Signal, Sys, Tid, WaitOptions, WaitStatus,
};

/// The process argument that denotes the caller.
pub(crate) const SELF: Pid = Pid::number_only(0);

/// Returns a child that runs `program`.
#[track_caller]
pub(crate) fn forked(sys: &dyn Sys, program: impl FnOnce(&dyn Sys) -> i32 + Send + 'static) -> Pid {
    sys.fork(program).expect("within the limits")
}

/// Returns a thread that runs `body`.
#[track_caller]
pub(crate) fn threaded(sys: &dyn Sys, body: impl FnOnce(&dyn Sys) + Send + 'static) -> Tid {
    sys.thread(body).expect("within the limits")
}

/// Returns a child that sleeps until a signal terminates it.
pub(crate) fn sleeper(sys: &dyn Sys) -> Pid {
    forked(sys, sleep_on)
}

/// Sleeps until a signal is handled.
pub(crate) fn pauses(sys: &dyn Sys) -> i32 {
    sys.pause();
    0
}

/// Yields until another thread or process has set `flag`.
pub(crate) fn await_set(sys: &dyn Sys, flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        sys.sched_yield();
    }
}

/// Sends a signal to an existing process.
#[track_caller]
pub(crate) fn send(sys: &dyn Sys, process: Pid, signal: Signal) {
    sys.kill(process.into(), Some(signal)).expect("the target exists");
}

/// Waits once for a child, and returns its status.
#[track_caller]
pub(crate) fn end_of(sys: &dyn Sys, child: Pid) -> WaitStatus {
    let waited = sys.waitpid(child.into(), WaitOptions::empty());
    waited.expect("a child of the caller").expect("the wait blocks").status
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

/// Sleeps briefly: in a simulation, until all other threads sleep; elsewhere, long enough for other
/// threads to run.
pub(crate) fn rest(sys: &dyn Sys) {
    let _ = sys.nanosleep(Duration::from_millis(5));
}

/// A pipe over which a process releases a waiting process with one byte.
#[derive(Clone, Copy)]
pub(crate) struct Gate(pub(crate) Fd, pub(crate) Fd);

impl Gate {
    pub(crate) fn new(sys: &dyn Sys) -> Self {
        let (from, to) = sys.pipe().unwrap();
        Self(from, to)
    }

    /// Releases one process that waits in [`Gate::pass`].
    pub(crate) fn open(self, sys: &dyn Sys) {
        assert_eq!(sys.write(self.1, b"."), Ok(1));
    }

    /// Blocks until a process opens the gate.
    pub(crate) fn pass(self, sys: &dyn Sys) {
        let mut byte = [0];
        loop {
            match sys.read(self.0, &mut byte) {
                Ok(read) => return assert_eq!(read, 1),
                Err(error) => assert_eq!(error, Errno::EINTR),
            }
        }
    }

    /// Returns `true` if no process has opened the gate. Closes the caller's write end.
    pub(crate) fn is_shut(self, sys: &dyn Sys) -> bool {
        sys.close(self.1).unwrap();
        sys.read(self.0, &mut [0]) == Ok(0)
    }

    /// Sends a number.
    pub(crate) fn send(self, sys: &dyn Sys, number: i32) {
        assert_eq!(sys.write(self.1, &number.to_ne_bytes()), Ok(4));
    }

    /// Blocks until a number arrives.
    pub(crate) fn receive(self, sys: &dyn Sys) -> i32 {
        let mut bytes = [0; 4];
        assert_eq!(sys.read(self.0, &mut bytes), Ok(4));
        i32::from_ne_bytes(bytes)
    }

    /// Blocks until the number of a process arrives.
    pub(crate) fn receive_pid(self, sys: &dyn Sys) -> Pid {
        Pid::number_only(self.receive(sys))
    }
}

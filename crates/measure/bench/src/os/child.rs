//! A forked process that cannot outlive its handle: [`Child`].

#![allow(unsafe_code, reason = "fork")]

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process, pidfd_open,
    set_parent_process_death_signal, waitpid,
};

use crate::error::{ErrorContext, MeasureError, Result};

/// A child process created by `fork`. When the handle is dropped, the child is killed and reaped;
/// if this process is killed, the kernel kills the child too.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    reaped: bool,
}

impl Child {
    /// Forks. The child runs `body` and exits with the status that it returns (101 if it panics).
    ///
    /// Call this only while the process is single-threaded, or if `body` allocates nothing: another
    /// thread may hold the allocator's lock at the moment of the fork.
    pub fn fork(body: impl FnOnce() -> i32) -> Result<Self> {
        let parent = rustix::process::getpid();
        // SAFETY: the child runs `body` on a copy of this thread and exits by `_exit`; it never
        // returns into the caller's frames. The caller must respect the documented limits on `body`
        // in a process that had several threads.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()).setting_up("fork"),
            0 => {
                let _ = set_parent_process_death_signal(Some(Signal::KILL));
                // The first process of a PID namespace sees no parent (`None`) if the parent is
                // outside it.
                if rustix::process::getppid().is_some_and(|now| now != parent) {
                    exit_at_once(1);
                }
                let body = std::panic::AssertUnwindSafe(body);
                exit_at_once(std::panic::catch_unwind(body).unwrap_or(101))
            }
            pid => {
                let pid = Pid::from_raw(pid).expect("fork returns a positive pid to the parent");
                Ok(Self { pid, reaped: false })
            }
        }
    }

    /// Returns the process id, which the kernel does not reuse until the child is reaped.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns the process id as a number.
    pub fn raw_pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Sends a signal to the child. Once the child has been reaped, this fails with ESRCH instead
    /// of reaching an unrelated process.
    pub fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        if self.reaped { Err(Errno::SRCH) } else { kill_process(self.pid, signal) }
    }

    /// Waits until the child has ended, and reaps it.
    pub fn wait(&mut self) -> Result<WaitStatus> {
        loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                Ok(Some((_, status))) => {
                    self.reaped = true;
                    return Ok(status);
                }
                Ok(None) => return Err(MeasureError::fail("waitpid returned without a status")),
                Err(error) => {
                    self.reaped = true;
                    return Err(error).during("waitpid");
                }
            }
        }
    }

    /// Like [`Child::wait`], but fails, naming the child by `who`, if it does not exit with 0.
    pub fn expect_success(&mut self, who: &str) -> Result<()> {
        let status = self.wait()?;
        if status.exit_status() == Some(0) {
            return Ok(());
        }
        Err(MeasureError::fail(format!("expected {who} to exit with 0, found {status:?}")))
    }

    /// Kills the child with SIGKILL and reaps it.
    pub fn kill(&mut self) -> Result<WaitStatus> {
        match self.signal(Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => self.wait(),
            Err(error) => Err(error).setting_up("kill"),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.kill();
        }
    }
}

/// Returns `true` if a child that was forked anywhere in this process ends within `timeout`. Does
/// not reap the child.
pub fn ends_within(pid: Pid, timeout: Duration) -> Result<bool> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).setting_up("pidfd_open")?;
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 3_600, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).during("poll"),
        }
    }
}

/// Exits a forked child without running the parent's exit handlers.
pub fn exit_at_once(status: i32) -> ! {
    // SAFETY: `_exit` terminates the process, so none of its memory is used afterwards.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_reports_exit_status_and_killing_signal() {
        let mut child = Child::fork(|| 3).expect("fork");
        assert_eq!(child.wait().expect("wait").exit_status(), Some(3));

        let mut child = Child::fork(|| {
            loop {
                std::thread::yield_now()
            }
        })
        .expect("fork");
        assert_eq!(child.kill().expect("kill").terminating_signal(), Some(libc::SIGKILL));
        assert_eq!(child.signal(Signal::TERM), Err(Errno::SRCH), "the pid of a reaped child");
    }

    #[test]
    fn ends_within_returns_false_after_timeout() {
        let mut child = Child::fork(|| {
            loop {
                std::thread::yield_now()
            }
        })
        .expect("fork");
        assert_eq!(ends_within(child.pid(), Duration::from_millis(20)), Ok(false));
        child.signal(Signal::KILL).expect("kill");
        assert_eq!(ends_within(child.pid(), Duration::from_secs(60)), Ok(true));
        child.wait().expect("reaped");
    }
}

//! A forked process that cannot outlive its handle: [`Child`].

#![allow(unsafe_code, reason = "fork")]

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process, pidfd_open,
    set_parent_process_death_signal, waitpid,
};

use crate::trouble::{During, Result, Trouble};

/// A child process made by `fork`. Dropped, it is killed and reaped; should *we* be killed, the
/// kernel kills it too.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    reaped: bool,
}

impl Child {
    /// Forks; the child runs `body` and exits with the status that it returns (101 if it panics).
    ///
    /// Call it while the process has one thread, or let `body` allocate nothing: another thread may
    /// hold the allocator's lock at the moment of the fork.
    ///
    /// # Errors
    /// Skipped, where the system refuses another process.
    pub fn fork(body: impl FnOnce() -> i32) -> Result<Self> {
        let parent = rustix::process::getpid();
        // SAFETY: the child runs `body` on a copy of this thread and leaves by `_exit`; it never
        // returns into the caller's frames. What `body` may do in a process that had several
        // threads is the documented duty of the caller.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()).setting_up("fork"),
            0 => {
                let _ = set_parent_process_death_signal(Some(Signal::KILL));
                // The first process of a PID namespace does not see a parent outside it: none.
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

    /// Its process id; nobody else's as long as it is not reaped.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends it a signal. Not after it was reaped: then this fails with ESRCH instead of reaching a
    /// stranger.
    ///
    /// # Errors
    /// As `kill(2)`.
    pub fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        if self.reaped { Err(Errno::SRCH) } else { kill_process(self.pid, signal) }
    }

    /// Waits for its end and reaps it.
    ///
    /// # Errors
    /// Failed, where somebody else reaped it.
    pub fn wait(&mut self) -> Result<WaitStatus> {
        loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                Ok(Some((_, status))) => {
                    self.reaped = true;
                    return Ok(status);
                }
                Ok(None) => return Err(Trouble::fail("waitpid returned without a status")),
                Err(error) => {
                    self.reaped = true;
                    return Err(error).during("waitpid");
                }
            }
        }
    }

    /// Says that it was reaped already, by a wait for any child.
    pub fn was_reaped(&mut self) {
        self.reaped = true;
    }

    /// Kills it with SIGKILL and reaps it.
    ///
    /// # Errors
    /// As [`Child::wait`]; skipped, where the system refuses the signal. Waiting for a process that
    /// lives on might take for ever: it ends when the thread that forked it does.
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

/// Whether a child, forked by whomever in this process, ends within `patience`. It is not reaped.
///
/// # Errors
/// Skipped, where the system has no pidfds; failed, where there is no such child.
pub fn ends_within(pid: Pid, patience: Duration) -> Result<bool> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).setting_up("pidfd_open")?;
    let until = Instant::now() + patience;
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

/// Leaves a forked child without running the parent's exit handlers.
pub fn exit_at_once(status: i32) -> ! {
    // SAFETY: `_exit` ends the process; nothing of it is used afterwards.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_status_and_death_arrive() {
        let mut child = Child::fork(|| 3).expect("fork");
        assert_eq!(child.wait().expect("wait").exit_status(), Some(3));

        let mut child = Child::fork(|| {
            loop {
                std::thread::yield_now()
            }
        })
        .expect("fork");
        assert_eq!(child.kill().expect("kill").terminating_signal(), Some(libc::SIGKILL));
        assert_eq!(child.signal(Signal::TERM), Err(Errno::SRCH), "reaped: nobody's pid");
    }

    #[test]
    fn one_that_lives_on_is_waited_for_no_longer_than_told() {
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

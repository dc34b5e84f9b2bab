//! The end of another process, as a descriptor: [`open`], [`has_ended`].
//!
//! A pidfd becomes readable when the whole process has ended, for any reason, independently of the
//! process's liveness word. Unlike that word, it does not report `exec`. Neighbours:
//! [`super::socket`] receives pidfds that the kernel attached to a message. These need no pid, and
//! cannot refer to the wrong process.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::{Error, Result};

/// Returns a descriptor for the process that has this id *now*.
///
/// # Errors
/// [`Error::System`], with ESRCH if there is no such process, and EINVAL if the id is 0 or belongs
/// to a thread.
pub(crate) fn open(pid: u32) -> Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(Error::system("pidfd_open", Errno::INVAL))?;
    pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| Error::system("pidfd_open", errno))
}

/// Returns `true` if the process has ended, even if it is not reaped yet; `false` if the kernel
/// does not report the end.
pub(crate) fn has_ended(pidfd: impl AsFd) -> bool {
    let mut wanted = [PollFd::new(&pidfd, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A poll with a timeout of zero is never interrupted.
    poll(&mut wanted, Some(&at_once)).is_ok_and(|ready| ready > 0)
        && wanted[0].revents().intersects(PollFlags::IN | PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pidfd_is_readable_only_after_process_end() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pidfd = open(child.id()).expect("pidfd");
        assert!(!has_ended(&pidfd));
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(has_ended(&pidfd));
        assert_eq!(open(child.id()).expect_err("reaped").errno(), libc::ESRCH);
        assert_eq!(open(0).expect_err("no process").errno(), libc::EINVAL);
    }
}

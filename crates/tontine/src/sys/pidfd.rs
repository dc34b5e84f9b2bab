//! The end of another process, as a descriptor: [`open`], [`has_ended`], [`has_table`].
//!
//! A pidfd becomes readable when the whole process has ended, for any reason, independently of the
//! process's liveness word. Unlike that word, it does not report `exec`. Neighbours:
//! [`super::socket`] receives pidfds that the kernel attached to a message. These need no pid, and
//! cannot refer to the wrong process.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

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

/// Returns `true` if the process has a table of descriptors, so that its program or an `exec` has
/// closed what it no longer holds. A process that ends loses the table before its peers see
/// hang-ups; its pidfd is readable only later. Returns `false` if `/proc` does not tell.
pub(crate) fn has_table(pidfd: &OwnedFd) -> bool {
    let field = |path: String, name: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok())
    };
    // The kernel writes the number that the process has in this `/proc`.
    let pid = field(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()), "Pid:");
    let slots = pid.and_then(|pid| field(format!("/proc/{pid}/status"), "FDSize:"));
    // Until it has ended, no other process has its number.
    slots.is_some_and(|slots| slots > 0) && !has_ended(pidfd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pidfd_is_readable_only_after_process_end() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pidfd = open(child.id()).expect("pidfd");
        assert!(!has_ended(&pidfd) && has_table(&pidfd));
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(has_ended(&pidfd) && !has_table(&pidfd));
        assert_eq!(open(child.id()).expect_err("reaped").errno(), libc::ESRCH);
        assert_eq!(open(0).expect_err("no process").errno(), libc::EINVAL);
    }
}

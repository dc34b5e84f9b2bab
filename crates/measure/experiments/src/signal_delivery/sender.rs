//! The system calls that send a signal: [`SendCall`], prepared for one process as a
//! [`PreparedCall`].

#![allow(unsafe_code, reason = "tgkill and a pidfd_send_signal of signal 0")]

use rustix::process::{Pid, Signal};

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::{
    PidfdFlags, getpid, kill_process, pidfd_open, pidfd_send_signal, test_kill_process,
};

use crate::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendCall {
    Kill,
    Pidfd,
    /// `tgkill`, to the process's first thread.
    Tgkill,
}

impl SendCall {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Pidfd => "pidfd_send_signal",
            Self::Tgkill => "tgkill",
        }
    }

    /// Checks, by sending signal 0 to this process, that the system permits the call. Call it once
    /// for many deliveries, because a check before each delivery would warm up the timed path.
    pub(super) fn probe(self) -> Result<()> {
        let ours = getpid();
        match self {
            Self::Kill => test_kill_process(ours).setting_up("kill"),
            Self::Pidfd => {
                let descriptor = pidfd_open(ours, PidfdFlags::empty()).setting_up("pidfd_open")?;
                let (call, number) = (libc::SYS_pidfd_send_signal, descriptor.as_raw_fd());
                // SAFETY: the descriptor is open; a null pointer means no information.
                let sent = unsafe { libc::syscall(call, number, 0, std::ptr::null::<u8>(), 0) };
                returned(sent).setting_up("pidfd_send_signal")
            }
            Self::Tgkill => tgkill(ours, 0).setting_up("tgkill"),
        }
    }
}

/// A [`SendCall`] with all its prepared arguments for one child, so that only the call itself is
/// left. Do not use it after the child was reaped.
#[derive(Debug)]
pub(super) enum PreparedCall {
    Kill(Pid),
    Pidfd(OwnedFd),
    Tgkill(Pid),
}

impl PreparedCall {
    pub(super) fn to(child: &Child, call: SendCall) -> Result<Self> {
        Ok(match call {
            SendCall::Kill => Self::Kill(child.pid()),
            SendCall::Pidfd => {
                Self::Pidfd(pidfd_open(child.pid(), PidfdFlags::empty()).setting_up("pidfd_open")?)
            }
            SendCall::Tgkill => Self::Tgkill(child.pid()),
        })
    }

    #[inline(always)]
    pub(super) fn send(&self, signal: Signal) -> std::io::Result<()> {
        match self {
            Self::Kill(pid) => Ok(kill_process(*pid, signal)?),
            Self::Pidfd(descriptor) => Ok(pidfd_send_signal(descriptor, signal)?),
            Self::Tgkill(pid) => tgkill(*pid, signal.as_raw()),
        }
    }
}

/// Signals the first thread of the process, whose thread id is the process id.
fn tgkill(pid: Pid, signal: libc::c_int) -> std::io::Result<()> {
    let id = pid.as_raw_nonzero().get();
    // SAFETY: tgkill takes three integers and accesses none of our memory.
    returned(unsafe { libc::syscall(libc::SYS_tgkill, id, id, signal) })
}

fn returned(value: libc::c_long) -> std::io::Result<()> {
    if value == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness_check::refused_tests;

    #[test]
    fn refused_call_skips_and_names_it() {
        for (call, number, start) in [
            (SendCall::Pidfd, libc::SYS_pidfd_send_signal, "pidfd_send_signal: "),
            (SendCall::Tgkill, libc::SYS_tgkill, "tgkill: "),
        ] {
            assert_eq!(call.probe(), Ok(()), "{call:?}");
            refused_tests::skips(&[number], start, || call.probe());
        }
    }
}

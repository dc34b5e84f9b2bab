//! The system calls that send a signal: [`SendCall`], prepared for one process as a
//! [`PreparedCall`].

#![allow(unsafe_code, reason = "tgkill and a pidfd_send_signal of signal 0")]

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal, test_kill_process,
};
use tontine_host::error::{ErrorContext, Result};
use tontine_host::os::child::Child;

/// A system call that sends a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendCall {
    /// `kill`, to the process by its id.
    Kill,
    /// `pidfd_send_signal`, to the process by a descriptor.
    Pidfd,
    /// `tgkill`, to the process's first thread.
    Tgkill,
}

impl SendCall {
    /// Checks, by sending signal 0 to this process, that the system permits the call. Call it once
    /// for many deliveries, because a check before each delivery would warm up the timed path.
    ///
    /// # Errors
    /// Returns `Skipped` if a filter or the kernel refuses the call.
    pub(crate) fn probe(self) -> Result<()> {
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
/// left.
#[derive(Debug)]
pub(crate) enum PreparedCall {
    /// See [`SendCall::Kill`].
    Kill(Pid),
    /// See [`SendCall::Pidfd`].
    Pidfd(OwnedFd),
    /// See [`SendCall::Tgkill`].
    Tgkill(Pid),
}

impl PreparedCall {
    /// Prepares `call` for `child`. Do not use the result after the child was reaped.
    ///
    /// # Errors
    /// Returns `Skipped` if the kernel has no process descriptors.
    pub(crate) fn to(child: &Child, call: SendCall) -> Result<Self> {
        Ok(match call {
            SendCall::Kill => Self::Kill(child.pid()),
            SendCall::Pidfd => {
                Self::Pidfd(pidfd_open(child.pid(), PidfdFlags::empty()).setting_up("pidfd_open")?)
            }
            SendCall::Tgkill => Self::Tgkill(child.pid()),
        })
    }

    /// Sends the signal.
    #[inline(always)]
    pub(crate) fn send(&self, signal: Signal) -> std::io::Result<()> {
        match self {
            Self::Kill(pid) => Ok(kill_process(*pid, signal)?),
            Self::Pidfd(descriptor) => Ok(pidfd_send_signal(descriptor, signal)?),
            Self::Tgkill(pid) => tgkill(*pid, signal.as_raw()),
        }
    }

    /// Returns the call's name, for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Kill(_) => "kill",
            Self::Pidfd(_) => "pidfd_send_signal",
            Self::Tgkill(_) => "tgkill",
        }
    }
}

/// Signals the first thread of the process, whose thread id is the process id.
fn tgkill(pid: Pid, signal: libc::c_int) -> std::io::Result<()> {
    let id = pid.as_raw_nonzero().get();
    // SAFETY: tgkill takes three integers and accesses none of our memory.
    returned(unsafe { libc::syscall(libc::SYS_tgkill, id, id, signal) })
}

/// Converts a system call's result and its `errno`.
fn returned(value: libc::c_long) -> std::io::Result<()> {
    if value == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

    use super::*;
    use tontine_host::error::MeasureError;

    #[test]
    fn refused_call_skips_and_names_it() {
        let calls = [
            (SendCall::Pidfd, libc::SYS_pidfd_send_signal, "pidfd_send_signal: "),
            (SendCall::Tgkill, libc::SYS_tgkill, "tgkill: "),
        ];
        for (call, number, start) in calls {
            assert_eq!(call.probe(), Ok(()), "{call:?}");
            let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known processor");
            let rules = [(number, Vec::new())].into();
            let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
            let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch);
            let filter: BpfProgram = filter.expect("a filter").try_into().expect("a program");
            // The test runs in its own process, because a filter is permanent.
            let mut child = Child::fork(|| match seccompiler::apply_filter(&filter) {
                Err(_) => 2,
                Ok(()) => match call.probe() {
                    Err(MeasureError::Skipped(why)) if why.starts_with(start) => 0,
                    _ => 1,
                },
            })
            .expect("fork");
            assert_eq!(child.wait().expect("wait").exit_status(), Some(0), "{call:?}");
        }
    }
}

//! Sending signals: by number, through a pidfd, to a group, to a thread, with a value, as a fault.
//!
//! [`super::kill`] makes the system calls. [`super::handlers`] receives signals.

#![allow(unsafe_code, reason = "system calls that send")]

use std::os::fd::{AsFd, BorrowedFd};

use super::convert::{check_long, number, to_errno};
use super::info::QueuedSiginfo;
use super::kill::{by_number, is_unreaped, own, pidfd_send, through, to_group, to_thread};
use super::table::{self, Group, with_number};
use super::{handlers, masks};
use crate::errno::{Errno, Result};
use crate::process::{FAULTS, Pid, SignalTarget, Tid};
use crate::signal::{SigSet, Signal};
use crate::sys::{Disposition, SigAction, SigmaskHow};

/// Sends a signal: `kill`. If the target is a handle, sends through the pidfd.
pub(super) fn kill(target: SignalTarget, signal: Option<Signal>) -> Result<()> {
    let signal = number(signal);
    match target {
        SignalTarget::Process(pid) if pid.birth().is_some() => {
            to_child(pid, |child| through(child, signal))
        }
        // kill(2) interprets 0 and negative numbers as groups.
        SignalTarget::Process(pid) if pid.number() <= 0 => Err(Errno::ESRCH),
        SignalTarget::Process(pid) => by_number(pid.number(), signal),
        // The signal is sent without the table's lock. The lock blocks signals, and an ignored
        // signal stays pending while it is blocked.
        SignalTarget::Group(group) if group.number() == 0 => by_number(0, signal),
        SignalTarget::Group(group) => kill_group(group, signal),
        SignalTarget::OwnGroup => by_number(0, signal),
        SignalTarget::Everyone => by_number(-1, signal),
    }
}

/// Like [`to_child`], for the group that a child leads or led.
fn kill_group(group: Pid, signal: i32) -> Result<()> {
    let (number, own) = {
        let table = table::read();
        match table.group(group)? {
            Group::Number(number) => (number, None),
            Group::Of(number, leader) => match own(leader) {
                Ok(own) => (number, Some(own)),
                Err(_) => return to_led(number, leader, signal, true),
            },
        }
    };
    match (own, number) {
        (Some(leader), _) => to_led(number, leader.as_fd(), signal, false),
        // As in kill(2), the lowest number has no positive counterpart.
        (None, i32::MIN) => Err(Errno::ESRCH),
        (None, ..=0) => Err(Errno::EINVAL),
        // kill(2) interprets -1 as all processes.
        (None, 1) => {
            let init = rustix::process::Pid::INIT;
            let leader = rustix::process::pidfd_open(init, rustix::process::PidfdFlags::empty())
                .map_err(to_errno)?;
            to_group(leader.as_fd(), signal)
        }
        (None, _) => by_number(-number, signal),
    }
}

/// Sends to the group with this number and leader. If `held` is set, the caller holds the table's
/// lock.
fn to_led(number: i32, leader: BorrowedFd<'_>, signal: i32, held: bool) -> Result<()> {
    match to_group(leader, signal) {
        // Before Linux 6.9 a pidfd cannot denote a group. The number denotes the group while the
        // leader has the number.
        Err(Errno::EINVAL) => {
            // The lock keeps the leader from being reaped. The table must not be locked twice,
            // because a writer may be waiting.
            let _table = (!held).then(table::read);
            if is_unreaped(leader) { by_number(-number, signal) } else { Err(Errno::ESRCH) }
        }
        sent => sent,
    }
}

/// Sends a signal to a thread: `tgkill`.
pub(super) fn tgkill(process: Pid, thread: Tid, signal: Option<Signal>) -> Result<()> {
    // The kernel is not called for a reaped process, so this function makes the kernel's first
    // check.
    if process.number() <= 0 || thread.0 <= 0 {
        return Err(Errno::EINVAL);
    }
    with_number(process, |process| to_thread(process, thread, number(signal)))
}

/// Sends a signal with a value: `sigqueue`.
pub(super) fn queue(process: Pid, signal: Option<Signal>, value: i32) -> Result<()> {
    let signal = number(signal);
    let sent = QueuedSiginfo::queued(signal, value);
    if process.birth().is_some() {
        return to_child(process, |child| pidfd_send(child, signal, Some(&sent), 0));
    }
    // SAFETY: `sent` has the layout of a siginfo_t and outlives the call.
    let sent = unsafe {
        libc::syscall(libc::SYS_rt_sigqueueinfo, process.number(), signal, &raw const sent)
    };
    check_long(sent).map(drop)
}

/// Raises a fault of this thread. As in the kernel, a blocked or ignored signal is first reset to
/// its default action, which terminates the process.
///
/// A handler that the backend did not install, such as the handler of Rust's runtime, may restore
/// the default action and return, because a faulting instruction would fault again. This function
/// then sends the signal a second time.
pub(super) fn fault(signal: Signal) -> Result<()> {
    if !FAULTS.contains(signal) {
        return Err(Errno::EINVAL);
    }
    let blocked = masks::change(None)?.contains(signal);
    let ignored = handlers::action(signal, None)?.disposition == Disposition::Ignore;
    if blocked || ignored {
        handlers::action(signal, Some(SigAction::DEFAULT))?;
        masks::change(Some((SigmaskHow::Unblock, SigSet::of(&[signal]))))?;
    }
    let is_foreign = handlers::is_foreign(signal)?;
    send_fault(signal)?;
    if is_foreign && handlers::action(signal, None)?.disposition == Disposition::Default {
        send_fault(signal)?;
    }
    Ok(())
}

fn send_fault(signal: Signal) -> Result<()> {
    let fault = QueuedSiginfo::fault(signal.number());
    // SAFETY: getpid and gettid cannot fail; the third call reads `fault`, which has the layout of
    // a siginfo_t and outlives the call.
    let sent = unsafe {
        let (process, thread) = (libc::getpid(), libc::gettid());
        let fault = &raw const fault;
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal.number(), fault)
    };
    check_long(sent).map(drop)
}

/// Sends through a duplicate of the child's descriptor with the table unlocked. The lock blocks
/// signals, and a blocked signal is not discarded even if it is ignored; SIGCHLD may arrive during
/// the call if the signal terminates the child. If no descriptor is free, sends under the lock.
fn to_child(child: Pid, send: impl Fn(BorrowedFd<'_>) -> Result<()>) -> Result<()> {
    let own = {
        let table = table::read();
        let child = table.child(child).ok_or(Errno::ESRCH)?;
        match own(child.as_fd()) {
            Ok(own) => own,
            Err(_) => return send(child.as_fd()),
        }
    };
    send(own.as_fd())
}

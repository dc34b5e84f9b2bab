//! Sending signals: by number, through a pidfd, to a group, to a thread, with a value, as a fault.
//!
//! The system calls are in [`super::kill`]. What is done about signals at the other end is
//! [`super::handlers`]'.

#![allow(unsafe_code, reason = "system calls that send")]

use std::os::fd::{AsFd, BorrowedFd};

use super::convert::{check_long, number, to_errno};
use super::info::Sent;
use super::kill::{by_number, is_anybody, own, pidfd_send, through, to_group, to_thread};
use super::table::{self, Group, with_number};
use super::{handlers, masks};
use crate::errno::{Errno, Result};
use crate::process::{FAULTS, Pid, SignalTarget, Tid};
use crate::signal::{SigSet, Signal};
use crate::sys::{Disposition, SigAction, SigmaskHow};

/// `kill`. A handle's process is signalled through its descriptor.
pub(super) fn kill(target: SignalTarget, signal: Option<Signal>) -> Result<()> {
    let signal = number(signal);
    match target {
        SignalTarget::Process(pid) if pid.birth().is_some() => {
            to_child(pid, |child| through(child, signal))
        }
        // To kill(2), 0 and less would not be a process.
        SignalTarget::Process(pid) if pid.number() <= 0 => Err(Errno::ESRCH),
        SignalTarget::Process(pid) => by_number(pid.number(), signal),
        // Not under the table's lock: that blocks signals, and what is blocked is not ignored.
        SignalTarget::Group(group) if group.number() == 0 => by_number(0, signal),
        SignalTarget::Group(group) => kill_group(group, signal),
        SignalTarget::OwnGroup => by_number(0, signal),
        SignalTarget::Everyone => by_number(-1, signal),
    }
}

/// As [`to_child`], to the group that a child leads or led.
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
        // What kill(2) says where there is no number to make positive.
        (None, i32::MIN) => Err(Errno::ESRCH),
        (None, ..=0) => Err(Errno::EINVAL),
        // To kill(2), -1 is everyone.
        (None, 1) => {
            let init = rustix::process::Pid::INIT;
            let leader = rustix::process::pidfd_open(init, rustix::process::PidfdFlags::empty())
                .map_err(to_errno)?;
            to_group(leader.as_fd(), signal)
        }
        (None, _) => by_number(-number, signal),
    }
}

/// To the group of this number and leader; `held`: the caller has the table.
fn to_led(number: i32, leader: BorrowedFd<'_>, signal: i32, held: bool) -> Result<()> {
    match to_group(leader, signal) {
        // Before Linux 6.9 a pidfd cannot name a group. Its number can, and stays the group's as
        // long as its leader has it.
        Err(Errno::EINVAL) => {
            // Nobody reaps it meanwhile. The table must not be locked twice: a writer may wait.
            let _table = (!held).then(table::read);
            if is_anybody(leader) { by_number(-number, signal) } else { Err(Errno::ESRCH) }
        }
        sent => sent,
    }
}

/// `tgkill`.
pub(super) fn tgkill(process: Pid, thread: Tid, signal: Option<Signal>) -> Result<()> {
    // Of a process that is gone nothing is asked of the kernel, which looks at the numbers first.
    if process.number() <= 0 || thread.0 <= 0 {
        return Err(Errno::EINVAL);
    }
    with_number(process, |process| to_thread(process, thread, number(signal)))
}

/// `sigqueue`.
pub(super) fn queue(process: Pid, signal: Option<Signal>, value: i32) -> Result<()> {
    let signal = number(signal);
    let sent = Sent::queued(signal, value);
    if process.birth().is_some() {
        return to_child(process, |child| pidfd_send(child, signal, Some(&sent), 0));
    }
    // SAFETY: `sent` has the layout of a siginfo_t and lives across the call.
    let sent = unsafe {
        libc::syscall(libc::SYS_rt_sigqueueinfo, process.number(), signal, &raw const sent)
    };
    check_long(sent).map(drop)
}

/// A fault of this thread: as the kernel does it, a signal that is blocked or ignored first gets
/// its default back, which ends the process.
///
/// A handler that the backend did not install, such as that of Rust's runtime, may restore the
/// default and return, because a faulting instruction would fault again. The signal is then sent
/// again.
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
    let fault = Sent::fault(signal.number());
    // SAFETY: getpid and gettid cannot fail; the third call reads `fault`, which has the layout of
    // a siginfo_t and lives across it.
    let sent = unsafe {
        let (process, thread) = (libc::getpid(), libc::gettid());
        let fault = &raw const fault;
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal.number(), fault)
    };
    check_long(sent).map(drop)
}

/// Sends by a descriptor of its own, with the table unlocked: the lock blocks signals, and what is
/// blocked is not ignored. A child that this ends tells its parent meanwhile. Where no descriptor
/// is left it is sent under the lock.
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

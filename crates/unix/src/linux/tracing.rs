//! ptrace(2), as little of it as [`Ptrace`] names.
//!
//! A tracee belongs to the thread that attached to it; requests by other threads are ESRCH.

#![allow(unsafe_code, reason = "ptrace(2)")]

use std::ptr;

use super::convert::{check_long, number};
use super::send::with_number;
use crate::errno::Result;
use crate::process::Pid;
use crate::ptrace::Ptrace;
use crate::signal::Signal;

/// `ptrace`.
pub(super) fn ptrace(request: Ptrace) -> Result<()> {
    match request {
        Ptrace::TraceMe => ask(libc::PTRACE_TRACEME, Pid::number_only(0), None),
        Ptrace::Attach(pid) => ask(libc::PTRACE_ATTACH, pid, None),
        Ptrace::Continue(pid, signal) => ask(libc::PTRACE_CONT, pid, signal),
        Ptrace::Kill(pid) => ask(libc::PTRACE_KILL, pid, None),
        Ptrace::Detach(pid, signal) => ask(libc::PTRACE_DETACH, pid, signal),
    }
}

fn ask(request: libc::c_uint, pid: Pid, signal: Option<Signal>) -> Result<()> {
    with_number(pid, |process| {
        let signal = ptr::without_provenance_mut::<libc::c_void>(number(signal) as usize);
        // SAFETY: none of these requests reads or writes this process's memory.
        let done =
            unsafe { libc::ptrace(request, process, ptr::null_mut::<libc::c_void>(), signal) };
        check_long(done).map(drop)
    })
}

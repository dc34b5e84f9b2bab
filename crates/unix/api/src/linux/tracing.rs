//! The requests of ptrace(2) that [`Ptrace`] names.
//!
//! A tracee belongs to the thread that attached to it; requests by other threads return ESRCH.

#![allow(unsafe_code, reason = "ptrace(2)")]

use std::ptr;

use super::convert::{check_long, number};
use super::table::with_number;
use crate::errno::Result;
use crate::process::Pid;
use crate::ptrace::Ptrace;
use crate::signal::Signal;

/// Makes a request: `ptrace`.
///
/// An attach is made under the table's lock, because if the child were reaped before the attach,
/// its number might denote an unrelated process. The other requests are made with the table
/// unlocked, because the lock blocks signals: a SIGCHLD that the request causes would stay pending
/// and wake another thread, even if the signal is ignored. If another thread reaps the tracee and
/// its number is reused before the request, the request returns ESRCH, because the kernel accepts
/// it only for a tracee of this thread.
pub(super) fn ptrace(request: Ptrace) -> Result<()> {
    match request {
        Ptrace::TraceMe => ask(libc::PTRACE_TRACEME, 0, None),
        Ptrace::Attach(pid) => with_number(pid, |process| ask(libc::PTRACE_ATTACH, process, None)),
        Ptrace::Continue(pid, signal) => ask(libc::PTRACE_CONT, number_of(pid)?, signal),
        Ptrace::Kill(pid) => ask(libc::PTRACE_KILL, number_of(pid)?, None),
        Ptrace::Detach(pid, signal) => ask(libc::PTRACE_DETACH, number_of(pid)?, signal),
    }
}

fn number_of(pid: Pid) -> Result<i32> {
    with_number(pid, Ok)
}

fn ask(
    #[cfg(target_env = "musl")] request: libc::c_int,
    #[cfg(not(target_env = "musl"))] request: libc::c_uint,
    process: i32,
    signal: Option<Signal>,
) -> Result<()> {
    let signal = ptr::without_provenance_mut::<libc::c_void>(number(signal) as usize);
    // SAFETY: none of these requests reads or writes this process's memory.
    let done = unsafe { libc::ptrace(request, process, ptr::null_mut::<libc::c_void>(), signal) };
    check_long(done).map(drop)
}

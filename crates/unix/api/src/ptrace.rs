//! Requests of a tracer: [`Ptrace`].

use crate::process::Pid;
use crate::signal::Signal;

/// A request of [`Sys::ptrace`](crate::Sys::ptrace).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ptrace {
    /// `PTRACE_TRACEME`: the parent traces the caller.
    TraceMe,
    /// `PTRACE_ATTACH`: the caller traces this process, which stops.
    Attach(Pid),
    /// `PTRACE_CONT`: continues a stopped tracee, which receives this signal instead of the signal
    /// that stopped it.
    Continue(Pid, Option<Signal>),
    /// `PTRACE_KILL`: kills a tracee, stopped or running.
    Kill(Pid),
    /// `PTRACE_DETACH`: stops tracing a stopped tracee and continues it with this signal.
    Detach(Pid, Option<Signal>),
}

//! One process in another's hands: [`Ptrace`].

use crate::process::Pid;
use crate::signal::Signal;

/// What `ptrace` is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ptrace {
    /// `PTRACE_TRACEME`: the parent traces the caller.
    TraceMe,
    /// `PTRACE_ATTACH`: the caller traces this process, which stops.
    Attach(Pid),
    /// `PTRACE_CONT`: a stopped tracee goes on, and gets this signal in place of the one that
    /// stopped it.
    Continue(Pid, Option<Signal>),
    /// `PTRACE_KILL`: kills a tracee, stopped or running.
    Kill(Pid),
    /// `PTRACE_DETACH`: a stopped tracee goes on untraced, with this signal.
    Detach(Pid, Option<Signal>),
}

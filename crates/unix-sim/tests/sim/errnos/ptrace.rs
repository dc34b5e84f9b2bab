//! Errors of `ptrace`.

use tontine_unix::{Errno, Pid, Ptrace, Result, Signal, Sys, WaitOptions, WaitStatus};

use crate::errnos::place::hold;
use crate::errnos::row::{Row, allowed, refused};
use crate::errnos::scene::{
    LOWEST, MINUS_ONE, MISSING, SELF, bare, demote, in_child, reaped, sleep_on, sleeper, zombie,
};

pub(crate) const ROWS: &[Row] = &[
    // TraceMe
    refused("ptrace(request)", "TraceMe twice", Errno::EPERM, |sys| {
        in_child(sys, |sys| {
            sys.ptrace(Ptrace::TraceMe)?;
            sys.ptrace(Ptrace::TraceMe)
        })
    }),
    // Attach
    refused("ptrace(request)", "attach to a missing process", Errno::ESRCH, |sys| {
        attach(sys, MISSING)
    }),
    refused("ptrace(request)", "attach to 0", Errno::ESRCH, |sys| attach(sys, SELF)),
    refused("ptrace(request)", "attach to −1", Errno::ESRCH, |sys| attach(sys, MINUS_ONE)),
    refused("ptrace(request)", "attach to the lowest number", Errno::ESRCH, |sys| {
        attach(sys, LOWEST)
    }),
    refused("ptrace(request)", "attach to oneself", Errno::EPERM, |sys| attach(sys, sys.getpid())),
    refused("ptrace(request)", "attach to a reaped process", Errno::ESRCH, |sys| {
        attach(sys, reaped(sys))
    }),
    refused("ptrace(request)", "attach to a zombie", Errno::EPERM, |sys| attach(sys, zombie(sys))),
    refused("ptrace(request)", "attach to one's own tracee", Errno::EPERM, |sys| {
        let child = stopped_tracee(sys);
        attach(sys, child)
    }),
    refused("ptrace(request)", "attach to another process's tracee", Errno::EPERM, |sys| {
        to_anothers_tracee(sys, attach)
    }),
    refused("ptrace(request)", "attach to another user's process", Errno::EPERM, |sys| {
        let child = sleeper(sys);
        demote(sys);
        attach(sys, child)
    })
    .as_root(),
    // Continue
    refused("ptrace(request)", "continue a missing process", Errno::ESRCH, |sys| {
        resume(sys, MISSING)
    }),
    refused("ptrace(request)", "continue 0", Errno::ESRCH, |sys| resume(sys, SELF)),
    refused("ptrace(request)", "continue −1", Errno::ESRCH, |sys| resume(sys, MINUS_ONE)),
    refused("ptrace(request)", "continue oneself", Errno::ESRCH, |sys| resume(sys, sys.getpid())),
    refused("ptrace(request)", "continue an untraced child", Errno::ESRCH, |sys| {
        resume(sys, sleeper(sys))
    }),
    refused("ptrace(request)", "continue another process's tracee", Errno::ESRCH, |sys| {
        to_anothers_tracee(sys, resume)
    }),
    refused("ptrace(request)", "continue a running tracee", Errno::ESRCH, |sys| {
        to_a_running_tracee(sys, resume)
    }),
    refused("ptrace(request)", "continue a reaped process", Errno::ESRCH, |sys| {
        resume(sys, reaped(sys))
    }),
    refused("ptrace(request)", "continue a tracee that has ended", Errno::ESRCH, |sys| {
        resume(sys, ended_tracee(sys))
    }),
    // Kill
    refused("ptrace(request)", "kill a missing process", Errno::ESRCH, |sys| kill(sys, MISSING)),
    refused("ptrace(request)", "kill an untraced child", Errno::ESRCH, |sys| {
        kill(sys, sleeper(sys))
    }),
    refused("ptrace(request)", "kill another process's tracee", Errno::ESRCH, |sys| {
        to_anothers_tracee(sys, kill)
    }),
    refused("ptrace(request)", "kill a reaped process", Errno::ESRCH, |sys| kill(sys, reaped(sys))),
    allowed("ptrace(request)", "kill a running tracee", |sys| to_a_running_tracee(sys, kill)),
    allowed("ptrace(request)", "kill a tracee that has ended", |sys| kill(sys, ended_tracee(sys))),
    // Detach
    refused("ptrace(request)", "detach from a missing process", Errno::ESRCH, |sys| {
        detach(sys, MISSING)
    }),
    refused("ptrace(request)", "detach from an untraced child", Errno::ESRCH, |sys| {
        detach(sys, sleeper(sys))
    }),
    refused("ptrace(request)", "detach from another process's tracee", Errno::ESRCH, |sys| {
        to_anothers_tracee(sys, detach)
    }),
    refused("ptrace(request)", "detach from a running tracee", Errno::ESRCH, |sys| {
        to_a_running_tracee(sys, detach)
    }),
    refused("ptrace(request)", "detach twice", Errno::ESRCH, |sys| {
        let child = stopped_tracee(sys);
        detach(sys, child)?;
        detach(sys, child)
    }),
    refused("ptrace(request)", "detach from a reaped process", Errno::ESRCH, |sys| {
        detach(sys, reaped(sys))
    }),
];

fn attach(sys: &dyn Sys, pid: Pid) -> Result<()> {
    sys.ptrace(Ptrace::Attach(pid))
}

fn resume(sys: &dyn Sys, pid: Pid) -> Result<()> {
    sys.ptrace(Ptrace::Continue(pid, None))
}

fn kill(sys: &dyn Sys, pid: Pid) -> Result<()> {
    sys.ptrace(Ptrace::Kill(pid))
}

fn detach(sys: &dyn Sys, pid: Pid) -> Result<()> {
    sys.ptrace(Ptrace::Detach(pid, None))
}

/// Returns the result of a request about another process's tracee.
fn to_anothers_tracee(sys: &dyn Sys, request: fn(&dyn Sys, Pid) -> Result<()>) -> Result<()> {
    let child = bare(stopped_tracee(sys));
    in_child(sys, move |sys| request(sys, child))
}

/// Returns the result of a request about a tracee that has not stopped.
fn to_a_running_tracee(sys: &dyn Sys, request: fn(&dyn Sys, Pid) -> Result<()>) -> Result<()> {
    let child = stopped_tracee(sys);
    resume(sys, child)?;
    request(sys, child)
}

/// Returns a stopped child that the caller traces.
fn stopped_tracee(sys: &dyn Sys) -> Pid {
    let child = sys.fork(|sys| {
        sys.ptrace(Ptrace::TraceMe).expect("it has no tracer");
        sys.raise(Signal::USR1).expect("the target exists");
        sleep_on(sys)
    });
    let child = child.expect("within the limits");
    let waited = sys.waitpid(child.into(), WaitOptions::empty()).expect("a child of the caller");
    assert_eq!(waited.expect("the wait blocks").status, WaitStatus::Trapped(Signal::USR1));
    child
}

/// Returns a tracee that was killed and not reaped.
fn ended_tracee(sys: &dyn Sys) -> Pid {
    let child = stopped_tracee(sys);
    sys.kill(child.into(), Some(Signal::KILL)).expect("the target exists");
    let look = WaitOptions::EXITED | WaitOptions::NOWAIT;
    let waited = sys.waitid(child.into(), look).expect("a child of the caller");
    assert!(waited.expect("the wait blocks").status.is_terminated());
    child
}

#[test]
fn ptrace_errors_match_linux() {
    hold(ROWS);
}

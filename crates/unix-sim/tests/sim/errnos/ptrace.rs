//! ptrace.

use tontine_unix::{Errno, Pid, Ptrace, Result, Signal, Sys, WaitOptions, WaitStatus};

use crate::errnos::place::hold;
use crate::errnos::row::{Row, allowed, refused};
use crate::errnos::scene::{
    LOWEST, MINUS_ONE, NOBODY, SELF, bare, demote, in_child, reaped, sleep_on, sleeper, zombie,
};

pub(crate) const ROWS: &[Row] = &[
    // Traced by the parent
    refused("ptrace(request)", "to be traced twice", Errno::EPERM, |sys| {
        in_child(sys, |sys| {
            sys.ptrace(Ptrace::TraceMe)?;
            sys.ptrace(Ptrace::TraceMe)
        })
    }),
    // Attach
    refused("ptrace(request)", "to attach to nobody", Errno::ESRCH, |sys| attach(sys, NOBODY)),
    refused("ptrace(request)", "to attach to 0", Errno::ESRCH, |sys| attach(sys, SELF)),
    refused("ptrace(request)", "to attach to −1", Errno::ESRCH, |sys| attach(sys, MINUS_ONE)),
    refused("ptrace(request)", "to attach to the lowest number", Errno::ESRCH, |sys| {
        attach(sys, LOWEST)
    }),
    refused("ptrace(request)", "to attach to oneself", Errno::EPERM, |sys| {
        attach(sys, sys.getpid())
    }),
    refused("ptrace(request)", "to attach to who was waited for", Errno::ESRCH, |sys| {
        attach(sys, reaped(sys))
    }),
    refused("ptrace(request)", "to attach to who has ended", Errno::EPERM, |sys| {
        attach(sys, zombie(sys))
    }),
    refused("ptrace(request)", "to attach to one's own tracee", Errno::EPERM, |sys| {
        let child = stopped_tracee(sys);
        attach(sys, child)
    }),
    refused("ptrace(request)", "to attach to another's tracee", Errno::EPERM, |sys| {
        to_anothers_tracee(sys, attach)
    }),
    refused("ptrace(request)", "to attach to another user's", Errno::EPERM, |sys| {
        let child = sleeper(sys);
        demote(sys);
        attach(sys, child)
    })
    .as_root(),
    // Continue
    refused("ptrace(request)", "to continue nobody", Errno::ESRCH, |sys| resume(sys, NOBODY)),
    refused("ptrace(request)", "to continue 0", Errno::ESRCH, |sys| resume(sys, SELF)),
    refused("ptrace(request)", "to continue −1", Errno::ESRCH, |sys| resume(sys, MINUS_ONE)),
    refused("ptrace(request)", "to continue oneself", Errno::ESRCH, |sys| {
        resume(sys, sys.getpid())
    }),
    refused("ptrace(request)", "to continue a child that is no tracee", Errno::ESRCH, |sys| {
        resume(sys, sleeper(sys))
    }),
    refused("ptrace(request)", "to continue another's tracee", Errno::ESRCH, |sys| {
        to_anothers_tracee(sys, resume)
    }),
    refused("ptrace(request)", "to continue a tracee that runs", Errno::ESRCH, |sys| {
        to_a_tracee_that_runs(sys, resume)
    }),
    refused("ptrace(request)", "to continue who was waited for", Errno::ESRCH, |sys| {
        resume(sys, reaped(sys))
    }),
    refused("ptrace(request)", "to continue a tracee that has ended", Errno::ESRCH, |sys| {
        resume(sys, ended_tracee(sys))
    }),
    // Kill
    refused("ptrace(request)", "to kill nobody", Errno::ESRCH, |sys| kill(sys, NOBODY)),
    refused("ptrace(request)", "to kill a child that is no tracee", Errno::ESRCH, |sys| {
        kill(sys, sleeper(sys))
    }),
    refused("ptrace(request)", "to kill another's tracee", Errno::ESRCH, |sys| {
        to_anothers_tracee(sys, kill)
    }),
    refused("ptrace(request)", "to kill who was waited for", Errno::ESRCH, |sys| {
        kill(sys, reaped(sys))
    }),
    allowed("ptrace(request)", "to kill a tracee that runs", |sys| {
        to_a_tracee_that_runs(sys, kill)
    }),
    allowed("ptrace(request)", "to kill a tracee that has ended", |sys| {
        kill(sys, ended_tracee(sys))
    }),
    // Detach
    refused("ptrace(request)", "to detach from nobody", Errno::ESRCH, |sys| detach(sys, NOBODY)),
    refused("ptrace(request)", "to detach from a child that is none", Errno::ESRCH, |sys| {
        detach(sys, sleeper(sys))
    }),
    refused("ptrace(request)", "to detach from another's tracee", Errno::ESRCH, |sys| {
        to_anothers_tracee(sys, detach)
    }),
    refused("ptrace(request)", "to detach from a tracee that runs", Errno::ESRCH, |sys| {
        to_a_tracee_that_runs(sys, detach)
    }),
    refused("ptrace(request)", "to detach twice", Errno::ESRCH, |sys| {
        let child = stopped_tracee(sys);
        detach(sys, child)?;
        detach(sys, child)
    }),
    refused("ptrace(request)", "to detach from who was waited for", Errno::ESRCH, |sys| {
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

/// What a request about a tracee is answered that another traces.
fn to_anothers_tracee(sys: &dyn Sys, request: fn(&dyn Sys, Pid) -> Result<()>) -> Result<()> {
    let child = bare(stopped_tracee(sys));
    in_child(sys, move |sys| request(sys, child))
}

/// What a request about a tracee is answered that has not stopped.
fn to_a_tracee_that_runs(sys: &dyn Sys, request: fn(&dyn Sys, Pid) -> Result<()>) -> Result<()> {
    let child = stopped_tracee(sys);
    resume(sys, child)?;
    request(sys, child)
}

/// A child that the caller traces and that has stopped.
fn stopped_tracee(sys: &dyn Sys) -> Pid {
    let child = sys.fork(|sys| {
        sys.ptrace(Ptrace::TraceMe).expect("nobody traces it");
        sys.raise(Signal::USR1).expect("it is there");
        sleep_on(sys)
    });
    let child = child.expect("a process more");
    let waited = sys.waitpid(child.into(), WaitOptions::empty()).expect("it is a child");
    assert_eq!(waited.expect("it slept").status, WaitStatus::Trapped(Signal::USR1));
    child
}

/// One that was killed and not waited for.
fn ended_tracee(sys: &dyn Sys) -> Pid {
    let child = stopped_tracee(sys);
    sys.kill(child.into(), Some(Signal::KILL)).expect("it is there");
    let look = WaitOptions::EXITED | WaitOptions::NOWAIT;
    let waited = sys.waitid(child.into(), look).expect("it is a child");
    assert!(waited.expect("it slept").status.is_terminated());
    child
}

#[test]
fn a_wrong_tracee_is_refused_as_linux_refuses_it() {
    hold(ROWS);
}

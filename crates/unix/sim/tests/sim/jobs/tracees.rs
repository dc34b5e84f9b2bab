//! Tracees in families and groups: an ended tracee whose parent or tracer dies, a tracee whose
//! group stops, and tracees that are children of process 1.

#![allow(unsafe_code, reason = "a PID namespace is unshared")]

use std::time::Duration;

use rustix::thread::{UnshareFlags, unshare_unsafe};
use tontine_unix::{
    Children, Errno, Pid, Ptrace, SigAction, SigSet, SigmaskHow, Signal, Sys, WaitOptions,
    WaitStatus,
};

use crate::jobs::scene::{
    Gate, end, everywhere, everywhere_and_on_linux, fork, kill, leader, on_linux, rest,
};
use crate::jobs::tracing::{grandchild, traced_by_another};

/// Blocks SIGCHLD to keep it pending until the test takes it.
fn hold_sigchld(sys: &dyn Sys) {
    sys.sigprocmask(Some((SigmaskHow::Block, SIGCHLD))).unwrap();
    sys.sigaction(Signal::CHLD, Some(SigAction::handler(|_, _| {}))).unwrap();
}

/// Returns the process that a pending SIGCHLD reports, or `None` if no SIGCHLD is pending.
fn reported_by_sigchld(sys: &dyn Sys) -> Option<i32> {
    let taken = sys.sigtimedwait(SIGCHLD, Some(Duration::ZERO));
    taken.map(|info| info.pid).ok()
}

const SIGCHLD: SigSet = SigSet::of(&[Signal::CHLD]);

/// Kills a tracee and waits, without reaping, until it has ended.
fn kill_unwaited(sys: &dyn Sys, tracee: Pid) {
    sys.kill(tracee.into(), Some(Signal::KILL)).unwrap();
    let look = || sys.waitid(tracee.into(), WaitOptions::EXITED | WaitOptions::NOWAIT);
    // The stop of the tracee may be reported first.
    while look().unwrap().unwrap().status != KILLED {
        rest(sys);
    }
}

const KILLED: WaitStatus = WaitStatus::Signaled(Signal::KILL, false);

#[test]
fn ended_tracee_without_interested_heir_stays_for_tracer() {
    everywhere(|sys| {
        let (child, parent, go) = grandchild(sys);
        sys.ptrace(Ptrace::Attach(child)).unwrap();
        kill_unwaited(sys, child);
        go.open(sys);
        assert_eq!(end(sys, parent), WaitStatus::Exited(0));
        assert_eq!(sys.kill(child.into(), None), Ok(()), "the zombie still exists");
        assert_eq!(end(sys, child), KILLED);
        assert_eq!(
            sys.kill(child.into(), None),
            Err(Errno::ESRCH),
            "no process inherits the zombie"
        );
    });
}

#[test]
fn tracer_that_inherits_its_ended_tracee_is_notified_once() {
    everywhere_and_on_linux(|sys| {
        sys.set_subreaper(true).unwrap();
        let (child, parent, go) = grandchild(sys);
        hold_sigchld(sys);
        sys.ptrace(Ptrace::Attach(child)).unwrap();
        kill_unwaited(sys, child);
        assert_eq!(reported_by_sigchld(sys), Some(child.number()), "notified as its tracer");
        go.open(sys);
        assert_eq!(end(sys, parent), WaitStatus::Exited(0));
        assert_eq!(reported_by_sigchld(sys), Some(parent.number()));
        assert_eq!(reported_by_sigchld(sys), None, "not notified again");
        let waited = sys.waitpid(Children::Any, WaitOptions::empty()).unwrap().unwrap();
        assert_eq!((waited.pid.number(), waited.status), (child.number(), KILLED));
        assert_eq!(sys.waitpid(Children::Any, WaitOptions::NOHANG), Err(Errno::ECHILD));
    });
}

#[test]
fn wait_for_group_reports_its_tracee() {
    everywhere(|sys| {
        let child = leader(sys);
        let other = leader(sys);
        let done = Gate::new(sys);
        let tracer = traced_by_another(sys, child, move |sys, child| {
            sys.ptrace(Ptrace::Continue(child, None)).unwrap();
            let group = |of: Pid| Children::Group(Pid::number_only(of.number()));
            let none = sys.waitpid(group(other), WaitOptions::NOHANG);
            assert_eq!(none, Err(Errno::ECHILD), "the tracer has no process in that group");
            assert_eq!(sys.waitpid(group(child), WaitOptions::NOHANG), Ok(None));
            sys.kill(child.into(), Some(Signal::USR1)).unwrap();
            let waited = sys.waitpid(group(child), WaitOptions::empty()).unwrap().unwrap();
            let seen = (waited.pid.number(), waited.status);
            assert_eq!(seen, (child.number(), WaitStatus::Trapped(Signal::USR1)));
            sys.ptrace(Ptrace::Continue(child, Some(Signal::USR1))).unwrap();
            let waited = sys.waitpid(group(child), WaitOptions::empty()).unwrap().unwrap();
            assert_eq!(waited.status, WaitStatus::Signaled(Signal::USR1, false));
            done.open(sys);
        });
        // The parent also waits for the group. The kernel reports the tracee's end to the parent
        // after the tracer has been notified.
        let waited = sys.waitpid(Children::Group(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(waited.status, WaitStatus::Signaled(Signal::USR1, false));
        assert_eq!(waited.pid, child);
        done.pass(sys);
        assert_eq!(end(sys, tracer), WaitStatus::Exited(0));
        kill(sys, other);
    });
}

/// Runs `program` in a child of process 1: in every mode, and on Linux in a new PID namespace,
/// whose process 1 reaps its children.
fn in_child_of_process_1(program: impl Fn(&dyn Sys) + Clone + Send + Sync + 'static) {
    let on_linux_too = program.clone();
    on_linux(move |sys| {
        // SAFETY: the call changes only the namespace of later children, and no descriptor.
        if unsafe { unshare_unsafe(UnshareFlags::NEWPID) }.is_err() {
            // An unprivileged user cannot create a PID namespace with its own process 1.
            return;
        }
        let program = on_linux_too.clone();
        let first = fork(sys, |sys| {
            let child = fork(sys, program);
            loop {
                let waited = sys.waitpid(Children::Any, WaitOptions::empty()).unwrap().unwrap();
                if waited.pid == child && waited.status.is_terminated() {
                    return assert_eq!(waited.status, WaitStatus::Exited(0));
                }
            }
        });
        assert_eq!(end(sys, first), WaitStatus::Exited(0));
    });
    everywhere(program);
}

/// Regression: TraceMe failed for a child of process 1. Linux permits the request, and the child
/// ends like any other child.
#[test]
fn child_of_process_1_may_request_tracing() {
    in_child_of_process_1(|sys| {
        assert_eq!(sys.getppid().number(), 1);
        sys.ptrace(Ptrace::TraceMe).unwrap();
        assert_eq!(sys.ptrace(Ptrace::TraceMe), Err(Errno::EPERM));
    });
}

/// An orphan that process 1 has adopted requests tracing and stops for a signal. Neither process 1
/// nor SIGCONT continues it, and SIGKILL kills it.
#[test]
fn tracee_of_process_1_stays_stopped_until_it_is_killed() {
    in_child_of_process_1(|sys| {
        let (numbers, went_on) = (Gate::new(sys), Gate::new(sys));
        let parent = fork(sys, move |sys| {
            fork(sys, move |sys| {
                while sys.getppid().number() != 1 {
                    rest(sys);
                }
                sys.ptrace(Ptrace::TraceMe).unwrap();
                numbers.send(sys, sys.getpid().number());
                sys.raise(Signal::WINCH).unwrap();
                went_on.open(sys);
            });
        });
        assert_eq!(end(sys, parent), WaitStatus::Exited(0));
        let child = numbers.receive_pid(sys);
        rest(sys);
        assert_eq!(sys.ptrace(Ptrace::Attach(child)), Err(Errno::EPERM), "process 1 traces it");
        assert_eq!(sys.ptrace(Ptrace::Continue(child, None)), Err(Errno::ESRCH));
        sys.kill(child.into(), Some(Signal::CONT)).unwrap();
        rest(sys);
        sys.kill(child.into(), Some(Signal::KILL)).unwrap();
        while sys.kill(child.into(), None).is_ok() {
            rest(sys);
        }
        assert!(went_on.is_shut(sys), "the tracee ran again");
    });
}

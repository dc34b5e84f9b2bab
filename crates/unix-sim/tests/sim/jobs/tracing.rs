//! ptrace: the reports that a tracer receives, its requests, and the changes that the parent
//! observes.

use tontine_unix::{Errno, Pid, Ptrace, Signal, Sys, WaitOptions, WaitStatus};

use crate::jobs::scene::{
    CAT, Gate, MISSING, change, end, everywhere, everywhere_and_on_linux, fork, kill, news, rest,
    sleep_on, sleeper,
};

fn attach(sys: &dyn Sys, tracee: Pid) {
    sys.ptrace(Ptrace::Attach(tracee)).unwrap();
    assert_eq!(change(sys, tracee), WaitStatus::Trapped(Signal::STOP));
}

#[test]
fn tracee_stops_for_each_signal_and_receives_chosen_one() {
    everywhere_and_on_linux(|sys| {
        let child = fork(sys, |sys| {
            sys.ptrace(Ptrace::TraceMe).unwrap();
            assert_eq!(sys.ptrace(Ptrace::TraceMe), Err(Errno::EPERM));
            sys.raise(Signal::USR1).unwrap();
            sys.raise(Signal::CHLD).unwrap();
            sys.raise(Signal::USR2).unwrap();
        });
        assert_eq!(change(sys, child), WaitStatus::Trapped(Signal::USR1));
        sys.ptrace(Ptrace::Continue(child, None)).unwrap();
        assert_eq!(change(sys, child), WaitStatus::Trapped(Signal::CHLD), "ignored signals too");
        assert_eq!(news(sys, child), None, "a stop is reported once");
        sys.ptrace(Ptrace::Continue(child, Some(Signal::CHLD))).unwrap();
        assert_eq!(change(sys, child), WaitStatus::Trapped(Signal::USR2));
        sys.ptrace(Ptrace::Continue(child, Some(Signal::TERM))).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Signaled(Signal::TERM, false));
        assert_eq!(sys.ptrace(Ptrace::Continue(child, None)), Err(Errno::ESRCH));
    });
}

#[test]
fn tracee_stop_is_reported_to_a_wait_for_exits() {
    everywhere_and_on_linux(|sys| {
        let child = fork(sys, |sys| {
            sys.ptrace(Ptrace::TraceMe).unwrap();
            sys.raise(Signal::USR1).unwrap();
        });
        let waited = sys.waitpid(child.into(), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(waited.status, WaitStatus::Trapped(Signal::USR1));
        sys.ptrace(Ptrace::Detach(child, None)).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
    });
}

#[test]
fn tracer_attaches_to_and_detaches_from_a_process() {
    everywhere_and_on_linux(|sys| {
        let child = sleeper(sys);
        assert_eq!(sys.ptrace(Ptrace::Continue(child, None)), Err(Errno::ESRCH), "not a tracee");
        attach(sys, child);
        assert_eq!(sys.ptrace(Ptrace::Attach(child)), Err(Errno::EPERM), "already traced");
        sys.ptrace(Ptrace::Continue(child, None)).unwrap();
        assert_eq!(
            sys.ptrace(Ptrace::Continue(child, None)),
            Err(Errno::ESRCH),
            "the tracee is running"
        );
        sys.kill(child.into(), Some(Signal::USR1)).unwrap();
        assert_eq!(change(sys, child), WaitStatus::Trapped(Signal::USR1));
        sys.ptrace(Ptrace::Detach(child, Some(Signal::USR2))).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Signaled(Signal::USR2, false));
    });
}

#[test]
fn attach_to_self_missing_or_foreign_process_fails() {
    everywhere_and_on_linux(|sys| {
        assert_eq!(sys.ptrace(Ptrace::Attach(sys.getpid())), Err(Errno::EPERM));
        assert_eq!(sys.ptrace(Ptrace::Attach(MISSING)), Err(Errno::ESRCH));
        let zombie = fork(sys, |_| {});
        sys.waitid(zombie.into(), WaitOptions::EXITED | WaitOptions::NOWAIT).unwrap();
        assert_eq!(sys.ptrace(Ptrace::Attach(zombie)), Err(Errno::EPERM));
        assert_eq!(end(sys, zombie), WaitStatus::Exited(0));
        if sys.geteuid() != 0 {
            return;
        }
        let target = sleeper(sys);
        let other = fork(sys, move |sys| {
            sys.setuid(12_345).unwrap();
            let target = Pid::number_only(target.number());
            assert_eq!(sys.ptrace(Ptrace::Attach(target)), Err(Errno::EPERM));
        });
        assert_eq!(end(sys, other), WaitStatus::Exited(0));
        kill(sys, target);
    });
}

#[test]
fn tracee_can_be_killed_by_tracer_and_by_others() {
    everywhere_and_on_linux(|sys| {
        let child = sleeper(sys);
        attach(sys, child);
        sys.ptrace(Ptrace::Kill(child)).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Signaled(Signal::KILL, false));
        let child = sleeper(sys);
        attach(sys, child);
        kill(sys, child);
    });
}

#[test]
fn traced_exec_stops_with_sigtrap() {
    everywhere_and_on_linux(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let child = fork(sys, move |sys| {
            sys.dup2(from, tontine_unix::Fd::STDIN).unwrap();
            sys.ptrace(Ptrace::TraceMe).unwrap();
            sys.exec(CAT, &["cat"]).map(|_| ()).unwrap();
        });
        assert_eq!(change(sys, child), WaitStatus::Trapped(Signal::TRAP));
        sys.ptrace(Ptrace::Continue(child, Some(Signal::KILL))).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Signaled(Signal::KILL, false));
        sys.close(to).unwrap();
    });
}

/// Creates a process that attaches to a child and then runs `then`. Returns the process once it has
/// attached.
pub(crate) fn traced_by_another(
    sys: &dyn Sys,
    child: Pid,
    then: impl FnOnce(&dyn Sys, Pid) + Send + 'static,
) -> Pid {
    let ready = Gate::new(sys);
    let tracer = fork(sys, move |sys| {
        let child = Pid::number_only(child.number());
        sys.ptrace(Ptrace::Attach(child)).unwrap();
        let waited = sys.waitpid(child.into(), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!((waited.pid.number(), waited.status), (child.number(), TRAPPED));
        ready.open(sys);
        then(sys, child);
    });
    ready.pass(sys);
    tracer
}

/// The status of a tracee that was just attached.
pub(crate) const TRAPPED: WaitStatus = WaitStatus::Trapped(Signal::STOP);

#[test]
fn traced_child_remains_waitable_by_its_parent() {
    everywhere_and_on_linux(|sys| {
        let (asked, go) = (Gate::new(sys), Gate::new(sys));
        let me = sys.getpid();
        let child = fork(sys, move |sys| {
            asked.pass(sys);
            assert_eq!(sys.getppid().number(), me.number());
            sys.exit(5);
        });
        let tracer = traced_by_another(sys, child, move |sys, child| {
            sys.ptrace(Ptrace::Continue(child, None)).unwrap();
            let waited = sys.waitpid(child.into(), WaitOptions::empty()).unwrap().unwrap();
            assert_eq!(waited.status, WaitStatus::Exited(5), "reported to the tracer first");
            go.open(sys);
        });
        assert_eq!(news(sys, child), None, "traps are not reported to the parent");
        asked.open(sys);
        assert_eq!(end(sys, child), WaitStatus::Exited(5), "then reported to the parent");
        go.pass(sys);
        assert_eq!(end(sys, tracer), WaitStatus::Exited(0));
    });
}

#[test]
fn tracer_death_releases_its_tracees() {
    everywhere_and_on_linux(|sys| {
        let child = sleeper(sys);
        let tracer = traced_by_another(sys, child, |sys, _| {
            sleep_on(sys);
        });
        kill(sys, tracer);
        rest(sys);
        assert_eq!(
            news(sys, child),
            None,
            "the tracee continues without the signal that the tracer saw"
        );
        sys.kill(child.into(), Some(Signal::USR1)).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Signaled(Signal::USR1, false));
    });
}

#[test]
fn ended_tracee_returns_to_parent_when_tracer_dies() {
    everywhere_and_on_linux(|sys| {
        let child = sleeper(sys);
        let tracer = traced_by_another(sys, child, |sys, _| {
            sleep_on(sys);
        });
        sys.kill(child.into(), Some(Signal::KILL)).unwrap();
        rest(sys);
        assert_eq!(news(sys, child), None, "the tracer has not reaped it");
        kill(sys, tracer);
        assert_eq!(end(sys, child), WaitStatus::Signaled(Signal::KILL, false));
    });
}

#[test]
fn tracee_is_inherited_when_its_parent_dies() {
    everywhere(|sys| {
        sys.set_subreaper(true).unwrap();
        let (tell, go) = (Gate::new(sys), Gate::new(sys));
        let parent = fork(sys, move |sys| {
            tell.tell(sys, sleeper(sys).number());
            go.pass(sys);
        });
        let child = tell.ask_pid(sys);
        let tracer = traced_by_another(sys, child, |sys, child| {
            sys.ptrace(Ptrace::Continue(child, None)).unwrap();
            sleep_on(sys);
        });
        go.open(sys);
        assert_eq!(end(sys, parent), WaitStatus::Exited(0));
        assert_eq!(news(sys, child), None, "inherited and alive");
        kill(sys, tracer);
        kill(sys, child);
    });
}

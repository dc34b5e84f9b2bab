//! ptrace: the reports that a tracer receives, its requests, and the changes that the parent
//! observes.

use tontine_unix::{Errno, Fd, Pid, Ptrace, Signal, Sys, WaitOptions, WaitStatus};

use crate::jobs::scene::{
    CAT, Gate, change, end, everywhere, everywhere_and_on_linux, fork, kill, news, sleep_on,
    sleeper,
};

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

/// Returns a grandchild, its parent, and the gate that lets the parent exit.
pub(crate) fn grandchild(sys: &dyn Sys) -> (Pid, Pid, Gate) {
    let (numbers, go) = (Gate::new(sys), Gate::new(sys));
    let parent = fork(sys, move |sys| {
        numbers.send(sys, sleeper(sys).number());
        go.pass(sys);
    });
    (numbers.receive_pid(sys), parent, go)
}

/// The status of a tracee that was just attached.
pub(crate) const TRAPPED: WaitStatus = WaitStatus::Trapped(Signal::STOP);

#[test]
fn tracee_is_inherited_when_its_parent_dies() {
    everywhere(|sys| {
        sys.set_subreaper(true).unwrap();
        let (child, parent, go) = grandchild(sys);
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

#[test]
fn every_signal_but_sigkill_stops_a_tracee() {
    everywhere_and_on_linux(|sys| {
        for signal in Signal::all().map(Some).chain([None]) {
            let child = fork(sys, move |sys| {
                sys.ptrace(Ptrace::TraceMe).unwrap();
                sys.kill(sys.getpid().into(), signal).unwrap();
            });
            match signal {
                None => {}
                Some(Signal::KILL) => {
                    assert_eq!(end(sys, child), WaitStatus::Signaled(Signal::KILL, false));
                    continue;
                }
                Some(signal) => {
                    assert_eq!(change(sys, child), WaitStatus::Trapped(signal));
                    sys.ptrace(Ptrace::Continue(child, None)).unwrap();
                }
            }
            assert_eq!(end(sys, child), WaitStatus::Exited(0), "{signal:?}");
        }
    });
}

#[test]
fn many_tracers_attach_and_detach_before_an_exec() {
    everywhere_and_on_linux(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let go = Gate::new(sys);
        let tracee = fork(sys, move |sys| {
            sys.dup2(from, Fd::STDIN).unwrap();
            go.pass(sys);
            sys.exec(CAT, &["cat"]).map(|_| ()).unwrap();
        });
        sys.close(to).unwrap();
        let named = Pid::number_only(tracee.number());
        let visited = Gate::new(sys);
        let tracers = [0; 4].map(|_| {
            fork(sys, move |sys| {
                for _ in 0..10 {
                    match sys.ptrace(Ptrace::Attach(named)) {
                        Ok(()) => {
                            assert_eq!(change(sys, named), TRAPPED);
                            sys.ptrace(Ptrace::Detach(named, None)).unwrap();
                            visited.open(sys);
                        }
                        Err(errno) => assert_eq!(errno, Errno::EPERM, "already traced"),
                    }
                }
            })
        });
        for tracer in tracers {
            assert_eq!(end(sys, tracer), WaitStatus::Exited(0));
        }
        visited.pass(sys);
        go.open(sys);
        assert_eq!(end(sys, tracee), WaitStatus::Exited(0));
    });
}

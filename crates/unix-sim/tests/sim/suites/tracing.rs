//! ptrace: permission to trace, and the stops of a tracee.

use crate::rules::harness::*;

const STOPPED: WaitOptions = WaitOptions::STOPPED;

/// Waits for the next change of a tracee.
fn next(sys: &dyn Sys, tracee: Pid) -> WaitStatus {
    sys.waitpid(tracee.into(), WaitOptions::empty()).unwrap().expect("the wait blocks").status
}

/// Attaches to a process, waits for the stop, and detaches.
fn visit(sys: &dyn Sys, tracee: Pid) {
    sys.ptrace(Ptrace::Attach(tracee)).unwrap();
    assert_eq!(next(sys, tracee), WaitStatus::Trapped(Signal::STOP));
    sys.ptrace(Ptrace::Detach(tracee, None)).unwrap();
}

/// Returns a traced child that runs `body`.
fn traced(sys: &dyn Sys, body: impl FnOnce(&dyn Sys) -> i32 + Send + 'static) -> Pid {
    sys.fork(move |sys| {
        sys.ptrace(Ptrace::TraceMe).unwrap();
        body(sys)
    })
    .unwrap()
}

#[test]
fn attach_to_self_returns_eperm() {
    everywhere(|sys| {
        let me = Pid::number_only(sys.getpid().number());
        let log = Log::default();
        let noted = log.clone();
        let thread = sys.thread(move |sys| {
            noted.note(i32::from(sys.ptrace(Ptrace::Attach(me)) == Err(Errno::EPERM)));
        });
        sys.join(thread.unwrap()).unwrap();
        assert_eq!(log.all(), [1]);
    })
    .and_on_linux();
}

#[test]
fn siblings_and_grandchildren_can_be_traced() {
    everywhere(|sys| {
        let sibling = sys.fork(sleep_on).unwrap();
        let named = bare(sibling);
        let end = end_as(sys, move |sys| {
            visit(sys, named);
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        kill(sys, sibling, Signal::KILL);
        assert_eq!(end_of(sys, sibling), WaitStatus::Signaled(Signal::KILL, false));

        let (from, to) = sys.pipe().unwrap();
        let child = sys
            .fork(move |sys| {
                let grandchild = sys.fork(sleep_on).unwrap();
                sys.write(to, &grandchild.number().to_ne_bytes()).unwrap();
                i32::from(end_of(sys, grandchild) == WaitStatus::Signaled(Signal::KILL, false))
            })
            .unwrap();
        let mut number = [0; 4];
        assert_eq!(sys.read(from, &mut number), Ok(4));
        let grandchild = Pid::number_only(i32::from_ne_bytes(number));
        visit(sys, grandchild);
        kill(sys, grandchild, Signal::KILL);
        assert_eq!(end_of(sys, child), WaitStatus::Exited(1));
    })
    .and_on_linux();
}

#[test]
fn every_signal_but_sigkill_stops_a_tracee() {
    everywhere(|sys| {
        for signal in Signal::all() {
            let child = traced(sys, move |sys| {
                kill(sys, sys.getpid(), signal);
                0
            });
            if signal == Signal::KILL {
                assert_eq!(next(sys, child), WaitStatus::Signaled(signal, false));
                continue;
            }
            assert_eq!(next(sys, child), WaitStatus::Trapped(signal));
            sys.ptrace(Ptrace::Continue(child, None)).unwrap();
            assert_eq!(next(sys, child), WaitStatus::Exited(0), "{signal}");
        }
        let child = traced(sys, |sys| {
            sys.kill(sys.getpid().into(), None).unwrap();
            0
        });
        assert_eq!(next(sys, child), WaitStatus::Exited(0));
    })
    .and_on_linux();
}

#[test]
fn tracee_stops_for_ignored_and_handled_signals() {
    everywhere(|sys| {
        for handles in [false, true] {
            for end in [WaitStatus::Signaled(Signal::KILL, false), WaitStatus::Exited(1)] {
                let child = traced(sys, move |sys| {
                    let log = Log::default();
                    let action = if handles { log.signals() } else { SigAction::IGNORE };
                    act(sys, Signal::USR2, action.with_flags(ActionFlags::RESTART));
                    kill(sys, sys.getpid(), Signal::USR2);
                    1 + log.len() as i32
                });
                assert_eq!(next(sys, child), WaitStatus::Trapped(Signal::USR2));
                let request = match end {
                    WaitStatus::Exited(_) => Ptrace::Continue(child, None),
                    _ => Ptrace::Kill(child),
                };
                sys.ptrace(request).unwrap();
                assert_eq!(next(sys, child), end);
            }
        }
    })
    .and_on_linux();
}

#[test]
fn attach_and_detach_leave_a_stopped_process_stopped() {
    everywhere(|sys| {
        let child = sys.fork(sleep_on).unwrap();
        kill(sys, child, Signal::STOP);
        assert_eq!(change_of(sys, child, STOPPED), WaitStatus::Stopped(Signal::STOP));
        visit(sys, child);
        assert_eq!(sys.waitpid(child.into(), STOPPED | WaitOptions::NOHANG), Ok(None));
        kill(sys, child, Signal::CONT);
        assert_eq!(change_of(sys, child, WaitOptions::CONTINUED), WaitStatus::Continued);
        kill(sys, child, Signal::KILL);
        assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::KILL, false));
    })
    .and_on_linux();
}

#[test]
fn attach_to_stopped_process_allows_continue_and_kill() {
    everywhere(|sys| {
        for killed in [false, true] {
            let child = sys.fork(sleep_on).unwrap();
            kill(sys, child, Signal::STOP);
            assert_eq!(change_of(sys, child, STOPPED), WaitStatus::Stopped(Signal::STOP));
            sys.ptrace(Ptrace::Attach(child)).unwrap();
            assert_eq!(next(sys, child), WaitStatus::Trapped(Signal::STOP));
            if !killed {
                sys.ptrace(Ptrace::Continue(child, None)).unwrap();
                assert_eq!(
                    next(sys, child),
                    WaitStatus::Trapped(Signal::STOP),
                    "the stop of the attachment itself"
                );
                sys.ptrace(Ptrace::Continue(child, None)).unwrap();
                kill(sys, child, Signal::USR1);
                assert_eq!(
                    next(sys, child),
                    WaitStatus::Trapped(Signal::USR1),
                    "the tracee has run"
                );
            }
            kill(sys, child, Signal::KILL);
            assert_eq!(next(sys, child), WaitStatus::Signaled(Signal::KILL, false));
        }
    })
    .and_on_linux();
}

#[test]
fn fault_stops_a_tracee_and_can_be_suppressed() {
    everywhere(|sys| {
        let child = traced(sys, |sys| {
            let _ = sys.fault(Signal::TRAP);
            56
        });
        assert_eq!(next(sys, child), WaitStatus::Trapped(Signal::TRAP));
        sys.ptrace(Ptrace::Continue(child, None)).unwrap();
        assert_eq!(next(sys, child), WaitStatus::Exited(56));
    })
    .and_on_linux();
}

#[test]
fn many_tracers_attach_and_detach_before_an_exec() {
    everywhere_with(
        |builder| builder.program("/bin/true", |_, _| 0),
        |sys| {
            let bell = Bell::new(sys);
            let tracee = sys
                .fork(move |sys| {
                    while sys.read(bell.0, &mut [0]) == Err(Errno::EINTR) {}
                    let Err(errno) = sys.exec("/bin/true", &["true"]);
                    errno.raw()
                })
                .unwrap();
            let named = bare(tracee);
            let tracers = [0; 4].map(|_| {
                sys.fork(move |sys| {
                    let mut visits = 0;
                    for _ in 0..10 {
                        match sys.ptrace(Ptrace::Attach(named)) {
                            Ok(()) => {
                                let trap = next(sys, named);
                                assert_eq!(trap, WaitStatus::Trapped(Signal::STOP));
                                sys.ptrace(Ptrace::Detach(named, None)).unwrap();
                                visits += 1;
                            }
                            Err(errno) => assert_eq!(errno, Errno::EPERM, "already traced"),
                        }
                    }
                    visits
                })
                .unwrap()
            });
            let mut visits = 0;
            for tracer in tracers {
                visits += end_of(sys, tracer).exited().expect("no tracer failed");
            }
            assert!(visits > 0);
            bell.ring(sys);
            assert_eq!(end_of(sys, tracee), WaitStatus::Exited(0));
        },
    )
    .and_on_linux();
}

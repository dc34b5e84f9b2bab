//! `setrlimit`, and the limit on processes.

use super::harness::*;

#[test]
fn setrlimit_sets_limits_and_refuses_unprivileged_raise() {
    everywhere(|sys| {
        let of = |soft, hard| Rlimit { soft, hard };
        assert_eq!(sys.setrlimit(Resource::Processes, of(50, 100)), Ok(()));
        assert_eq!(sys.getrlimit(Resource::Processes), of(50, 100));
        assert_eq!(sys.setrlimit(Resource::Processes, of(101, 100)), Err(Errno::EINVAL));
        assert_eq!(sys.setrlimit(Resource::Processes, of(60, 200)), Ok(()));
        let end = end_as(sys, move |sys| {
            sys.setuid(54_321).unwrap();
            assert_eq!(sys.setrlimit(Resource::Processes, of(200, 200)), Ok(()));
            assert_eq!(sys.setrlimit(Resource::Processes, of(1, 201)), Err(Errno::EPERM));
            assert_eq!(sys.setrlimit(Resource::Processes, of(202, 201)), Err(Errno::EINVAL));
            assert_eq!(sys.setrlimit(Resource::Processes, of(10, 20)), Ok(()));
            assert_eq!(sys.setrlimit(Resource::Processes, of(10, 21)), Err(Errno::EPERM));
            assert_eq!(sys.getrlimit(Resource::Processes), of(10, 20));
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        assert_eq!(sys.getrlimit(Resource::Processes), of(60, 200), "a child's limits are its own");
    });
}

#[test]
fn process_limit_counts_processes_and_threads_of_a_user() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            sys.setuid(54_321).unwrap();
            sys.setrlimit(Resource::Processes, Rlimit::of(3)).unwrap();
            let bell = Bell::new(sys);
            let thread = sys.thread(move |sys| bell.heard(sys)).unwrap();
            let child = sys.fork(sleep_on).unwrap();
            assert_eq!(sys.fork(|_| 0), Err(Errno::EAGAIN));
            assert_eq!(sys.thread(|_| {}), Err(Errno::EAGAIN));
            kill(sys, child, Signal::KILL);
            sys.waitid(child.into(), WaitOptions::EXITED | WaitOptions::NOWAIT).unwrap();
            assert_eq!(sys.fork(|_| 0), Err(Errno::EAGAIN), "a zombie counts");
            end_of(sys, child);
            let child = sys.fork(|_| 0).unwrap();
            end_of(sys, child);
            bell.ring(sys);
            sys.join(thread).unwrap();
            let children = [sys.fork(|_| 0).unwrap(), sys.fork(|_| 0).unwrap()];
            assert_eq!(sys.fork(|_| 0), Err(Errno::EAGAIN));
            for child in children {
                end_of(sys, child);
            }
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
    });
}

#[test]
fn process_limit_exempts_privileged_users() {
    everywhere(|sys| {
        sys.setrlimit(Resource::Processes, Rlimit::of(1)).unwrap();
        let children = [sys.fork(|_| 0).unwrap(), sys.fork(|_| 0).unwrap()];
        let thread = sys.thread(|_| {}).unwrap();
        sys.join(thread).unwrap();
        for child in children {
            end_of(sys, child);
        }
    })
    .and_on_linux();
}

#[test]
fn process_is_counted_for_new_user_after_setuid() {
    everywhere(|sys| {
        let bell = Bell::new(sys);
        let holder = sys
            .fork(move |sys| {
                sys.setuid(54_321).unwrap();
                bell.ring(sys);
                sleep_on(sys)
            })
            .unwrap();
        bell.heard(sys);
        let end = end_as(sys, |sys| {
            sys.setuid(54_321).unwrap();
            sys.setrlimit(Resource::Processes, Rlimit::of(2)).unwrap();
            assert_eq!(sys.fork(|_| 0), Err(Errno::EAGAIN));
            sys.setrlimit(Resource::Processes, Rlimit { soft: 2, hard: 2 }).unwrap();
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        kill(sys, holder, Signal::KILL);
        end_of(sys, holder);
    });
}

#[test]
fn pending_signals_are_counted_for_new_user_after_setuid() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            block(sys, &[Signal::RTMIN]);
            sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1).unwrap();
            sys.setuid(unused_uid(sys)).unwrap();
            sys.setrlimit(Resource::PendingSignals, Rlimit::of(1)).unwrap();
            sys.sigwait(SigSet::of(&[Signal::RTMIN])).unwrap();
            assert_eq!(sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1), Ok(()));
            assert_eq!(sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1), Err(Errno::EAGAIN));
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
    })
    .and_on_linux();
}

/// Runs with CPU limits of 1 and 2 seconds. The handler for SIGXCPU finds the soft limit raised,
/// its child inherits the raised limit, and the kernel kills the process at the hard limit.
fn meets_its_limits_of_time(sys: &dyn Sys) {
    let (from, to) = sys.pipe().unwrap();
    let child = sys
        .fork(move |sys| {
            let handler = SigAction::handler(move |sys, _| {
                let raised = sys.getrlimit(Resource::Cpu);
                assert_eq!(raised, Rlimit { soft: 2, hard: 2 });
                let inherits = move |sys: &dyn Sys| {
                    assert_eq!(sys.getrlimit(Resource::Cpu), raised);
                    0
                };
                assert_eq!(end_as(sys, inherits), WaitStatus::Exited(0));
                assert_eq!(sys.write(to, b"x"), Ok(1));
            });
            act(sys, Signal::XCPU, handler);
            sys.setrlimit(Resource::Cpu, Rlimit { soft: 1, hard: 2 }).unwrap();
            loop {
                sys.poll();
            }
        })
        .unwrap();
    assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::KILL, false));
    sys.close(to).unwrap();
    assert_eq!(sys.read(from, &mut [0; 8]), Ok(1), "SIGXCPU was delivered once");
}

#[test]
fn cpu_limit_sends_sigxcpu_once_then_kills_at_hard_limit() {
    for executor in [Executor::Simulated { seed: 3 }, Executor::Parallel] {
        let unix = Virtual::builder().executor(executor).build().unwrap();
        let report = unix.run(|sys| {
            meets_its_limits_of_time(sys);
            0
        });
        assert_eq!(report.status, Some(WaitStatus::Exited(0)), "{executor:?}: {report:?}");
    }
}

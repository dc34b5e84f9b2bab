//! `setrlimit`, and the limit of processes.

use super::harness::*;

#[test]
fn a_limit_is_lowered_by_anyone_and_raised_by_the_privileged() {
    everywhere(|sys| {
        let of = |soft, hard| Limit { soft, hard };
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
        assert_eq!(end, Status::Exited(0));
        assert_eq!(sys.getrlimit(Resource::Processes), of(60, 200), "a child's are its own");
    });
}

#[test]
fn a_user_has_as_many_processes_and_threads_as_the_limit_says() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            sys.setuid(54_321).unwrap();
            sys.setrlimit(Resource::Processes, Limit::of(3)).unwrap();
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
        assert_eq!(end, Status::Exited(0));
    });
}

#[test]
fn the_privileged_are_not_limited_in_processes() {
    everywhere(|sys| {
        sys.setrlimit(Resource::Processes, Limit::of(1)).unwrap();
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
fn a_process_counts_for_the_user_that_it_becomes() {
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
            sys.setrlimit(Resource::Processes, Limit::of(2)).unwrap();
            assert_eq!(sys.fork(|_| 0), Err(Errno::EAGAIN));
            sys.setrlimit(Resource::Processes, Limit { soft: 2, hard: 2 }).unwrap();
            0
        });
        assert_eq!(end, Status::Exited(0));
        kill(sys, holder, Signal::KILL);
        end_of(sys, holder);
    });
}

#[test]
fn signals_that_are_pending_count_for_the_user_that_a_process_becomes() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            block(sys, &[Signal::RTMIN]);
            sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1).unwrap();
            sys.setuid(nobody_else(sys)).unwrap();
            sys.setrlimit(Resource::PendingSignals, Limit::of(1)).unwrap();
            sys.sigwait(SigSet::of(&[Signal::RTMIN])).unwrap();
            assert_eq!(sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1), Ok(()));
            assert_eq!(sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1), Err(Errno::EAGAIN));
            0
        });
        assert_eq!(end, Status::Exited(0));
    })
    .and_on_linux();
}

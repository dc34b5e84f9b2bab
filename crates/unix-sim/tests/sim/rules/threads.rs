//! Creation, joining and end of threads.

use super::harness::*;

#[test]
fn thread_can_be_joined_only_once() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        let thread = sys.thread(move |_| noted.note(1)).unwrap();
        assert_eq!(sys.join(thread), Ok(()));
        assert_eq!(log.all(), [1]);
        assert_eq!(sys.join(thread), Err(Errno::ESRCH));
    })
    .and_on_linux();
}

#[test]
fn ended_thread_can_still_be_joined() {
    everywhere(|sys| {
        let thread = sys.thread(|_| {}).unwrap();
        let gone = || sys.tgkill(sys.getpid(), thread, None) == Err(Errno::ESRCH);
        until(sys, gone);
        assert_eq!(sys.join(thread), Ok(()));
        assert_eq!(sys.join(thread), Err(Errno::ESRCH));
    })
    .and_on_linux();
}

#[test]
fn join_of_self_or_foreign_thread_fails() {
    everywhere(|sys| {
        assert_eq!(sys.join(sys.gettid()), Err(Errno::EDEADLK));
        let child = sys.fork(sleep_on).unwrap();
        for other in [child.number(), 999, 0, -1] {
            assert_eq!(sys.join(Tid(other)), Err(Errno::ESRCH), "{other}");
        }
        kill(sys, child, Signal::KILL);
        end_of(sys, child);
    })
    .and_on_linux();
}

#[test]
fn second_join_of_a_thread_returns_einval() {
    everywhere(|sys| {
        let bell = Bell::new(sys);
        let slow = sys.thread(move |sys| bell.heard(sys)).unwrap();
        let joined = Log::default();
        let results = [0, 1].map(|_| {
            let joined = joined.clone();
            sys.thread(move |sys| match sys.join(slow) {
                Ok(()) => joined.note(0),
                Err(errno) => joined.note(errno.raw()),
            })
            .unwrap()
        });
        until(sys, || joined.len() == 1);
        assert_eq!(joined.all(), [Errno::EINVAL.raw()]);
        bell.ring(sys);
        for thread in results {
            sys.join(thread).unwrap();
        }
        assert_eq!(joined.all(), [Errno::EINVAL.raw(), 0]);
    })
    .and_on_linux();
}

#[test]
fn threads_share_the_pid_and_have_distinct_tids() {
    everywhere(|sys| {
        let (me, first) = (sys.getpid().number(), sys.gettid().0);
        assert_eq!(me, first);
        let log = Log::default();
        let noted = log.clone();
        let thread = sys
            .thread(move |sys| {
                noted.note(sys.getpid().number());
                noted.note(sys.gettid().0);
                act(sys, Signal::USR1, SigAction::IGNORE);
            })
            .unwrap();
        sys.join(thread).unwrap();
        assert_eq!(log.all(), [me, thread.0]);
        assert_ne!(thread.0, me);
        assert_eq!(sys.sigaction(Signal::USR1, None), Ok(SigAction::IGNORE));
    })
    .and_on_linux();
}

#[test]
fn new_thread_inherits_no_pending_signals() {
    everywhere(|sys| {
        block(sys, &[Signal::USR1]);
        sys.raise(Signal::USR1).unwrap();
        let log = Log::default();
        let noted = log.clone();
        let thread = sys.thread(move |sys| noted.note(sys.sigpending().bits() as i32)).unwrap();
        sys.join(thread).unwrap();
        assert_eq!(log.all(), [0]);
    })
    .and_on_linux();
}

#[test]
fn thread_created_during_exec_is_terminated() {
    everywhere_with(
        |builder| builder.program("returns", |_, _| 12),
        |sys| {
            let end = end_as(sys, |sys| {
                sys.thread(|sys| {
                    let _ = sys.exec("returns", &["returns"]);
                })
                .unwrap();
                loop {
                    let _ = sys.thread(|sys| {
                        let _ = sys.nanosleep(Duration::from_secs(1000));
                    });
                    sys.sched_yield();
                }
            });
            assert_eq!(end, WaitStatus::Exited(12));
        },
    );
}

//! The choice of the thread that delivers a signal, and the information that a signal carries.

use super::harness::*;

/// Installs a handler for SIGUSR1 that logs its thread; returns the id of the first thread.
fn handlers_by_thread(sys: &dyn Sys, log: &Log) -> i32 {
    let noted = log.clone();
    act(sys, Signal::USR1, SigAction::handler(move |sys, _| noted.note(sys.gettid().0)));
    sys.gettid().0
}

#[test]
fn kill_reports_code_sender_and_user() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::USR1, log.infos());
        kill(sys, sys.getpid(), Signal::USR1);
        let (pid, uid) = (sys.getpid().number(), sys.getuid() as i32);
        assert_eq!(log.all(), [code(SigCode::User), pid, uid, 0, 0]);
    })
    .and_on_linux();
}

#[test]
fn tgkill_reports_the_tkill_code() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::USR1, log.infos());
        sys.raise(Signal::USR1).unwrap();
        let (pid, uid) = (sys.getpid().number(), sys.getuid() as i32);
        assert_eq!(log.all(), [code(SigCode::Tkill), pid, uid, 0, 0]);
    })
    .and_on_linux();
}

#[test]
fn sigqueue_reports_its_value() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::USR1, log.infos());
        sys.sigqueue(sys.getpid(), Some(Signal::USR1), -7).unwrap();
        let (pid, uid) = (sys.getpid().number(), sys.getuid() as i32);
        assert_eq!(log.all()[..4], [code(SigCode::Queue), pid, uid, -7]);
    })
    .and_on_linux();
}

#[test]
fn sigchld_reports_child_and_its_change() {
    everywhere(|sys| {
        let chld = SigSet::of(&[Signal::CHLD]);
        block(sys, &[Signal::CHLD]);
        let told = |child: Pid| {
            let info = sys.sigtimedwait(chld, None).unwrap();
            assert_eq!((info.pid, info.uid), (child.number(), sys.getuid()));
            (info.code, info.status)
        };
        let child = sys.fork(|_| 300).unwrap();
        assert_eq!(told(child), (SigCode::Exited, 300 & 0xff));
        end_of(sys, child);
        let child = sys.fork(sleep_on).unwrap();
        kill(sys, child, Signal::STOP);
        assert_eq!(told(child), (SigCode::Stopped, Signal::STOP.number()));
        kill(sys, child, Signal::CONT);
        assert_eq!(told(child), (SigCode::Continued, Signal::CONT.number()));
        kill(sys, child, Signal::TERM);
        assert_eq!(told(child), (SigCode::Killed, Signal::TERM.number()));
        end_of(sys, child);
    })
    .and_on_linux();
}

#[test]
fn sigchld_reports_a_core_dump() {
    everywhere(|sys| {
        block(sys, &[Signal::CHLD]);
        sys.fork(|sys| sys.raise(Signal::QUIT).map_or(1, |()| 2)).unwrap();
        let info = sys.sigtimedwait(SigSet::of(&[Signal::CHLD]), None).unwrap();
        assert_eq!((info.code, info.status), (SigCode::Dumped, Signal::QUIT.number()));
        assert_eq!(sys.wait().unwrap().status, WaitStatus::Signaled(Signal::QUIT, true));
    });
}

#[test]
fn signal_to_a_process_goes_to_an_unblocking_thread() {
    everywhere(|sys| {
        let log = Log::default();
        handlers_by_thread(sys, &log);
        block(sys, &[Signal::USR1]);
        let done = log.clone();
        let thread = sys
            .thread(move |sys| {
                let open = SigSet::ALL.without(Signal::USR1);
                assert_eq!(sys.sigsuspend(open), Errno::EINTR);
                assert_eq!(done.all(), [sys.gettid().0]);
            })
            .unwrap();
        rest(sys);
        kill(sys, sys.getpid(), Signal::USR1);
        sys.join(thread).unwrap();
        assert_eq!(log.all(), [thread.0]);
    })
    .and_on_linux();
}

#[test]
fn oldest_thread_delivery_waits_for_the_oldest_thread() {
    everywhere_with(
        |builder| builder.delivery(Delivery::Oldest),
        |sys| {
            let log = Log::default();
            let oldest = handlers_by_thread(sys, &log);
            block(sys, &[Signal::USR1]);
            let seen = log.clone();
            let thread = sys
                .thread(move |sys| {
                    unblock(sys, &[Signal::USR1]);
                    kill(sys, sys.getpid(), Signal::USR1);
                    // The call makes the thread check again for unblocked signals.
                    block(sys, &[Signal::HUP]);
                    rest(sys);
                    assert_eq!(seen.len(), 0);
                })
                .unwrap();
            sys.join(thread).unwrap();
            assert_eq!(log.len(), 0);
            unblock(sys, &[Signal::USR1]);
            assert_eq!(log.all(), [oldest]);
        },
    );
}

#[test]
fn signal_to_a_thread_waits_for_that_thread() {
    everywhere(|sys| {
        let log = Log::default();
        handlers_by_thread(sys, &log);
        block(sys, &[Signal::USR1]);
        let told = log.clone();
        let thread = sys
            .thread(move |sys| {
                until(sys, || told.len() == 1);
                unblock(sys, &[Signal::USR1]);
                told.note(-2);
            })
            .unwrap();
        sys.tgkill(sys.getpid(), thread, Some(Signal::USR1)).unwrap();
        unblock(sys, &[Signal::USR1]);
        log.note(-1);
        sys.join(thread).unwrap();
        assert_eq!(log.all(), [-1, thread.0, -2]);
    })
    .and_on_linux();
}

#[test]
fn signal_blocked_by_handler_goes_to_another_thread() {
    everywhere(|sys| {
        for _ in 0..4 {
            let log = Log::default();
            handlers_by_thread(sys, &log);
            // The handler of SIGHUP blocks SIGUSR1 while the kernel may be about to deliver SIGUSR1
            // to the same thread.
            let waited_for = log.clone();
            let holds = SigAction::handler(move |sys, _| until(sys, || waited_for.len() == 1));
            act(sys, Signal::HUP, holds.with_mask(SigSet::of(&[Signal::USR1])));
            let (me, first) = (sys.getpid(), sys.gettid());
            block(sys, &[Signal::USR1]);
            let other = sys
                .thread(|sys| {
                    let open = SigSet::ALL.without(Signal::USR1);
                    assert_eq!(sys.sigsuspend(open), Errno::EINTR);
                })
                .unwrap();
            unblock(sys, &[Signal::USR1]);
            rest(sys);
            let sender = sys
                .fork(move |sys| {
                    sys.tgkill(me, first, Some(Signal::HUP)).unwrap();
                    kill(sys, me, Signal::USR1);
                    0
                })
                .unwrap();
            while sys.waitpid(sender.into(), WaitOptions::empty()) == Err(Errno::EINTR) {}
            sys.join(other).unwrap();
            assert_eq!(log.all(), [other.0]);
        }
    });
}

#[test]
fn undelivered_signal_of_ending_thread_moves_to_another() {
    everywhere(|sys| {
        let log = Log::default();
        handlers_by_thread(sys, &log);
        for round in 0..5 {
            let thread = sys.thread(|sys| sys.sched_yield()).unwrap();
            kill(sys, sys.getpid(), Signal::USR1);
            sys.join(thread).unwrap();
            until(sys, || log.len() == round + 1);
        }
    })
    .and_on_linux();
}

#[test]
fn tgkill_names_a_thread_of_that_process() {
    everywhere(|sys| {
        let me = sys.getpid();
        let child = sys.fork(sleep_on).unwrap();
        let of = |tid: i32| sys.tgkill(me, Tid(tid), None);
        assert_eq!(of(sys.gettid().0), Ok(()));
        assert_eq!(of(child.number()), Err(Errno::ESRCH));
        assert_eq!(of(0), Err(Errno::EINVAL));
        assert_eq!(of(-1), Err(Errno::EINVAL));
        assert_eq!(sys.tgkill(Pid::number_only(0), sys.gettid(), None), Err(Errno::EINVAL));
        assert_eq!(sys.tgkill(Pid::number_only(-5), sys.gettid(), None), Err(Errno::EINVAL));
        assert_eq!(sys.tgkill(child, Tid(child.number()), Some(Signal::TERM)), Ok(()));
        sys.waitid(child.into(), WaitOptions::EXITED | WaitOptions::NOWAIT).unwrap();
        let zombie = |tid: i32| sys.tgkill(child, Tid(tid), Some(Signal::TERM));
        assert_eq!(zombie(child.number()), Ok(()));
        assert_eq!(zombie(me.number()), Err(Errno::ESRCH));
        assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::TERM, false));
        assert_eq!(zombie(child.number()), Err(Errno::ESRCH));
    })
    .and_on_linux();
}

#[test]
fn calls_that_do_not_sleep_are_never_interrupted() {
    everywhere(|sys| {
        let stop = Log::default();
        act(sys, Signal::USR1, SigAction::handler(|_, _| {}));
        act(sys, Signal::USR2, SigAction::handler(|_, _| {}));
        let threads = [Signal::USR1, Signal::USR2].map(|signal| {
            let stop = stop.clone();
            sys.thread(move |sys| {
                while stop.len() == 0 {
                    kill(sys, sys.getpid(), signal);
                    sys.sched_yield();
                }
            })
            .unwrap()
        });
        for _ in 0..15 {
            let child = sys.fork(|_| 0).unwrap();
            assert!(sys.kill(child.into(), None).is_ok());
            assert!(sys.sigprocmask(None).is_ok());
            assert!(sys.sigaction(Signal::HUP, Some(SigAction::DEFAULT)).is_ok());
            assert!(sys.getpriority(PriorityScope::Process(child)).is_ok());
            assert!(sys.waitpid(child.into(), WaitOptions::NOHANG).is_ok());
            while sys.waitpid(Children::Any, WaitOptions::empty()) == Err(Errno::EINTR) {}
        }
        stop.note(1);
        for thread in threads {
            assert_eq!(sys.join(thread), Ok(()), "join was interrupted");
        }
    });
}

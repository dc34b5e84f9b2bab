//! The choice of the thread that delivers a signal, and the information that a signal carries.

use super::harness::*;

/// Installs a handler for SIGUSR1 that logs its thread; returns the id of the first thread.
fn handlers_by_thread(sys: &dyn Sys, log: &Log) -> i32 {
    let noted = log.clone();
    act(sys, Signal::USR1, SigAction::handler(move |sys, _| noted.note(sys.gettid().0)));
    sys.gettid().0
}

#[test]
fn signal_reports_code_sender_user_and_value() {
    everywhere(|sys| {
        let me = sys.getpid();
        let to_thread = |signal| sys.tgkill(me, sys.gettid(), Some(signal)).unwrap();
        let (pid, uid) = (me.number(), sys.getuid() as i32);
        for signal in [Signal::USR1, Signal::RTMAX] {
            let log = Log::default();
            act(sys, signal, log.infos());
            kill(sys, me, signal);
            to_thread(signal);
            sys.sigqueue(me, Some(signal), -7).unwrap();
            let reported = log.all();
            assert_eq!(reported[..5], [code(SigCode::User), pid, uid, 0, 0]);
            assert_eq!(reported[5..10], [code(SigCode::Tkill), pid, uid, 0, 0]);
            assert_eq!(reported[10..14], [code(SigCode::Queue), pid, uid, -7]);
        }
    })
    .and_on_linux();
}

#[test]
fn sigchld_reports_a_core_dump() {
    everywhere(|sys| {
        block(sys, &[Signal::CHLD]);
        forked(sys, |sys| sys.raise(Signal::QUIT).map_or(1, |()| 2));
        let info = sys.sigtimedwait(SigSet::of(&[Signal::CHLD]), None).unwrap();
        assert_eq!((info.code, info.status), (SigCode::Dumped, Signal::QUIT.number()));
        assert_eq!(sys.wait().unwrap().status, WaitStatus::Signaled(Signal::QUIT, true));
    });
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
            let thread = threaded(sys, move |sys| {
                unblock(sys, &[Signal::USR1]);
                kill(sys, sys.getpid(), Signal::USR1);
                // The call makes the thread check again for unblocked signals.
                block(sys, &[Signal::HUP]);
                rest(sys);
                assert_eq!(seen.len(), 0);
            });
            sys.join(thread).unwrap();
            assert_eq!(log.len(), 0);
            unblock(sys, &[Signal::USR1]);
            assert_eq!(log.all(), [oldest]);
        },
    );
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
            let other = threaded(sys, |sys| {
                let open = SigSet::ALL.without(Signal::USR1);
                assert_eq!(sys.sigsuspend(open), Errno::EINTR);
            });
            unblock(sys, &[Signal::USR1]);
            rest(sys);
            let sender = forked(sys, move |sys| {
                sys.tgkill(me, first, Some(Signal::HUP)).unwrap();
                kill(sys, me, Signal::USR1);
                0
            });
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
            let thread = threaded(sys, |sys| sys.sched_yield());
            kill(sys, sys.getpid(), Signal::USR1);
            sys.join(thread).unwrap();
            until(sys, || log.len() == round + 1);
        }
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
            threaded(sys, move |sys| {
                while stop.len() == 0 {
                    kill(sys, sys.getpid(), signal);
                    sys.sched_yield();
                }
            })
        });
        for _ in 0..15 {
            let child = forked(sys, |_| 0);
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

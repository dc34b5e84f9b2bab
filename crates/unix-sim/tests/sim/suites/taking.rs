//! Taking signals without a handler: `sigtimedwait` and `sigwait`.

use crate::rules::harness::*;

const USR1: SigSet = SigSet::of(&[Signal::USR1]);
const NO_TIME: Option<Duration> = Some(Duration::ZERO);

/// Returns a child that sends its parent a signal repeatedly until it is killed.
fn pester(sys: &dyn Sys, signal: Signal) -> Pid {
    let parent = sys.getpid();
    sys.fork(move |sys| {
        loop {
            rest(sys);
            kill(sys, parent, signal);
        }
    })
    .unwrap()
}

/// Kills a child whose signals may still arrive.
fn silence(sys: &dyn Sys, child: Pid) {
    kill(sys, child, Signal::KILL);
    while sys.waitpid(child.into(), WaitOptions::empty()) == Err(Errno::EINTR) {}
}

#[test]
fn wait_for_empty_set_ends_by_timeout_or_handler() {
    everywhere(|sys| {
        assert_eq!(sys.sigtimedwait(SigSet::EMPTY, NO_TIME), Err(Errno::EAGAIN));
        let before = sys.now();
        assert_eq!(sys.sigtimedwait(SigSet::EMPTY, Some(MOMENT)), Err(Errno::EAGAIN));
        assert!(sys.now() - before >= MOMENT);
        let log = Log::default();
        act(sys, Signal::USR1, log.signals());
        let child = pester(sys, Signal::USR1);
        assert_eq!(sys.sigtimedwait(SigSet::EMPTY, None), Err(Errno::EINTR));
        assert!(log.len() >= 1);
        act(sys, Signal::USR1, SigAction::IGNORE);
        silence(sys, child);
    })
    .and_on_linux();
}

#[test]
fn sigchld_from_any_sender_is_taken() {
    everywhere(|sys| {
        let chld = SigSet::of(&[Signal::CHLD]);
        let log = Log::default();
        block(sys, &[Signal::CHLD]);
        for action in [SigAction::DEFAULT, log.signals()] {
            act(sys, Signal::CHLD, action);
            kill(sys, sys.getpid(), Signal::CHLD);
            assert_eq!(sys.sigtimedwait(chld, NO_TIME).unwrap().code, SigCode::User);
            let child = sys.fork(|_| 5).unwrap();
            assert_eq!(end_of(sys, child), WaitStatus::Exited(5));
            let info = sys.sigtimedwait(chld, NO_TIME).unwrap();
            assert_eq!((info.code, info.pid, info.status), (SigCode::Exited, child.number(), 5));
            let child = sys.fork(|_| 6).unwrap();
            let info = sys.sigtimedwait(chld, None).unwrap();
            assert_eq!((info.code, info.pid, info.status), (SigCode::Exited, child.number(), 6));
            assert_eq!(end_of(sys, child), WaitStatus::Exited(6));
        }
        assert_eq!(log.len(), 0);
    })
    .and_on_linux();
}

#[test]
fn ignored_signal_is_taken_only_if_blocked() {
    everywhere(|sys| {
        act(sys, Signal::USR1, SigAction::IGNORE);
        for blocked in [false, true] {
            if blocked {
                block(sys, &[Signal::USR1]);
            }
            let (me, first) = (sys.getpid(), sys.gettid());
            let sender = sys
                .thread(move |sys| {
                    block(sys, &[Signal::USR1]);
                    rest(sys);
                    sys.tgkill(me, first, Some(Signal::USR1)).unwrap();
                })
                .unwrap();
            let patience = if blocked { None } else { Some(8 * MOMENT) };
            let taken = sys.sigtimedwait(USR1, patience).map(|info| info.code);
            let expected = if blocked { Ok(SigCode::Tkill) } else { Err(Errno::EAGAIN) };
            assert_eq!(taken, expected);
            sys.join(sender).unwrap();
        }
    })
    .and_on_linux();
}

#[test]
fn sigtimedwait_reports_sender_of_blocked_or_unblocked_signal() {
    everywhere(|sys| {
        let log = Log::default();
        for blocked in [false, true] {
            // An unblocked signal may arrive before the wait, and then its handler runs.
            act(sys, Signal::USR1, SigAction::handler(|_, _| {}));
            if blocked {
                act(sys, Signal::USR1, log.signals());
                block(sys, &[Signal::USR1]);
            }
            let mask = sys.sigprocmask(None).unwrap();
            let child = pester(sys, Signal::USR1);
            let info = sys.sigtimedwait(USR1, None).unwrap();
            assert_eq!((info.signal, info.code), (Signal::USR1, SigCode::User));
            assert_eq!((info.pid, info.uid), (child.number(), sys.getuid()));
            assert_eq!(sys.sigwait(USR1), Ok(Signal::USR1), "sigwait without information");
            assert_eq!(sys.sigprocmask(None), Ok(mask));
            silence(sys, child);
            let _ = sys.sigtimedwait(USR1, NO_TIME);
        }
        assert_eq!(log.len(), 0);
    })
    .and_on_linux();
}

#[test]
fn lower_signal_of_two_senders_is_taken_first() {
    everywhere(|sys| {
        let [lower, higher] = [1, 2].map(|n| Signal::realtime(n).unwrap());
        let both = SigSet::of(&[lower, higher]);
        block(sys, &[lower, higher]);
        let parent = sys.getpid();
        let senders = [higher, lower].map(|signal| {
            let child = sys.fork(move |sys| {
                kill(sys, parent, signal);
                0
            });
            let child = child.unwrap();
            assert_eq!(end_of(sys, child), WaitStatus::Exited(0));
            (signal, child)
        });
        for (signal, sender) in senders.into_iter().rev() {
            let info = sys.sigtimedwait(both, None).unwrap();
            assert_eq!((info.signal, info.pid), (signal, sender.number()));
            assert_eq!(info.code, SigCode::User);
        }
        assert_eq!(sys.sigprocmask(None), Ok(both));
    })
    .and_on_linux();
}

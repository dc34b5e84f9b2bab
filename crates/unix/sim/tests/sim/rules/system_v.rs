//! System V's calls, and C's `signal`.

use super::harness::*;

fn handler(log: &Log) -> Disposition {
    log.signals().disposition
}

#[test]
fn sighold_blocks_and_sigrelse_unblocks_signal() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::USR1, log.signals());
        block(sys, &[Signal::HUP]);
        assert_eq!(sys.sighold(Signal::USR1), Ok(()));
        assert_eq!(sys.sigprocmask(None), Ok(SigSet::of(&[Signal::HUP, Signal::USR1])));
        sys.raise(Signal::USR1).unwrap();
        assert_eq!((log.len(), sys.sigpending()), (0, SigSet::of(&[Signal::USR1])));
        assert_eq!(sys.sigrelse(Signal::USR1), Ok(()));
        assert_eq!(log.len(), 1);
        assert_eq!(sys.sigprocmask(None), Ok(SigSet::of(&[Signal::HUP])));
    })
    .and_on_linux();
}

#[test]
fn sigignore_ignores_but_refuses_kill_and_stop() {
    everywhere(|sys| {
        assert_eq!(sys.sigignore(Signal::USR1), Ok(()));
        assert_eq!(sys.sigaction(Signal::USR1, None).unwrap().disposition, Disposition::Ignore);
        assert_eq!(sys.raise(Signal::USR1), Ok(()), "SIGUSR1 is ignored");
        for signal in [Signal::KILL, Signal::STOP] {
            assert_eq!(sys.sigignore(signal), Err(Errno::EINVAL));
            assert_eq!(sys.sigaction(signal, None), Ok(SigAction::DEFAULT));
        }
    })
    .and_on_linux();
}

#[test]
fn sigset_installs_a_disposition_and_unblocks_the_signal() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            sys.sigset(Signal::USR1, Some(Disposition::Ignore)).unwrap();
            sys.raise(Signal::USR1).unwrap();
            let log = Log::default();
            block(sys, &[Signal::USR1]);
            sys.sigset(Signal::USR1, Some(handler(&log))).unwrap();
            assert_eq!(sys.sigprocmask(None), Ok(SigSet::EMPTY));
            sys.raise(Signal::USR1).unwrap();
            sys.raise(Signal::USR1).unwrap();
            assert_eq!(log.all(), [Signal::USR1.number(); 2]);
            sys.sigset(Signal::USR1, Some(Disposition::Default)).unwrap();
            sys.raise(Signal::USR1).map_or(1, |()| 2)
        });
        assert_eq!(end, WaitStatus::Signaled(Signal::USR1, false));
    })
    .and_on_linux();
}

#[test]
fn sigset_handler_runs_blocked_and_the_mask_is_restored() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        let looks = Handler::new(move |sys, _| {
            let mask = sys.sigprocmask(None).unwrap();
            noted.note((mask == SigSet::of(&[Signal::HUP, Signal::USR1])).into());
        });
        block(sys, &[Signal::HUP]);
        sys.sigset(Signal::USR1, Some(Disposition::Handler(looks))).unwrap();
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(log.all(), [1]);
        assert_eq!(sys.sigprocmask(None), Ok(SigSet::of(&[Signal::HUP])));
    })
    .and_on_linux();
}

#[test]
fn sigset_holds_a_signal_and_keeps_its_disposition() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::CHLD, log.signals());
        let before = sys.sigaction(Signal::CHLD, None);
        assert_eq!(sys.sigset(Signal::CHLD, None), Ok(Some(handler_of(&before))));
        assert_eq!(sys.sigaction(Signal::CHLD, None), before);
        sys.raise(Signal::CHLD).unwrap();
        assert_eq!((log.len(), sys.sigpending()), (0, SigSet::of(&[Signal::CHLD])));
        assert_eq!(sys.sigset(Signal::CHLD, None), Ok(None), "the signal was held");
        sys.sigrelse(Signal::CHLD).unwrap();
        assert_eq!(log.len(), 1);
    })
    .and_on_linux();
}

fn handler_of(action: &Result<SigAction>) -> Disposition {
    action.clone().expect("the action can be read").disposition
}

#[test]
fn sigset_returns_hold_or_the_previous_disposition() {
    everywhere(|sys| {
        let first = handler(&Log::default());
        let install =
            |disposition: &Disposition| sys.sigset(Signal::USR1, Some(disposition.clone()));
        assert_eq!(install(&first), Ok(Some(Disposition::Default)));
        assert_eq!(install(&Disposition::Ignore), Ok(Some(first.clone())));
        sys.sighold(Signal::USR1).unwrap();
        assert_eq!(install(&first), Ok(None));
        assert_eq!(install(&first), Ok(Some(first.clone())), "the signal was unblocked again");
        for signal in [Signal::KILL, Signal::STOP] {
            let refused = sys.sigset(signal, Some(first.clone()));
            assert_eq!(refused, Err(Errno::EINVAL));
        }
    })
    .and_on_linux();
}

#[test]
fn signal_installs_and_returns_the_previous_disposition() {
    everywhere(|sys| {
        let log = Log::default();
        let (first, second) = (handler(&log), handler(&log));
        let install = |disposition: &Disposition| sys.signal(Signal::USR1, disposition.clone());
        assert_eq!(install(&first), Ok(Disposition::Default));
        for _ in 0..2 {
            sys.raise(Signal::USR1).unwrap();
        }
        assert_eq!(log.all(), [Signal::USR1.number(); 2]);
        assert_eq!(install(&second), Ok(first));
        assert_eq!(install(&Disposition::Ignore), Ok(second));
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(log.len(), 2);
        let end = end_as(sys, |sys| {
            sys.signal(Signal::USR1, Disposition::Default).unwrap();
            sys.raise(Signal::USR1).map_or(1, |()| 2)
        });
        assert_eq!(end, WaitStatus::Signaled(Signal::USR1, false));
        for signal in [Signal::KILL, Signal::STOP] {
            for disposition in [Disposition::Ignore, handler(&log)] {
                assert_eq!(sys.signal(signal, disposition), Err(Errno::EINVAL));
            }
        }
    })
    .and_on_linux();
}

#[test]
fn sigaction_reads_and_restores_what_signal_installed() {
    everywhere(|sys| {
        let log = Log::default();
        sys.signal(Signal::USR1, handler(&log)).unwrap();
        let kept = sys.sigaction(Signal::USR1, Some(SigAction::IGNORE)).unwrap();
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(log.len(), 0);
        act(sys, Signal::USR1, kept);
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(log.len(), 1);
    })
    .and_on_linux();
}

#[test]
fn call_interrupted_by_signal_handler_restarts() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            let log = Log::default();
            sys.signal(Signal::USR1, handler(&log)).unwrap();
            wait_through(sys, Signal::USR1);
            log.len() as i32
        });
        assert_eq!(end, WaitStatus::Exited(1));
    })
    .and_on_linux();
}

/// Waits for a child that signals the caller during the wait, which then restarts.
fn wait_through(sys: &dyn Sys, signal: Signal) {
    let me = sys.getpid();
    let child = forked(sys, move |sys| {
        rest(sys);
        kill(sys, me, signal);
        rest(sys);
        3
    });
    assert_eq!(end_of(sys, child), WaitStatus::Exited(3));
}

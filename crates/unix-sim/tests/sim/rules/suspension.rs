//! `sigsuspend`, `pause`, `sigwait` and `sigtimedwait`.

use super::harness::*;

#[test]
fn sigsuspend_admits_pending_signals_and_restores_the_mask() {
    everywhere(|sys| {
        let log = Log::default();
        let seen = log.clone();
        let handler = SigAction::handler(move |sys, _| {
            let mask = sys.sigprocmask(None).unwrap();
            seen.note(mask.contains(Signal::USR1).into());
            seen.note(mask.contains(Signal::USR2).into());
        });
        act(sys, Signal::USR1, handler);
        block(sys, &[Signal::USR1]);
        kill(sys, sys.getpid(), Signal::USR1);
        assert_eq!(sys.sigsuspend(SigSet::of(&[Signal::USR2])), Errno::EINTR);
        assert_eq!(log.all(), [1, 1], "the handled signal and the mask of the call are blocked");
        assert_eq!(sys.sigprocmask(None), Ok(SigSet::of(&[Signal::USR1])));
    })
    .and_on_linux();
}

#[test]
fn sigsuspend_loses_no_signal_before_its_sleep() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::USR1, log.signals());
        act(sys, Signal::USR2, Log::default().signals());
        block(sys, &[Signal::USR1, Signal::USR2]);
        let me = sys.getpid();
        let child = sys
            .fork(move |sys| {
                for _ in 0..10 {
                    kill(sys, me, Signal::USR1);
                    sys.sigsuspend(SigSet::of(&[Signal::USR1]));
                }
                0
            })
            .unwrap();
        for nth in 1..=10 {
            assert_eq!(sys.sigsuspend(SigSet::of(&[Signal::USR2])), Errno::EINTR);
            assert_eq!(log.len(), nth);
            kill(sys, child, Signal::USR2);
        }
        assert_eq!(end_of(sys, child), WaitStatus::Exited(0));
    })
    .and_on_linux();
}

#[test]
fn sigsuspend_restores_the_mask_of_each_thread() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::USR1, Log::default().signals());
        act(sys, Signal::USR2, Log::default().signals());
        block(sys, &[Signal::USR1, Signal::USR2]);
        let threads =
            [(Signal::USR1, Signal::HUP), (Signal::USR2, Signal::TERM)].map(|(awaited, own)| {
                let seen = log.clone();
                sys.thread(move |sys| {
                    block(sys, &[own]);
                    let before = sys.sigprocmask(None).unwrap();
                    let mask = SigSet::ALL.without(awaited);
                    assert_eq!(sys.sigsuspend(mask), Errno::EINTR);
                    seen.note(i32::from(sys.sigprocmask(None) == Ok(before)));
                })
                .unwrap()
            });
        rest(sys);
        kill(sys, sys.getpid(), Signal::USR2);
        kill(sys, sys.getpid(), Signal::USR1);
        for thread in threads {
            sys.join(thread).unwrap();
        }
        assert_eq!(log.all(), [1, 1]);
    })
    .and_on_linux();
}

#[test]
fn sigsuspend_and_pause_sleep_through_ignored_signals() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::USR1, SigAction::IGNORE);
        act(sys, Signal::USR2, log.signals());
        for call in [|sys: &dyn Sys| sys.pause(), |sys: &dyn Sys| sys.sigsuspend(SigSet::EMPTY)] {
            let (me, before) = (sys.getpid(), log.len());
            let child = sys
                .fork(move |sys| {
                    for signal in [Signal::USR1, Signal::CHLD, Signal::CONT] {
                        rest(sys);
                        kill(sys, me, signal);
                    }
                    loop {
                        rest(sys);
                        kill(sys, me, Signal::USR2);
                    }
                })
                .unwrap();
            assert_eq!(call(sys), Errno::EINTR);
            assert!(log.len() > before);
            kill(sys, child, Signal::KILL);
            while sys.waitpid(child.into(), WaitOptions::empty()) == Err(Errno::EINTR) {}
        }
    })
    .and_on_linux();
}

#[test]
fn process_in_sigsuspend_may_stop_and_continue() {
    everywhere(|sys| {
        let ready = Bell::new(sys);
        let child = sys
            .fork(move |sys| {
                let blocked = [Signal::HUP, Signal::USR1];
                act(sys, Signal::USR1, Log::default().signals());
                block(sys, &blocked);
                ready.ring(sys);
                assert_eq!(sys.sigsuspend(SigSet::EMPTY), Errno::EINTR);
                i32::from(sys.sigprocmask(None) == Ok(SigSet::of(&blocked)))
            })
            .unwrap();
        ready.heard(sys);
        rest(sys);
        kill(sys, child, Signal::STOP);
        assert_eq!(change_of(sys, child, WaitOptions::STOPPED), WaitStatus::Stopped(Signal::STOP));
        kill(sys, child, Signal::CONT);
        assert_eq!(change_of(sys, child, WaitOptions::CONTINUED), WaitStatus::Continued);
        rest(sys);
        kill(sys, child, Signal::USR1);
        assert_eq!(end_of(sys, child), WaitStatus::Exited(1));
    })
    .and_on_linux();
}

#[test]
fn sigtimedwait_takes_a_signal_without_its_handler() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::USR1, log.signals());
        block(sys, &[Signal::USR1]);
        kill(sys, sys.getpid(), Signal::USR1);
        assert_eq!(sys.sigwait(SigSet::of(&[Signal::USR1])), Ok(Signal::USR1));
        unblock(sys, &[Signal::USR1]);
        assert_eq!(log.len(), 0);
    })
    .and_on_linux();
}

#[test]
fn sigtimedwait_returns_eagain_after_its_timeout() {
    everywhere(|sys| {
        let set = SigSet::of(&[Signal::USR1]);
        block(sys, &[Signal::USR1]);
        assert_eq!(sys.sigtimedwait(set, Some(Duration::ZERO)), Err(Errno::EAGAIN));
        let before = sys.now();
        assert_eq!(sys.sigtimedwait(set, Some(MOMENT)), Err(Errno::EAGAIN));
        assert!(sys.now() - before >= MOMENT);
    })
    .and_on_linux();
}

#[test]
fn sigwait_takes_signals_ignored_by_default() {
    everywhere(|sys| {
        block(sys, &[Signal::CHLD]);
        let child = sys.fork(|_| 3).unwrap();
        let info = sys.sigtimedwait(SigSet::of(&[Signal::CHLD]), None).unwrap();
        assert_eq!((info.code, info.pid, info.status), (SigCode::Exited, child.number(), 3));
        assert_eq!(end_of(sys, child), WaitStatus::Exited(3));
    })
    .and_on_linux();
}

#[test]
fn sigwait_never_takes_kill_or_stop() {
    everywhere(|sys| {
        let child = sys
            .fork(|sys| {
                let _ = sys.sigwait(SigSet::of(&[Signal::KILL, Signal::STOP, Signal::USR1]));
                3
            })
            .unwrap();
        rest(sys);
        stop_and_kill(sys, child);
    })
    .and_on_linux();
}

#[test]
fn two_threads_waiting_for_one_signal_each_take_one() {
    everywhere(|sys| {
        let log = Log::default();
        block(sys, &[Signal::USR1]);
        let set = SigSet::of(&[Signal::USR1]);
        let threads = [1, 2].map(|_| {
            let log = log.clone();
            sys.thread(move |sys| {
                log.note(sys.sigwait(set).unwrap().number());
            })
            .unwrap()
        });
        rest(sys);
        kill(sys, sys.getpid(), Signal::USR1);
        until(sys, || log.len() == 1);
        kill(sys, sys.getpid(), Signal::USR1);
        for thread in threads {
            sys.join(thread).unwrap();
        }
        assert_eq!(log.len(), 2);
    })
    .and_on_linux();
}

#[test]
fn stop_ends_sigtimedwait_with_eintr_like_linux() {
    everywhere(|sys| {
        let child = sys
            .fork(|sys| {
                block(sys, &[Signal::USR1]);
                match sys.sigtimedwait(SigSet::of(&[Signal::USR1]), None) {
                    Ok(_) => 1,
                    Err(Errno::EINTR) => 2,
                    _ => 3,
                }
            })
            .unwrap();
        // A stop signal may arrive before the child waits, and then the loop sends another.
        let end = loop {
            rest(sys);
            kill(sys, child, Signal::STOP);
            match change_of(sys, child, WaitOptions::STOPPED | WaitOptions::EXITED) {
                WaitStatus::Stopped(_) => kill(sys, child, Signal::CONT),
                end => break end,
            }
        };
        assert_eq!(end, WaitStatus::Exited(2));
    })
    .and_on_linux();
}

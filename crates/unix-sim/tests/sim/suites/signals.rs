//! Rules for each signal: its number, and catching, ignoring, holding and releasing it.

use crate::rules::harness::*;

/// Returns the signals that a program may catch and block.
fn catchable() -> impl Iterator<Item = Signal> {
    Signal::all().filter(|signal| !SigSet::UNBLOCKABLE.contains(*signal))
}

#[test]
fn invalid_signal_number_is_refused_on_construction() {
    for number in [i32::MIN, -1, 0, 32, 33, 65, 200, 2000, i32::MAX] {
        assert_eq!(Signal::new(number), None, "{number}");
    }
    for number in (1..=31).chain(34..=64) {
        assert_eq!(Signal::new(number).map(Signal::number), Some(number));
    }
    let beyond = (Signal::RTMAX.number() - Signal::RTMIN.number() + 1) as u8;
    assert_eq!(Signal::realtime(beyond), None);
}

#[test]
fn every_blockable_signal_is_held_until_released() {
    everywhere(|sys| {
        let log = Log::default();
        let held: Vec<Signal> = catchable().collect();
        // A log holds 32 notes.
        for some in held.chunks(31) {
            let log = Log::default();
            let before = sys.sigprocmask(Some((SigmaskHow::Set, SigSet::ALL))).unwrap();
            assert_eq!(before, SigSet::EMPTY);
            let mask = sys.sigprocmask(None).unwrap();
            for signal in Signal::all() {
                assert_eq!(mask.contains(signal), !SigSet::UNBLOCKABLE.contains(signal));
            }
            for signal in some {
                act(sys, *signal, log.signals().with_mask(SigSet::ALL));
                // SIGCONT and the stop signals cancel each other while pending.
                if signal.default_action() != DefaultAction::Stop {
                    kill(sys, sys.getpid(), *signal);
                    assert!(sys.sigpending().contains(*signal));
                }
            }
            assert_eq!(log.len(), 0);
            sys.sigprocmask(Some((SigmaskHow::Set, SigSet::EMPTY))).unwrap();
            let mut handled = log.all();
            handled.sort_unstable();
            let sent = some.iter().filter(|signal| signal.default_action() != DefaultAction::Stop);
            assert_eq!(handled, sent.map(|signal| signal.number()).collect::<Vec<_>>());
            assert_eq!(sys.sigprocmask(None), Ok(SigSet::EMPTY));
            for signal in some {
                act(sys, *signal, SigAction::DEFAULT);
            }
        }
        for signal in [Signal::TSTP, Signal::TTIN, Signal::TTOU] {
            act(sys, signal, log.signals());
            block(sys, &[signal]);
            kill(sys, sys.getpid(), signal);
            assert!(sys.sigpending().contains(signal));
            unblock(sys, &[signal]);
        }
        assert_eq!(log.all(), [20, 21, 22]);
        let one = SigSet::of(&[Signal::USR1]);
        sys.sigprocmask(Some((SigmaskHow::Set, one))).unwrap();
        assert_eq!(sys.sigprocmask(None), Ok(one));
    })
    .and_on_linux();
}

#[test]
fn blocked_signal_waits_while_another_is_delivered() {
    everywhere(|sys| {
        let (one, two) = (Log::default(), Log::default());
        act(sys, Signal::USR1, one.signals());
        act(sys, Signal::USR2, two.signals());
        let both = |sys: &dyn Sys| {
            sys.raise(Signal::USR1).unwrap();
            sys.raise(Signal::USR2).unwrap();
        };
        both(sys);
        assert_eq!((one.len(), two.len()), (1, 1));
        block(sys, &[Signal::USR1]);
        both(sys);
        assert_eq!((one.len(), two.len()), (1, 2));
        assert_eq!(sys.sigpending(), SigSet::of(&[Signal::USR1]));
        block(sys, &[Signal::USR2]);
        sys.raise(Signal::USR2).unwrap();
        assert_eq!(sys.sigpending(), SigSet::of(&[Signal::USR1, Signal::USR2]));
        unblock(sys, &[Signal::USR1, Signal::USR2]);
        assert_eq!((one.len(), two.len()), (2, 3));
        assert_eq!(sys.sigpending(), SigSet::EMPTY);
    })
    .and_on_linux();
}

#[test]
fn each_signal_is_caught_then_ignored_then_reset() {
    everywhere(|sys| {
        for signal in catchable() {
            let log = Log::default();
            let caught = log.signals();
            // On Linux, the Rust runtime changes the actions of some signals.
            act(sys, signal, SigAction::DEFAULT);
            assert_eq!(sys.sigaction(signal, Some(caught.clone())), Ok(SigAction::DEFAULT));
            kill(sys, sys.getpid(), signal);
            assert_eq!(log.all(), [signal.number()]);
            let before = sys.sigaction(signal, Some(SigAction::IGNORE));
            assert_eq!(before.map(|action| action.disposition), Ok(caught.disposition));
            kill(sys, sys.getpid(), signal);
            sys.raise(signal).unwrap();
            assert_eq!(log.len(), 1, "{signal}");
            let before = sys.sigaction(signal, Some(SigAction::DEFAULT));
            assert_eq!(before, Ok(SigAction::IGNORE));
            assert_eq!(sys.sigaction(signal, None), Ok(SigAction::DEFAULT));
        }
    })
    .and_on_linux();
}

#[test]
fn only_sigkill_kills_process_ignoring_all_signals() {
    everywhere(|sys| {
        for caught in [false, true] {
            let bell = Bell::new(sys);
            let child = sys
                .fork(move |sys| {
                    for signal in Signal::all() {
                        let action =
                            if caught { SigAction::handler(|_, _| {}) } else { SigAction::IGNORE };
                        let set = sys.sigaction(signal, Some(action));
                        let refused = SigSet::UNBLOCKABLE.contains(signal);
                        assert_eq!(set.is_err(), refused, "{signal}");
                        let default = sys.sigaction(Signal::KILL, Some(SigAction::DEFAULT));
                        assert_eq!(default, Err(Errno::EINVAL));
                    }
                    bell.ring(sys);
                    sleep_on(sys)
                })
                .unwrap();
            bell.heard(sys);
            for signal in catchable() {
                kill(sys, child, signal);
            }
            rest(sys);
            assert_eq!(sys.waitpid(child.into(), WaitOptions::NOHANG), Ok(None));
            kill(sys, child, Signal::KILL);
            assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::KILL, false));
        }
    })
    .and_on_linux();
}

/// Returns the signals whose default action terminates the process.
fn fatal() -> impl Iterator<Item = Signal> {
    Signal::all().filter(|signal| {
        matches!(signal.default_action(), DefaultAction::Terminate | DefaultAction::Core)
    })
}

/// Restores the default action of a signal, which the Rust runtime may have changed on Linux.
fn default_action(sys: &dyn Sys, signal: Signal) {
    if signal != Signal::KILL {
        act(sys, signal, SigAction::DEFAULT);
    }
}

#[test]
fn fatal_signal_to_self_terminates_process() {
    everywhere(|sys| {
        for signal in fatal() {
            let end = end_as(sys, move |sys| {
                default_action(sys, signal);
                let _ = sys.kill(sys.getpid().into(), Some(signal));
                1
            });
            // On Linux, the core limit decides whether the kernel dumps a core.
            assert_eq!(end.signaled(), Some(signal), "{signal}");
        }
    })
    .and_on_linux();
}

#[test]
fn fatal_signal_from_parent_terminates_child() {
    everywhere(|sys| {
        let bell = Bell::new(sys);
        for signal in fatal() {
            let child = sys
                .fork(move |sys| {
                    default_action(sys, signal);
                    bell.ring(sys);
                    sleep_on(sys)
                })
                .unwrap();
            bell.heard(sys);
            kill(sys, child, signal);
            assert_eq!(end_of(sys, child).signaled(), Some(signal), "{signal}");
        }
    })
    .and_on_linux();
}

#[test]
fn resethand_keeps_the_other_flags() {
    everywhere(|sys| {
        let log = Log::default();
        for mask in [SigSet::EMPTY, SigSet::of(&[Signal::USR1])] {
            let log = log.clone();
            let handler = SigAction::handler(move |sys, info| {
                let now = sys.sigaction(Signal::USR1, None).unwrap();
                log.note(now.flags.contains(ActionFlags::SIGINFO).into());
                log.note(sys.sigprocmask(None).unwrap().contains(Signal::USR1).into());
                log.note(code(info.code));
            });
            let flags = ActionFlags::RESETHAND | ActionFlags::SIGINFO;
            act(sys, Signal::USR1, handler.with_flags(flags).with_mask(mask));
            sys.raise(Signal::USR1).unwrap();
        }
        let told = code(SigCode::Tkill);
        assert_eq!(log.all(), [1, 1, told, 1, 1, told]);
    })
    .and_on_linux();
}

#[test]
fn action_flags_persist_for_every_real_time_signal() {
    everywhere(|sys| {
        let reset = ActionFlags::RESETHAND;
        let kinds = [reset | ActionFlags::SIGINFO, reset, ActionFlags::NODEFER];
        for signal in Signal::all().filter(|signal| signal.is_realtime()) {
            for flags in kinds {
                let log = Log::default();
                let action = log.signals().with_flags(flags).with_mask(SigSet::of(&[signal]));
                act(sys, signal, action.clone());
                assert_eq!(sys.sigaction(signal, None), Ok(action));
                kill(sys, sys.getpid(), signal);
                assert_eq!(log.all(), [signal.number()]);
            }
        }
    })
    .and_on_linux();
}

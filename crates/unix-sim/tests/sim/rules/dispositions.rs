//! A process's reaction to signals: `sigaction`, its flags, and handlers.

use super::harness::*;

#[test]
fn sigaction_returns_the_previous_action() {
    everywhere(|sys| {
        let log = Log::default();
        let (first, second) = (log.signals(), SigAction::IGNORE);
        assert_eq!(sys.sigaction(Signal::USR1, Some(first.clone())), Ok(SigAction::DEFAULT));
        assert_eq!(sys.sigaction(Signal::USR1, None), Ok(first.clone()));
        assert_eq!(sys.sigaction(Signal::USR1, Some(second.clone())), Ok(first));
        assert_eq!(sys.sigaction(Signal::USR1, None), Ok(second));
        assert_eq!(sys.sigaction(Signal::USR2, None), Ok(SigAction::DEFAULT));
    })
    .and_on_linux();
}

#[test]
fn sigkill_and_sigstop_actions_are_read_only() {
    everywhere(|sys| {
        for signal in [Signal::KILL, Signal::STOP] {
            assert_eq!(sys.sigaction(signal, None), Ok(SigAction::DEFAULT));
            for action in [SigAction::DEFAULT, SigAction::IGNORE, Log::default().signals()] {
                assert_eq!(sys.sigaction(signal, Some(action)), Err(Errno::EINVAL));
            }
        }
    })
    .and_on_linux();
}

#[test]
fn handler_blocks_its_mask_and_signal_until_it_returns() {
    everywhere(|sys| {
        let during = Log::default();
        let seen = during.clone();
        let handler = SigAction::handler(move |sys, _| {
            let mask = sys.sigprocmask(None).unwrap();
            for signal in [Signal::USR1, Signal::USR2, Signal::TERM, Signal::HUP] {
                seen.note(mask.contains(signal).into());
            }
        });
        block(sys, &[Signal::HUP]);
        act(sys, Signal::USR1, handler.with_mask(SigSet::of(&[Signal::USR2, Signal::KILL])));
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(during.all(), [1, 1, 0, 1]);
        assert_eq!(sys.sigprocmask(None), Ok(SigSet::of(&[Signal::HUP])));
        let kept = sys.sigaction(Signal::USR1, None).unwrap().mask;
        assert_eq!(kept, SigSet::of(&[Signal::USR2]), "SIGKILL cannot be blocked");
    })
    .and_on_linux();
}

#[test]
fn signal_waits_for_its_own_handler_unless_nodefer() {
    everywhere(|sys| {
        for (flags, order) in
            [(ActionFlags::empty(), [1, -1, 2, -2]), (ActionFlags::NODEFER, [1, 2, -2, -1])]
        {
            assert_eq!(raise_twice(sys, Signal::USR1, flags), order);
        }
    })
    .and_on_linux();
}

#[test]
fn resethand_runs_handler_once_with_its_signal_blocked() {
    everywhere(|sys| {
        let log = Log::default();
        let seen = log.clone();
        let handler = SigAction::handler(move |sys, _| {
            let now = sys.sigaction(Signal::USR1, None).unwrap();
            seen.note((now.disposition == Disposition::Default).into());
            seen.note(sys.sigprocmask(None).unwrap().contains(Signal::USR1).into());
        });
        act(sys, Signal::USR1, handler.with_flags(ActionFlags::RESETHAND));
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(log.all(), [1, 1]);
        let end = end_as(sys, |sys| sys.raise(Signal::USR1).map_or(1, |()| 0));
        assert_eq!(end, WaitStatus::Signaled(Signal::USR1, false));
    })
    .and_on_linux();
}

#[test]
fn ignoring_a_signal_discards_pending_instances() {
    everywhere(|sys| {
        let ignored_by_default = [Signal::CHLD, Signal::URG, Signal::WINCH, Signal::CONT];
        let mut cases = vec![(Signal::USR1, SigAction::IGNORE), (Signal::RTMIN, SigAction::IGNORE)];
        cases.extend(ignored_by_default.map(|signal| (signal, SigAction::DEFAULT)));
        for (signal, nothing) in cases {
            let log = Log::default();
            act(sys, signal, log.signals());
            block(sys, &[signal]);
            kill(sys, sys.getpid(), signal);
            sys.raise(signal).unwrap();
            assert!(sys.sigpending().contains(signal));
            act(sys, signal, nothing);
            assert!(!sys.sigpending().contains(signal), "{signal}");
            act(sys, signal, log.signals());
            unblock(sys, &[signal]);
            assert_eq!(log.len(), 0);
        }
    })
    .and_on_linux();
}

#[test]
fn ignored_unblocked_signal_is_discarded() {
    everywhere(|sys| {
        act(sys, Signal::USR1, SigAction::IGNORE);
        for signal in [Signal::USR1, Signal::CHLD, Signal::URG, Signal::WINCH, Signal::CONT] {
            kill(sys, sys.getpid(), signal);
            sys.raise(signal).unwrap();
            block(sys, &[signal]);
            assert!(!sys.sigpending().contains(signal), "{signal}");
        }
    })
    .and_on_linux();
}

#[test]
fn ignored_blocked_signal_stays_pending_then_is_discarded() {
    everywhere(|sys| {
        act(sys, Signal::USR1, SigAction::IGNORE);
        for signal in [Signal::USR1, Signal::CHLD, Signal::WINCH, Signal::CONT] {
            block(sys, &[signal]);
            kill(sys, sys.getpid(), signal);
            assert!(sys.sigpending().contains(signal), "{signal}");
            unblock(sys, &[signal]);
            assert!(!sys.sigpending().contains(signal), "{signal}");
        }
    })
    .and_on_linux();
}

#[test]
fn default_actions_terminate_stop_or_ignore() {
    everywhere(|sys| {
        for signal in Signal::all() {
            let child = sys
                .fork(move |sys| {
                    sys.raise(signal).unwrap();
                    7
                })
                .unwrap();
            let change = change_of(sys, child, WaitOptions::EXITED | WaitOptions::STOPPED);
            let expected = match signal.default_action() {
                DefaultAction::Terminate => WaitStatus::Signaled(signal, false),
                DefaultAction::Core => WaitStatus::Signaled(signal, true),
                // The group that runs the rule is orphaned, so only SIGSTOP stops its members.
                DefaultAction::Stop if signal != Signal::STOP => WaitStatus::Exited(7),
                DefaultAction::Stop => WaitStatus::Stopped(signal),
                DefaultAction::Ignore | DefaultAction::Continue => WaitStatus::Exited(7),
            };
            assert_eq!(change, expected, "{signal}");
            if let WaitStatus::Stopped(_) = change {
                kill(sys, child, Signal::CONT);
                assert_eq!(end_of(sys, child), WaitStatus::Exited(7));
            }
        }
    });
}

#[test]
fn sleeping_call_restarts_only_with_restart_flag() {
    everywhere(|sys| {
        // Without the flag the child signals until it is killed, because a signal that arrives
        // before the call interrupts nothing.
        let signals = |sys: &dyn Sys, parent: Pid, restarts: bool| {
            loop {
                rest(sys);
                kill(sys, parent, Signal::USR1);
                rest(sys);
                if restarts {
                    break;
                }
            }
        };
        let ends = |sys: &dyn Sys, child: Pid, restarts: bool| {
            if !restarts {
                kill(sys, child, Signal::KILL);
            }
        };
        for (flags, expected) in [(ActionFlags::RESTART, 1), (ActionFlags::empty(), 2)] {
            let restarts = expected == 1;
            let end = end_as(sys, move |sys| {
                let parent = sys.getpid();
                act(sys, Signal::USR1, Log::default().signals().with_flags(flags));
                let child = sys
                    .fork(move |sys| {
                        signals(sys, parent, restarts);
                        0
                    })
                    .unwrap();
                let waited = sys.waitid(child.into(), WaitOptions::EXITED);
                ends(sys, child, restarts);
                match waited {
                    Ok(Some(_)) => 1,
                    Err(Errno::EINTR) => 2,
                    _ => 3,
                }
            });
            assert_eq!(end, WaitStatus::Exited(expected), "wait");
            let end = end_as(sys, move |sys| {
                let parent = sys.getpid();
                act(sys, Signal::USR1, Log::default().signals().with_flags(flags));
                let bell = Bell::new(sys);
                let child = sys
                    .fork(move |sys| {
                        signals(sys, parent, restarts);
                        bell.ring(sys);
                        0
                    })
                    .unwrap();
                let read = sys.read(bell.0, &mut [0]);
                ends(sys, child, restarts);
                match read {
                    Ok(1) => 1,
                    Err(Errno::EINTR) => 2,
                    _ => 3,
                }
            });
            assert_eq!(end, WaitStatus::Exited(expected), "read");
        }
    })
    .and_on_linux();
}

#[test]
fn waits_for_signals_or_time_never_restart() {
    everywhere(|sys| {
        let calls: [fn(&dyn Sys) -> Option<Errno>; 4] = [
            |sys| Some(sys.pause()),
            |sys| Some(sys.sigsuspend(SigSet::EMPTY)),
            |sys| sys.nanosleep(Duration::from_secs(60)).err().map(|(errno, _)| errno),
            |sys| sys.sigtimedwait(SigSet::of(&[Signal::USR2]), None).err(),
        ];
        for call in calls {
            let log = Log::default();
            act(sys, Signal::ALRM, log.signals().with_flags(ActionFlags::RESTART));
            let me = sys.getpid();
            let child = sys
                .fork(move |sys| {
                    loop {
                        rest(sys);
                        kill(sys, me, Signal::ALRM);
                    }
                })
                .unwrap();
            assert_eq!(call(sys), Some(Errno::EINTR));
            assert!(log.len() >= 1);
            act(sys, Signal::ALRM, SigAction::IGNORE);
            kill(sys, child, Signal::KILL);
            assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::KILL, false));
        }
    })
    .and_on_linux();
}

#[test]
fn handler_of_lower_unblocked_signal_finishes_last() {
    everywhere(|sys| {
        let log = Log::default();
        let both = [Signal::USR1, Signal::USR2];
        block(sys, &both);
        for signal in both {
            act(sys, signal, log.signals());
            kill(sys, sys.getpid(), signal);
        }
        unblock(sys, &both);
        assert_eq!(log.all(), [Signal::USR2.number(), Signal::USR1.number()]);
    })
    .and_on_linux();
}

#[test]
fn handler_mask_delays_the_higher_of_two_signals() {
    everywhere(|sys| {
        let log = Log::default();
        let both = [Signal::USR1, Signal::USR2];
        block(sys, &both);
        for signal in both {
            act(sys, signal, log.signals().with_mask(SigSet::of(&both)));
            kill(sys, sys.getpid(), signal);
        }
        unblock(sys, &both);
        assert_eq!(log.all(), [Signal::USR1.number(), Signal::USR2.number()]);
    })
    .and_on_linux();
}

#[test]
fn nocldstop_sends_sigchld_only_for_exits() {
    everywhere(|sys| {
        for (flags, signals) in [(ActionFlags::NOCLDSTOP, 0), (ActionFlags::empty(), 2)] {
            block(sys, &[Signal::CHLD]);
            let log = Log::default();
            act(sys, Signal::CHLD, log.signals().with_flags(flags));
            let child = sys.fork(sleep_on).unwrap();
            let mut seen = 0;
            for (signal, options) in
                [(Signal::STOP, WaitOptions::STOPPED), (Signal::CONT, WaitOptions::CONTINUED)]
            {
                kill(sys, child, signal);
                sys.waitid(child.into(), options).unwrap();
                rest(sys);
                // Linux lets `waitid` return before it generates SIGCHLD.
                let timeout = if signals == 0 { Duration::ZERO } else { Duration::from_secs(10) };
                let taken = sys.sigtimedwait(SigSet::of(&[Signal::CHLD]), Some(timeout));
                seen += taken.map_or(0, |_| 1);
            }
            assert_eq!(seen, signals);
            kill(sys, child, Signal::KILL);
            end_of(sys, child);
            assert!(sys.sigpending().contains(Signal::CHLD));
            unblock(sys, &[Signal::CHLD]);
            assert_eq!(log.len(), 1);
        }
    })
    .and_on_linux();
}

#[test]
fn ignored_sigchld_makes_wait_block_then_return_echild() {
    everywhere(|sys| {
        let bell = Bell::new(sys);
        act(sys, Signal::CHLD, SigAction::IGNORE);
        block(sys, &[Signal::CHLD]);
        let children = [1, 2].map(|n| {
            sys.fork(move |sys| {
                bell.heard(sys);
                n
            })
            .unwrap()
        });
        assert_eq!(sys.waitpid(Children::Any, WaitOptions::NOHANG), Ok(None));
        bell.ring(sys);
        bell.ring(sys);
        assert_eq!(sys.wait(), Err(Errno::ECHILD));
        for child in children {
            assert_eq!(sys.kill(child.into(), None), Err(Errno::ESRCH));
        }
        assert!(!sys.sigpending().contains(Signal::CHLD), "an ignored SIGCHLD is not sent");
    })
    .and_on_linux();
}

#[test]
fn nocldwait_leaves_no_zombie_but_sends_sigchld() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::CHLD, log.signals().with_flags(ActionFlags::NOCLDWAIT));
        block(sys, &[Signal::CHLD]);
        sys.fork(|_| 3).unwrap();
        assert_eq!(sys.wait(), Err(Errno::ECHILD));
        unblock(sys, &[Signal::CHLD]);
        assert_eq!(log.all(), [Signal::CHLD.number()]);
    })
    .and_on_linux();
}

#[test]
fn default_ignored_sigchld_leaves_zombies() {
    everywhere(|sys| {
        let child = sys.fork(|_| 3).unwrap();
        rest(sys);
        assert_eq!(end_of(sys, child), WaitStatus::Exited(3));
    })
    .and_on_linux();
}

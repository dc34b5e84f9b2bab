//! Entry and exit of handlers: the stack, the mask, the order of queued signals.

use super::harness::*;

const STACK: SigStack = SigStack { size: 65_536, on_stack: false };

/// Returns a handler that logs 1 if it runs on the alternate stack, and 0 otherwise.
fn looks_at_its_stack(log: &Log) -> SigAction {
    let log = log.clone();
    SigAction::handler(move |sys, _| log.note(sys.sigstack(None).unwrap().on_stack.into()))
}

#[test]
fn handler_uses_the_alternate_stack_only_with_onstack() {
    everywhere(|sys| {
        for (flags, stack, on_it) in [
            (ActionFlags::ONSTACK, STACK, 1),
            (ActionFlags::empty(), STACK, 0),
            (ActionFlags::ONSTACK, SigStack::default(), 0),
        ] {
            let log = Log::default();
            sys.sigstack(Some(stack)).unwrap();
            act(sys, Signal::USR1, looks_at_its_stack(&log).with_flags(flags));
            sys.raise(Signal::USR1).unwrap();
            assert_eq!(log.all(), [on_it], "{flags:?} {stack:?}");
            assert_eq!(sys.sigstack(None), Ok(stack), "the stack is still in use");
        }
    })
    .and_on_linux();
}

#[test]
fn too_small_alternate_stack_leaves_the_old_one() {
    everywhere(|sys| {
        sys.sigstack(Some(STACK)).unwrap();
        for size in [1, 64, 2047] {
            let small = SigStack { size, on_stack: false };
            assert_eq!(sys.sigstack(Some(small)), Err(Errno::ENOMEM), "{size}");
        }
        assert_eq!(sys.sigstack(None), Ok(STACK));
    })
    .and_on_linux();
}

#[test]
fn alternate_stack_in_use_cannot_be_changed() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        let handler = SigAction::handler(move |sys, _| {
            for new in [SigStack { size: 131_072, on_stack: false }, SigStack::default()] {
                noted.note((sys.sigstack(Some(new)) == Err(Errno::EPERM)).into());
            }
        });
        sys.sigstack(Some(STACK)).unwrap();
        act(sys, Signal::USR1, handler.with_flags(ActionFlags::ONSTACK));
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(log.all(), [1, 1]);
        assert_eq!(sys.sigstack(None), Ok(STACK));
    })
    .and_on_linux();
}

#[test]
fn program_after_exec_has_no_alternate_stack() {
    let with_program = |builder: Builder| {
        builder.program("looks", |sys, _| i32::from(sys.sigstack(None) == Ok(SigStack::default())))
    };
    everywhere_with(with_program, |sys| {
        let end = end_as(sys, |sys| {
            sys.sigstack(Some(STACK)).unwrap();
            let Err(errno) = sys.exec("looks", &["looks"]);
            errno.raw()
        });
        assert_eq!(end, WaitStatus::Exited(1));
    });
}

#[test]
fn handler_mask_of_all_signals_excludes_kill_and_stop() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        let handler = SigAction::handler(move |sys, _| {
            let mask = sys.sigprocmask(None).unwrap();
            noted.note(mask.contains(Signal::TERM).into());
            noted.note(mask.intersection(SigSet::UNBLOCKABLE).is_empty().into());
        });
        let everything = Signal::all().collect();
        assert!(sys.sigaction(Signal::USR1, Some(handler.with_mask(everything))).is_ok());
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(log.all(), [1, 1]);
    })
    .and_on_linux();
}

#[test]
fn refused_action_is_not_installed() {
    everywhere(|sys| {
        for signal in [Signal::KILL, Signal::STOP] {
            for action in [SigAction::IGNORE, Log::default().signals()] {
                assert_eq!(sys.sigaction(signal, Some(action)), Err(Errno::EINVAL));
                assert_eq!(sys.sigaction(signal, None), Ok(SigAction::DEFAULT));
            }
        }
        let end = end_as(sys, |sys| {
            assert!(sys.sigaction(Signal::KILL, Some(SigAction::IGNORE)).is_err());
            sys.raise(Signal::KILL).map_or(1, |()| 2)
        });
        assert_eq!(end, WaitStatus::Signaled(Signal::KILL, false));
    })
    .and_on_linux();
}

#[test]
fn handler_mask_is_the_old_mask_plus_the_action_mask() {
    everywhere(|sys| {
        for (flags, itself) in [(ActionFlags::empty(), true), (ActionFlags::NODEFER, false)] {
            let log = Log::default();
            let noted = log.clone();
            let expected = SigSet::of(&[Signal::HUP, Signal::TERM]);
            let expected = if itself { expected.with(Signal::USR1) } else { expected };
            let handler = SigAction::handler(move |sys, _| {
                noted.note((sys.sigprocmask(None) == Ok(expected)).into());
                block(sys, &[Signal::INT]);
            });
            let action = handler.with_mask(SigSet::of(&[Signal::TERM])).with_flags(flags);
            act(sys, Signal::USR1, action);
            block(sys, &[Signal::HUP]);
            sys.raise(Signal::USR1).unwrap();
            assert_eq!(log.all(), [1], "{flags:?}");
            assert_eq!(
                sys.sigprocmask(None),
                Ok(SigSet::of(&[Signal::HUP])),
                "the mask was not restored"
            );
        }
    })
    .and_on_linux();
}

#[test]
fn program_resumes_after_the_interrupting_handler() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        act(sys, Signal::USR1, SigAction::handler(move |_, _| noted.note(2)));
        log.note(1);
        sys.raise(Signal::USR1).unwrap();
        log.note(3);
        assert_eq!(log.all(), [1, 2, 3]);
    })
    .and_on_linux();
}

#[test]
fn queued_signals_run_handlers_in_order_with_values() {
    everywhere(|sys| {
        for flags in [ActionFlags::SIGINFO, ActionFlags::empty()] {
            let log = Log::default();
            let noted = log.clone();
            let handler = SigAction::handler(move |_, info| noted.note(info.value));
            act(sys, Signal::RTMIN, handler.with_flags(flags));
            block(sys, &[Signal::RTMIN]);
            for value in [5, 4, 3, 9, 3] {
                let queued = sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), value);
                assert_eq!(queued, Ok(()));
            }
            assert_eq!(log.len(), 0);
            unblock(sys, &[Signal::RTMIN]);
            assert_eq!(log.all(), [5, 4, 3, 9, 3], "{flags:?}");
        }
    })
    .and_on_linux();
}

#[test]
fn lowest_of_several_queued_signals_is_delivered_first() {
    everywhere(|sys| {
        let log = Log::default();
        let signals = [7, 0, 30, 2].map(|nth| Signal::realtime(nth).unwrap());
        let all = SigSet::of(&signals);
        sys.sigprocmask(Some((SigmaskHow::Block, all))).unwrap();
        for signal in signals {
            act(sys, signal, log.signals().with_mask(all));
            sys.sigqueue(sys.getpid(), Some(signal), 0).unwrap();
        }
        sys.sigprocmask(Some((SigmaskHow::Unblock, all))).unwrap();
        let lowest_first: Vec<_> = all.iter().map(Signal::number).collect();
        assert_eq!(log.all(), lowest_first);
    })
    .and_on_linux();
}

/// Regression: the stack overflowed in the call in which the handler signalled itself. The overflow
/// was mistaken for a bug in the system itself, and aborted the host.
#[test]
fn endlessly_recursive_handler_raises_sigsegv() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            let again = SigAction::handler(|sys, _| sys.raise(Signal::USR1).unwrap());
            act(sys, Signal::USR1, again.with_flags(ActionFlags::NODEFER));
            sys.raise(Signal::USR1).unwrap();
            0
        });
        assert_eq!(end, WaitStatus::Signaled(Signal::SEGV, true));
    });
}

//! Rules for each signal that can be caught.

use super::harness::*;

/// Returns all signals except SIGKILL and SIGSTOP.
fn each() -> impl Iterator<Item = Signal> {
    Signal::all().filter(|&signal| !SigSet::UNBLOCKABLE.contains(signal))
}

#[test]
fn each_signal_runs_its_handler_or_is_ignored() {
    everywhere(|sys| {
        for signal in each() {
            for flags in [ActionFlags::empty(), ActionFlags::SIGINFO] {
                let log = Log::default();
                act(sys, signal, log.signals().with_flags(flags));
                assert_eq!(sys.raise(signal), Ok(()));
                assert_eq!(log.all(), [signal.number()], "before raise returns");
            }
            act(sys, signal, SigAction::IGNORE);
            assert_eq!(sys.raise(signal), Ok(()));
            assert!(!sys.sigpending().contains(signal), "{signal}");
        }
    })
    .and_on_linux();
}

#[test]
fn each_signal_keeps_its_last_action_and_returns_the_previous() {
    everywhere(|sys| {
        for signal in each() {
            let mask = SigSet::EMPTY.with(signal);
            let first = Log::default().signals().with_flags(ActionFlags::NODEFER).with_mask(mask);
            let second = Log::default().signals().with_flags(ActionFlags::RESETHAND);
            act(sys, signal, first.clone());
            assert_eq!(sys.sigaction(signal, None), Ok(first.clone()), "{signal}");
            assert_eq!(
                sys.sigaction(signal, None),
                Ok(first.clone()),
                "a query changed the action"
            );
            assert_eq!(sys.sigaction(signal, Some(second.clone())), Ok(first));
            assert_eq!(sys.sigaction(signal, None), Ok(second));
        }
    })
    .and_on_linux();
}

#[test]
fn each_signal_waits_for_its_own_handler_unless_nodefer() {
    everywhere(|sys| {
        for signal in each() {
            for (flags, order) in
                [(ActionFlags::empty(), [1, -1, 2, -2]), (ActionFlags::NODEFER, [1, 2, -2, -1])]
            {
                assert_eq!(raise_twice(sys, signal, flags), order, "{signal}");
            }
        }
    })
    .and_on_linux();
}

#[test]
fn each_signal_in_a_handler_mask_waits_for_the_handler() {
    everywhere(|sys| {
        for signal in each().filter(|&signal| signal != Signal::USR1) {
            let log = Log::default();
            let noted = log.clone();
            let handler = SigAction::handler(move |sys, _| {
                sys.raise(signal).unwrap();
                noted.note(-1);
            });
            act(sys, signal, log.signals());
            act(sys, Signal::USR1, handler.with_mask(SigSet::of(&[signal])));
            sys.raise(Signal::USR1).unwrap();
            assert_eq!(log.all(), [-1, signal.number()]);
            assert_eq!(sys.sigprocmask(None), Ok(SigSet::EMPTY), "the mask was not restored");
        }
    })
    .and_on_linux();
}

#[test]
fn each_signal_keeps_its_handler_unless_resethand() {
    everywhere(|sys| {
        for signal in each() {
            for (flags, reset) in [(ActionFlags::empty(), 0), (ActionFlags::RESETHAND, 1)] {
                let log = Log::default();
                let noted = log.clone();
                let handler = SigAction::handler(move |sys, _| {
                    let now = sys.sigaction(signal, None).unwrap();
                    noted.note((now.disposition == Disposition::Default).into());
                });
                act(sys, signal, handler.with_flags(flags));
                sys.raise(signal).unwrap();
                assert_eq!(log.all(), [reset], "{signal}");
                if reset == 0 {
                    sys.raise(signal).unwrap();
                    assert_eq!(log.all(), [0, 0], "{signal}");
                }
            }
        }
    })
    .and_on_linux();
}

#[test]
fn each_blocked_signal_is_pending_until_unblocked_or_taken() {
    everywhere(|sys| {
        for signal in each() {
            let log = Log::default();
            act(sys, signal, log.signals());
            block(sys, &[signal]);
            sys.raise(signal).unwrap();
            assert_eq!((log.len(), sys.sigpending()), (0, SigSet::of(&[signal])), "{signal}");
            unblock(sys, &[signal]);
            assert_eq!((log.len(), sys.sigpending()), (1, SigSet::EMPTY), "{signal}");
            block(sys, &[signal]);
            sys.raise(signal).unwrap();
            assert_eq!(sys.sigwait(SigSet::of(&[signal])), Ok(signal));
            unblock(sys, &[signal]);
            assert_eq!((log.len(), sys.sigpending()), (1, SigSet::EMPTY), "{signal}");
        }
    })
    .and_on_linux();
}

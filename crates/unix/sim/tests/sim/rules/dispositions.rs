//! A process's reaction to signals: `sigaction`, its flags, and handlers.

use super::harness::*;

#[test]
fn default_actions_terminate_stop_or_ignore() {
    everywhere(|sys| {
        for signal in Signal::all() {
            let child = forked(sys, move |sys| {
                sys.raise(signal).unwrap();
                7
            });
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
        let tkill = code(SigCode::Tkill);
        assert_eq!(log.all(), [1, 1, tkill, 1, 1, tkill]);
    })
    .and_on_linux();
}

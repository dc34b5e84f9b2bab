//! Signals that a thread's own execution causes (§3.1).

use super::harness::*;

#[test]
fn fault_without_unblocked_handler_is_fatal() {
    everywhere(|sys| {
        for signal in FAULTS.iter() {
            // The standard library installs handlers for some of these signals.
            let actions = [SigAction::DEFAULT, SigAction::IGNORE, Log::default().signals()];
            for action in actions {
                let end = end_as(sys, move |sys| {
                    if matches!(action.disposition, Disposition::Handler(_)) {
                        block(sys, &[signal]);
                    }
                    act(sys, signal, action);
                    sys.fault(signal).map_or(1, |()| 2)
                });
                assert_eq!(end.signaled(), Some(signal));
            }
        }
    })
    .and_on_linux();
}

#[test]
fn fault_with_another_signal_returns_einval() {
    everywhere(|sys| {
        for signal in Signal::all().filter(|&signal| !FAULTS.contains(signal)) {
            assert_eq!(sys.fault(signal), Err(Errno::EINVAL), "{signal}");
        }
    })
    .and_on_linux();
}

//! Signals that a thread's own execution causes (§3.1).

use super::harness::*;

#[test]
fn fault_is_handled_by_the_thread_that_caused_it() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        let handler = SigAction::handler(move |sys, info| {
            noted.note(sys.gettid().0);
            noted.note(code(info.code));
        });
        act(sys, Signal::SEGV, handler);
        let thread = sys.thread(|sys| sys.fault(Signal::SEGV).unwrap()).unwrap();
        sys.join(thread).unwrap();
        assert_eq!(log.all(), [thread.0, code(SigCode::Fault)]);
    })
    .and_on_linux();
}

#[test]
fn fault_without_handler_is_fatal() {
    everywhere(|sys| {
        for signal in FAULTS.iter() {
            let end = end_as(sys, move |sys| {
                // The standard library installs handlers for some of these signals.
                act(sys, signal, SigAction::DEFAULT);
                sys.fault(signal).map_or(1, |()| 2)
            });
            assert_eq!(end.signaled(), Some(signal));
        }
    })
    .and_on_linux();
}

#[test]
fn blocked_or_ignored_fault_is_still_fatal() {
    everywhere(|sys| {
        for signal in FAULTS.iter() {
            let end = end_as(sys, move |sys| {
                act(sys, signal, Log::default().signals());
                block(sys, &[signal]);
                sys.fault(signal).map_or(1, |()| 2)
            });
            assert_eq!(end.signaled(), Some(signal), "blocked");
            let end = end_as(sys, move |sys| {
                act(sys, signal, SigAction::IGNORE);
                sys.fault(signal).map_or(1, |()| 2)
            });
            assert_eq!(end.signaled(), Some(signal), "ignored");
        }
    })
    .and_on_linux();
}

#[test]
fn fault_in_its_own_handler_is_fatal() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            let again = SigAction::handler(|sys, _| sys.fault(Signal::SEGV).unwrap());
            act(sys, Signal::SEGV, again);
            sys.fault(Signal::SEGV).map_or(1, |()| 2)
        });
        assert_eq!(end.signaled(), Some(Signal::SEGV));
    })
    .and_on_linux();
}

#[test]
fn fault_in_one_thread_kills_process() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            sys.thread(|sys| sys.fault(Signal::FPE).unwrap()).unwrap();
            sleep_on(sys)
        });
        assert_eq!(end.signaled(), Some(Signal::FPE));
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

//! Signals that `sigtimedwait` takes or does not take.

use super::harness::*;

#[test]
fn stop_ends_sigtimedwait_with_eintr_like_linux() {
    everywhere(|sys| {
        let child = forked(sys, |sys| {
            block(sys, &[Signal::USR1]);
            match sys.sigtimedwait(SigSet::of(&[Signal::USR1]), None) {
                Ok(_) => 1,
                Err(Errno::EINTR) => 2,
                _ => 3,
            }
        });
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

/// Returns a child that sends its parent a signal repeatedly until it is killed.
fn pester(sys: &dyn Sys, signal: Signal) -> Pid {
    let parent = sys.getpid();
    forked(sys, move |sys| {
        loop {
            rest(sys);
            kill(sys, parent, signal);
        }
    })
}

/// Kills a child whose signals may still arrive.
fn silence(sys: &dyn Sys, child: Pid) {
    kill(sys, child, Signal::KILL);
    while sys.waitpid(child.into(), WaitOptions::empty()) == Err(Errno::EINTR) {}
}

#[test]
fn sigtimedwait_reports_sender_of_blocked_or_unblocked_signal() {
    everywhere(|sys| {
        let (log, set) = (Log::default(), SigSet::of(&[Signal::USR1]));
        for blocked in [false, true] {
            // An unblocked signal may arrive before the wait, and then its handler runs.
            act(sys, Signal::USR1, SigAction::handler(|_, _| {}));
            if blocked {
                act(sys, Signal::USR1, log.signals());
                block(sys, &[Signal::USR1]);
            }
            let mask = sys.sigprocmask(None).unwrap();
            let child = pester(sys, Signal::USR1);
            let info = sys.sigtimedwait(set, None).unwrap();
            assert_eq!((info.signal, info.code), (Signal::USR1, SigCode::User));
            assert_eq!((info.pid, info.uid), (child.number(), sys.getuid()));
            assert_eq!(sys.sigwait(set), Ok(Signal::USR1), "sigwait without information");
            assert_eq!(sys.sigprocmask(None), Ok(mask));
            silence(sys, child);
            let _ = sys.sigtimedwait(set, Some(Duration::ZERO));
        }
        assert_eq!(log.len(), 0);
    })
    .and_on_linux();
}

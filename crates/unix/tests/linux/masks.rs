//! Masks, and waiting for signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tontine_unix::{Errno, SigAction, SigCode, SigSet, SigmaskHow, Signal, Sys, WaitStatus};

use crate::scene::{end, play};

const USR1: SigSet = SigSet::of(&[Signal::USR1]);

/// Installs a handler that counts signals; returns its counter.
fn count(sys: &dyn Sys, signal: Signal) -> Arc<AtomicU32> {
    let times = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&times);
    let action = SigAction::handler(move |_, _| {
        counted.fetch_add(1, Relaxed);
    });
    sys.sigaction(signal, Some(action)).unwrap();
    times
}

/// Sets an alarm of one second whose handler sets it again, so that a call is interrupted even if
/// the first alarm expires before the call; returns the counter of the alarms.
fn repeat_alarm(sys: &dyn Sys) -> Arc<AtomicU32> {
    let times = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&times);
    let action = SigAction::handler(move |sys, _| {
        counted.fetch_add(1, Relaxed);
        sys.alarm(1);
    });
    sys.sigaction(Signal::ALRM, Some(action)).unwrap();
    sys.alarm(1);
    times
}

#[test]
fn blocked_signal_is_pending_until_unblocked() {
    play(|sys| {
        let times = count(sys, Signal::USR1);
        assert_eq!(sys.sigprocmask(Some((SigmaskHow::Block, USR1))), Ok(SigSet::EMPTY));
        sys.raise(Signal::USR1).unwrap();
        assert_eq!((sys.sigpending(), times.load(Relaxed)), (USR1, 0));
        assert_eq!(sys.sigprocmask(Some((SigmaskHow::Unblock, USR1))), Ok(USR1));
        assert_eq!((sys.sigpending(), times.load(Relaxed)), (SigSet::EMPTY, 1));
    });
}

#[test]
fn sigsuspend_unblocks_and_restores_the_mask() {
    play(|sys| {
        let times = count(sys, Signal::USR1);
        sys.sigprocmask(Some((SigmaskHow::Set, USR1))).unwrap();
        for round in 1..=10 {
            sys.raise(Signal::USR1).unwrap();
            assert_eq!(sys.sigsuspend(SigSet::EMPTY), Errno::EINTR);
            assert_eq!(times.load(Relaxed), round);
            assert_eq!(sys.sigprocmask(None), Ok(USR1));
        }
    });
}

#[test]
fn sigtimedwait_takes_lowest_first_and_each_number_in_order() {
    play(|sys| {
        let (low, high) = (Signal::RTMIN, Signal::RTMAX);
        let set = SigSet::of(&[low, high, Signal::USR1]);
        sys.sigprocmask(Some((SigmaskHow::Block, set))).unwrap();
        let me = sys.getpid();
        for (signal, value) in [(high, 1), (low, 2), (high, 3), (low, 4)] {
            sys.sigqueue(me, Some(signal), value).unwrap();
        }
        sys.raise(Signal::USR1).unwrap();
        let taken: Vec<_> = (0..5)
            .map(|_| sys.sigtimedwait(set, None).unwrap())
            .map(|info| (info.signal, info.value, info.code))
            .collect();
        let queued = |signal, value| (signal, value, SigCode::Queue);
        let first = (Signal::USR1, 0, SigCode::Tkill);
        let rest = [queued(low, 2), queued(low, 4), queued(high, 1), queued(high, 3)];
        assert_eq!((taken[0], &taken[1..]), (first, &rest[..]));
        assert_eq!(sys.sigtimedwait(set, Some(Duration::ZERO)), Err(Errno::EAGAIN));
        let soon = Some(Duration::from_millis(5));
        assert_eq!(sys.sigtimedwait(set, soon), Err(Errno::EAGAIN));
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(
            sys.sigtimedwait(set, Some(Duration::MAX)).map(|info| info.signal),
            Ok(Signal::USR1)
        );
    });
}

#[test]
fn sigtimedwait_is_interrupted_by_another_handler() {
    play(|sys| {
        repeat_alarm(sys);
        sys.sigprocmask(Some((SigmaskHow::Block, USR1))).unwrap();
        assert_eq!(sys.sigtimedwait(USR1, None), Err(Errno::EINTR));
    });
}

#[test]
fn alarm_returns_remaining_time_of_previous_alarm() {
    play(|sys| {
        sys.alarm(0);
        assert_eq!(sys.alarm(100), 0);
        assert!((90..=100).contains(&sys.alarm(50)));
        assert!((40..=50).contains(&sys.alarm(0)));
        assert_eq!(sys.alarm(0), 0);
    });
}

#[test]
fn sleep_interrupted_by_a_handler_returns_the_remaining_time() {
    play(|sys| {
        repeat_alarm(sys);
        let start = sys.now();
        let (error, left) = sys.nanosleep(Duration::from_secs(1000)).unwrap_err();
        let slept = sys.now() - start;
        sys.alarm(0);
        assert_eq!(error, Errno::EINTR);
        assert!(left < Duration::from_secs(1000) && left + slept >= Duration::from_secs(1000));
        assert_eq!(sys.nanosleep(Duration::from_millis(1)), Ok(()));
    });
}

#[test]
fn pause_returns_after_a_handler() {
    play(|sys| {
        let times = repeat_alarm(sys);
        assert_eq!(sys.pause(), Errno::EINTR);
        assert!(times.load(Relaxed) > 0);
    });
}

#[test]
fn mask_is_per_thread_and_inherited_by_children() {
    play(|sys| {
        sys.sigprocmask(Some((SigmaskHow::Set, USR1))).unwrap();
        let inherited = Arc::new(AtomicU32::new(0));
        let thread = {
            let inherited = Arc::clone(&inherited);
            sys.thread(move |sys| {
                let before =
                    sys.sigprocmask(Some((SigmaskHow::Set, SigSet::EMPTY))).unwrap_or_default();
                inherited.store(before.bits() as u32, Relaxed);
            })
        };
        sys.join(thread.unwrap()).unwrap();
        assert_eq!(u64::from(inherited.load(Relaxed)), USR1.bits());
        assert_eq!(sys.sigprocmask(None), Ok(USR1));
        let child = sys.fork(|sys| i32::from(sys.sigprocmask(None) == Ok(USR1)));
        assert_eq!(end(sys, child.unwrap()), WaitStatus::Exited(1));
    });
}

#[test]
fn sigkill_and_sigstop_cannot_be_blocked() {
    play(|sys| {
        sys.sigprocmask(Some((SigmaskHow::Set, SigSet::ALL))).unwrap();
        let mask = sys.sigprocmask(None).unwrap();
        assert!(mask.intersection(SigSet::UNBLOCKABLE).is_empty() && mask.contains(Signal::TERM));
    });
}

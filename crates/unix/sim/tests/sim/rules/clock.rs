//! `alarm`, `nanosleep`, `profil` and the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::harness::*;

#[test]
fn interrupted_nanosleep_returns_the_remaining_time() {
    timed(|sys| {
        repeat_alarm(sys, |action| action);
        let (errno, left) = sys.nanosleep(Duration::from_secs(1000)).unwrap_err();
        assert_eq!(errno, Errno::EINTR);
        assert!(left > Duration::from_secs(900) && left < Duration::from_secs(1000), "{left:?}");
    })
    .and_on_linux();
}

#[test]
fn simulated_clock_advances_when_all_threads_sleep() {
    let unix = Virtual::builder().executor(Executor::Simulated { seed: 5 }).build().unwrap();
    let report = unix.run(|sys| {
        sys.nanosleep(Duration::from_secs(100_000)).unwrap();
        0
    });
    assert!(report.elapsed >= Duration::from_secs(100_000));
}

#[test]
fn tick_counts_at_the_mark_current_on_arrival() {
    for mode in LockingMode::ALL {
        for seed in 0..20 {
            let executor = Executor::Simulated { seed };
            let unix = Virtual::builder().mode(mode).executor(executor).build().unwrap();
            let report = unix.run(|sys| {
                let counts: Arc<[AtomicU32]> = (0..4).map(|_| AtomicU32::new(0)).collect();
                let count = |mark: usize| counts[mark].load(Ordering::Relaxed);
                // Ticks that arrive before the profile starts are not counted.
                while sys.getrusage() == Usage::default() {
                    sys.poll();
                }
                sys.mark(3);
                sys.profil(Some(counts.clone())).unwrap();
                // With the simulated executor, ticks arrive only in calls.
                while count(1) < 5 {
                    sys.mark(1);
                    sys.poll();
                    sys.mark(2);
                }
                assert_eq!(count(2), 0, "no call was made at this mark");
                let ticks = |used: Usage| ((used.user + used.system).as_millis() / 10) as u32;
                assert!(count(1) + count(3) <= ticks(sys.getrusage()));
                sys.profil(None).unwrap();
                let at_the_end = count(2);
                (0..1000).for_each(|_| sys.poll());
                i32::from(count(2) != at_the_end)
            });
            assert_eq!(report.status, Some(WaitStatus::Exited(0)), "{mode}, seed {seed}");
        }
    }
}

#[test]
fn handler_ends_endless_sleep_and_signal_ends_endless_wait() {
    timed(|sys| {
        repeat_alarm(sys, |action| action);
        let (errno, left) = sys.nanosleep(Duration::MAX).unwrap_err();
        assert_eq!(errno, Errno::EINTR);
        assert!(left > Duration::from_secs(1_000_000_000), "{left:?}");
        block(sys, &[Signal::ALRM]);
        sys.alarm(1);
        let taken = sys.sigtimedwait(SigSet::of(&[Signal::ALRM]), Some(Duration::MAX));
        assert_eq!(taken.map(|info| info.signal), Ok(Signal::ALRM));
    })
    .and_on_linux();
}

#[test]
fn endless_sleep_without_signals_deadlocks() {
    for mode in LockingMode::ALL {
        let builder = Virtual::builder().mode(mode).executor(Executor::Simulated { seed: 5 });
        let report = builder.build().unwrap().run(|sys| {
            let _ = sys.nanosleep(Duration::MAX);
            0
        });
        assert_eq!((report.ending, report.status), (EndReason::Deadlocked, None), "in mode {mode}");
    }
}

#[test]
fn alarm_reaches_a_computing_program() {
    in_real_time(|sys| {
        let log = Log::default();
        act(sys, Signal::ALRM, log.signals());
        sys.alarm(1);
        while log.len() == 0 {
            sys.poll();
        }
        assert_eq!(log.len(), 1);
    })
    .and_on_linux();
}

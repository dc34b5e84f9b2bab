//! `alarm`, `nanosleep`, `profil` and the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::harness::*;

#[test]
fn alarm_returns_the_remaining_time_and_zero_cancels() {
    everywhere(|sys| {
        assert_eq!(sys.alarm(1000), 0);
        assert!((900..=1000).contains(&sys.alarm(2000)));
        assert!((1900..=2000).contains(&sys.alarm(0)));
        assert_eq!(sys.alarm(0), 0);
    })
    .and_on_linux();
}

#[test]
fn alarm_sends_sigalrm_when_it_expires() {
    everywhere(|sys| {
        block(sys, &[Signal::ALRM]);
        let before = sys.now();
        sys.alarm(1);
        let info = sys.sigtimedwait(SigSet::of(&[Signal::ALRM]), None).unwrap();
        assert_eq!((info.signal, info.code), (Signal::ALRM, SigCode::Kernel));
        assert!(sys.now() - before >= Duration::from_secs(1));
        assert_eq!(sys.alarm(0), 0, "the alarm rang more than once");
    })
    .and_on_linux();
}

#[test]
fn alarm_set_twice_expires_once_at_the_later_time() {
    timed(|sys| {
        let log = Log::default();
        act(sys, Signal::ALRM, log.signals());
        block(sys, &[Signal::ALRM]);
        let before = loop {
            sys.alarm(1);
            let before = sys.now();
            if sys.alarm(2) > 0 {
                break before;
            }
            // On a busy machine, the first alarm may expire before the second replaces it.
            drain(sys, SigSet::of(&[Signal::ALRM]));
        };
        assert_eq!(sys.sigsuspend(SigSet::EMPTY), Errno::EINTR);
        assert!(sys.now() - before >= Duration::from_millis(1900));
        assert_eq!(log.len(), 1);
        assert_eq!(sys.alarm(0), 0);
    })
    .and_on_linux();
}

#[test]
fn alarm_default_action_is_fatal() {
    timed(|sys| {
        let end = end_as(sys, |sys| {
            sys.alarm(1);
            sleep_on(sys)
        });
        assert_eq!(end, WaitStatus::Signaled(Signal::ALRM, false));
    })
    .and_on_linux();
}

#[test]
fn nanosleep_sleeps_at_least_the_requested_time() {
    everywhere(|sys| {
        for length in [Duration::ZERO, MOMENT, 3 * MOMENT] {
            let before = sys.now();
            assert_eq!(sys.nanosleep(length), Ok(()));
            assert!(sys.now() - before >= length);
        }
    })
    .and_on_linux();
}

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
fn stop_neither_lengthens_nor_ends_a_sleep() {
    everywhere(|sys| {
        let change = loop {
            let child = sys
                .fork(|sys| {
                    let before = sys.now();
                    let slept = sys.nanosleep(20 * MOMENT);
                    i32::from(slept == Ok(()) && sys.now() - before >= 20 * MOMENT)
                })
                .unwrap();
            rest(sys);
            kill(sys, child, Signal::STOP);
            let change = change_of(sys, child, WaitOptions::STOPPED | WaitOptions::EXITED);
            if change == WaitStatus::Stopped(Signal::STOP) {
                kill(sys, child, Signal::CONT);
                break end_of(sys, child);
            }
            // On a busy machine, the sleep may end before the stop.
            assert_eq!(change, WaitStatus::Exited(1));
        };
        assert_eq!(change, WaitStatus::Exited(1));
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
fn profile_counts_every_tick_of_its_thread() {
    everywhere(|sys| {
        let counts: Arc<[AtomicU32]> = (0..2).map(|_| AtomicU32::new(0)).collect();
        sys.profil(Some(counts.clone())).unwrap();
        while counts[1].load(Ordering::Relaxed) < 3 {
            sys.mark(1);
            sys.poll();
        }
        let used = sys.getrusage();
        let counted: u32 = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        assert!((used.user + used.system).as_millis() >= 10 * u128::from(counted));
        sys.profil(None).unwrap();
    });
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

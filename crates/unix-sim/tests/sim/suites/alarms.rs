//! Alarms: the interrupted calls, the signalled process and thread, and the remaining time.

use super::seconds::{in_computed_seconds, in_seconds};
use crate::rules::harness::*;

#[test]
fn alarm_signals_only_its_own_process() {
    in_seconds(|sys| {
        let log = Log::default();
        let noted = log.clone();
        let handler = SigAction::handler(move |sys, _| noted.note(sys.getpid().number()));
        act(sys, Signal::ALRM, handler);
        sys.alarm(100);
        let seen = log.clone();
        let child = sys
            .fork(move |sys| {
                assert_eq!(sys.alarm(1), 0, "the parent's alarm is not inherited");
                assert_eq!(sys.pause(), Errno::EINTR);
                i32::from(seen.all() == [sys.getpid().number()])
            })
            .unwrap();
        assert_eq!(end_of(sys, child), WaitStatus::Exited(1));
        assert!(!log.all().contains(&sys.getpid().number()));
        assert!(sys.alarm(0) > 90);
    });
}

#[test]
fn alarm_interrupts_or_restarts_a_read() {
    in_seconds(|sys| {
        for flags in [ActionFlags::empty(), ActionFlags::RESTART] {
            let log = Log::default();
            act(sys, Signal::ALRM, log.signals().with_flags(flags));
            let bell = Bell::new(sys);
            sys.alarm(1);
            let rung = log.clone();
            // The read restarts, so another thread must end it.
            let other = sys
                .thread(move |sys| {
                    block(sys, &[Signal::ALRM]);
                    while rung.len() == 0 {
                        rest(sys);
                    }
                    rest(sys);
                    bell.ring(sys);
                })
                .unwrap();
            let expected = if flags.is_empty() { Err(Errno::EINTR) } else { Ok(1) };
            assert_eq!(sys.read(bell.0, &mut [0]), expected);
            sys.join(other).unwrap();
            assert_eq!(log.len(), 1);
        }
    });
}

#[test]
fn alarm_interrupts_pause_with_any_handler_flags() {
    in_seconds(|sys| {
        for flags in [ActionFlags::SIGINFO, ActionFlags::empty()] {
            let log = Log::default();
            act(sys, Signal::ALRM, log.signals().with_flags(flags).with_mask(SigSet::ALL));
            sys.alarm(1);
            assert_eq!(sys.pause(), Errno::EINTR);
            assert_eq!(log.all(), [Signal::ALRM.number()]);
        }
    });
}

#[test]
fn alarm_ends_sigsuspend_and_the_mask_is_restored() {
    in_seconds(|sys| {
        let log = Log::default();
        act(sys, Signal::ALRM, log.signals());
        block(sys, &[Signal::USR1, Signal::ALRM]);
        let before = sys.sigprocmask(None);
        sys.alarm(1);
        assert_eq!(sys.sigsuspend(SigSet::EMPTY), Errno::EINTR);
        assert_eq!(log.len(), 1);
        assert_eq!(sys.sigprocmask(None), before);
    });
}

#[test]
fn alarm_reaches_a_computing_program() {
    in_computed_seconds(|sys| {
        let log = Log::default();
        act(sys, Signal::ALRM, log.signals());
        sys.alarm(1);
        while log.len() == 0 {
            sys.poll();
        }
        assert_eq!(log.len(), 1);
    });
}

#[test]
fn remaining_time_of_an_alarm_decreases() {
    in_seconds(|sys| {
        sys.alarm(10);
        sys.nanosleep(Duration::from_millis(1100)).unwrap();
        let left = sys.alarm(0);
        assert!((1..=9).contains(&left), "{left}");
    });
}

#[test]
fn alarm_signals_first_thread_unless_it_blocks_sigalrm() {
    in_seconds(|sys| {
        for blocked in [false, true] {
            let log = Log::default();
            let noted = log.clone();
            let handler = SigAction::handler(move |sys, _| noted.note(sys.gettid().0));
            act(sys, Signal::ALRM, handler);
            let others = [0; 2].map(|_| {
                let log = log.clone();
                sys.thread(move |sys| {
                    while log.len() == 0 {
                        rest(sys);
                    }
                })
                .unwrap()
            });
            if blocked {
                block(sys, &[Signal::ALRM]);
            }
            sys.alarm(1);
            while log.len() == 0 {
                rest(sys);
            }
            for other in others {
                sys.join(other).unwrap();
            }
            let who = log.all();
            assert_eq!(who.len(), 1);
            assert_eq!(who[0] != sys.gettid().0, blocked);
        }
    });
}

#[test]
fn longest_alarms_are_returned_unchanged() {
    everywhere(|sys| {
        for seconds in [i32::MAX as u32, u32::MAX / 2, u32::MAX / 4] {
            assert_eq!(sys.alarm(seconds), 0);
            assert_eq!(sys.alarm(0), seconds);
        }
    })
    .and_on_linux();
}

#[test]
fn cancelled_alarm_never_expires() {
    in_seconds(|sys| {
        let log = Log::default();
        act(sys, Signal::ALRM, log.signals());
        sys.alarm(1);
        assert_eq!(sys.alarm(0), 1);
        sys.nanosleep(Duration::from_millis(1100)).unwrap();
        assert_eq!(log.len(), 0);
    });
}

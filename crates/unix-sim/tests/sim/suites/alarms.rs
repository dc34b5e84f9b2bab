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
        sys.alarm(1000);
        let seen = log.clone();
        let child = sys
            .fork(move |sys| {
                block(sys, &[Signal::ALRM]);
                assert_eq!(sys.alarm(1), 0, "the parent's alarm is not inherited");
                assert_eq!(sys.sigsuspend(SigSet::EMPTY), Errno::EINTR);
                i32::from(seen.all() == [sys.getpid().number()])
            })
            .unwrap();
        assert_eq!(end_of(sys, child), WaitStatus::Exited(1));
        assert!(!log.all().contains(&sys.getpid().number()));
        assert!(sys.alarm(0) > 900);
    });
}

#[test]
fn alarm_interrupts_or_restarts_a_read() {
    in_seconds(|sys| {
        let bell = Bell::new(sys);
        repeat_alarm(sys, |action| action);
        assert_eq!(sys.read(bell.0, &mut [0]), Err(Errno::EINTR));
        sys.alarm(0);
        let log = Log::default();
        act(sys, Signal::ALRM, log.signals().with_flags(ActionFlags::RESTART));
        block(sys, &[Signal::ALRM]);
        let rung = log.clone();
        // The read restarts, so another thread must end it.
        let other = sys
            .thread(move |sys| {
                while rung.len() == 0 {
                    rest(sys);
                }
                rest(sys);
                bell.ring(sys);
            })
            .unwrap();
        unblock(sys, &[Signal::ALRM]);
        sys.alarm(1);
        assert_eq!(sys.read(bell.0, &mut [0]), Ok(1));
        sys.join(other).unwrap();
        assert_eq!(log.len(), 1);
    });
}

#[test]
fn alarm_interrupts_pause_with_any_handler_flags() {
    in_seconds(|sys| {
        for flags in [ActionFlags::SIGINFO, ActionFlags::empty()] {
            let log = repeat_alarm(sys, |action| action.with_flags(flags).with_mask(SigSet::ALL));
            assert_eq!(sys.pause(), Errno::EINTR);
            assert!(log.len() > 0);
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
        sys.alarm(1000);
        sys.nanosleep(Duration::from_millis(1100)).unwrap();
        let left = sys.alarm(0);
        assert!((900..1000).contains(&left), "{left}");
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
            // Less only if the machine is busy.
            assert!((seconds - 100..=seconds).contains(&sys.alarm(0)), "{seconds}");
        }
    })
    .and_on_linux();
}

#[test]
fn cancelled_alarm_never_expires() {
    in_seconds(|sys| {
        let log = Log::default();
        act(sys, Signal::ALRM, log.signals());
        block(sys, &[Signal::ALRM]);
        loop {
            sys.alarm(1);
            if sys.alarm(0) == 1 {
                break;
            }
            // On a busy machine, the alarm may expire before it is cancelled.
            drain(sys, SigSet::of(&[Signal::ALRM]));
        }
        unblock(sys, &[Signal::ALRM]);
        sys.nanosleep(Duration::from_millis(1100)).unwrap();
        assert_eq!(log.len(), 0);
    });
}

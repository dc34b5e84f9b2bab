//! Signals to a process that is about to sleep, and to a process that is about to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use tontine_unix::{Pid, SigAction, SigSet, SigmaskHow, Signal, SignalTarget, Sys};

use crate::children::{await_set, end_of, forked, send, threaded};
use crate::races::explore::{Race, holds};

/// `sigsuspend` admits a signal that arrives as it falls asleep.
#[test]
fn signal_during_sigsuspend_wakes_it() {
    holds(|sys| {
        let user = SigSet::of(&[Signal::USR1]);
        sys.sigprocmask(Some((SigmaskHow::Block, user))).expect("permitted");
        sys.sigaction(Signal::USR1, Some(SigAction::handler(|_, _| {}))).expect("permitted");
        let me = sys.getpid();
        let child =
            forked(sys, move |sys| i32::from(sys.kill(me.into(), Some(Signal::USR1)).is_err()));
        sys.sigsuspend(SigSet::EMPTY);
        let unchanged = sys.sigprocmask(None) == Ok(user);
        let waited = sys.waitpid(child.into(), Default::default());
        i32::from(!unchanged || waited.is_err())
    });
}

/// Repeatedly signals `target`, which names the child `victim`, while the child is reaped and
/// another process is created in its slot. Returns 1 if the signal terminated that other process.
fn signal_as_it_is_replaced(sys: &dyn Sys, victim: Pid, target: SignalTarget) -> i32 {
    let over = Arc::new(AtomicBool::new(false));
    let seen = over.clone();
    let killer = forked(sys, move |sys| {
        while !seen.load(Ordering::Relaxed) {
            let _ = sys.kill(target, Some(Signal::TERM));
        }
        0
    });
    end_of(sys, victim);
    let stranger = forked(sys, |sys| {
        (0..30).for_each(|_| sys.sched_yield());
        0
    });
    let stranger = sys.waitpid(stranger.into(), Default::default());
    over.store(true, Ordering::Relaxed);
    end_of(sys, killer);
    let status = stranger.expect("a child of the caller").expect("the wait blocks").status;
    i32::from(status.exited() != Some(0))
}

/// A process ends and is reaped, and another process is created in its slot, while the first
/// process is being signalled.
#[test]
fn signal_never_reaches_the_next_process_in_the_slot() {
    holds(|sys| {
        let victim = forked(sys, |_| 0);
        signal_as_it_is_replaced(sys, victim, victim.into())
    });
}

/// Like the race above, but the group of the first process is signalled.
#[test]
#[ignore = "exhausts the process table"]
fn group_signal_never_reaches_the_next_process_in_the_slot() {
    holds(|sys| {
        let own = Pid::number_only(0);
        let ready = Arc::new(AtomicI32::new(0));
        let leads = ready.clone();
        let victim = forked(sys, move |sys| {
            sys.setpgid(own, own).expect("permitted");
            leads.store(1, Ordering::Relaxed);
            (0..5).for_each(|_| sys.sched_yield());
            0
        });
        while ready.load(Ordering::Relaxed) == 0 {
            sys.sched_yield();
        }
        signal_as_it_is_replaced(sys, victim, SignalTarget::Group(victim))
    });
}

/// An alarm expires as its process ends, and another process occupies the slot when the signal
/// thread handles the alarm.
#[test]
fn alarm_never_reaches_the_next_process_in_the_slot() {
    let race = Race::of(|sys| {
        let second = Duration::from_secs(1);
        let victim = forked(sys, move |sys| {
            let start = sys.now();
            let alarm = SigSet::of(&[Signal::ALRM]);
            sys.sigprocmask(Some((SigmaskHow::Block, alarm))).expect("permitted");
            sys.alarm(1);
            let shortly = start + second - Duration::from_micros(3) - sys.now();
            let _ = sys.nanosleep(shortly);
            0
        });
        end_of(sys, victim);
        let stranger = sys.fork(|sys| {
            (0..30).for_each(|_| sys.sched_yield());
            0
        });
        let stranger = sys.waitpid(stranger.expect("within the limits").into(), Default::default());
        let status = stranger.expect("a child of the caller").expect("the wait blocks").status;
        i32::from(status.exited() != Some(0))
    });
    Race { parallel: 0, ..race }.holds();
}

/// A process is stopped and continued, and then sent a fatal signal. The process does not stay
/// stopped.
#[test]
fn sigcont_cancels_a_stop_signal_already_taken() {
    holds(|sys| {
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let child = forked(sys, move |sys| {
            await_set(sys, &seen);
            0
        });
        send(sys, child, Signal::STOP);
        (0..2).for_each(|_| sys.sched_yield());
        send(sys, child, Signal::CONT);
        over.store(true, Ordering::Relaxed);
        end_of(sys, child).exited().unwrap_or(1)
    });
}

/// A thread waits for two signals, another thread only for the second, which arrives first. The
/// kernel chooses the first thread for both signals, and that thread takes the lower one.
#[test]
fn two_waiters_each_take_one_of_two_signals() {
    holds(|sys| {
        let higher = Signal::realtime(1).expect("a real-time signal");
        let (both, one) = (SigSet::of(&[Signal::RTMIN, higher]), SigSet::of(&[higher]));
        sys.sigprocmask(Some((SigmaskHow::Block, both))).expect("permitted");
        let taken = Arc::new(AtomicI32::new(0));
        let threads = [both, one].map(|awaited| {
            let taken = Arc::clone(&taken);
            let waits = move |sys: &dyn Sys| {
                let had = sys.sigtimedwait(awaited, None).expect("a signal arrives").signal;
                if had == higher && awaited == both {
                    // Only the second signal arrived, and the other thread still waits for a
                    // signal.
                    sys.kill(sys.getpid().into(), Some(had)).expect("the caller exists");
                }
                taken.fetch_add(1, Ordering::Relaxed);
                // A thread that ends notifies the other threads of the signals that it leaves
                // pending.
                while taken.load(Ordering::Relaxed) < 2 {
                    sys.sched_yield();
                }
            };
            threaded(sys, waits)
        });
        (0..3).for_each(|_| sys.sched_yield());
        for signal in [higher, Signal::RTMIN] {
            sys.kill(sys.getpid().into(), Some(signal)).expect("the caller exists");
        }
        threads.into_iter().for_each(|thread| sys.join(thread).expect("a thread of the caller"));
        0
    });
}

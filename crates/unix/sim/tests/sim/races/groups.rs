//! `killpg` against `fork` and `setpgid` (§5.1), and two concurrent calls of `setpgid`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tontine_unix::{Errno, Pid, SigSet, SigmaskHow, Signal, SignalTarget, Sys, WaitOptions};
use tontine_unix_sim::Delivery;

use crate::children::{await_set, end_of, forked, pauses, threaded};
use crate::races::explore::{Race, holds};

const OWN: Pid = Pid::number_only(0);

/// A process forks while its group is signalled. Either the child is a member before the walk, or
/// it is never created, because its fork would complete only after the signal is delivered. The
/// scene also has a scheduling point before the call, so that the race exists in every mode.
#[test]
fn child_forked_during_killpg_does_not_escape_it() {
    holds(|sys| {
        sys.set_subreaper(true).expect("permitted");
        let forker = forked(sys, |sys| {
            sys.setpgid(OWN, OWN).expect("permitted");
            loop {
                let child = sys.fork(pauses);
                if child == Err(Errno::EAGAIN) {
                    sys.pause();
                }
            }
        });
        while sys.kill(SignalTarget::Group(forker), Some(Signal::TERM)) == Err(Errno::ESRCH) {
            sys.sched_yield();
        }
        all_end_of(sys, Signal::TERM)
    });
}

/// Like the race above, but the first thread of the program sleeps while a second thread
/// forks. The sleeping thread receives the signal, and the fork of the other thread must detect it.
fn killpg_during_fork_of_a_thread(sys: &dyn Sys, signal: Signal) -> i32 {
    sys.set_subreaper(true).expect("permitted");
    let forker = forked(sys, |sys| {
        sys.setpgid(OWN, OWN).expect("permitted");
        threaded(sys, |sys| while sys.fork(pauses).is_ok() {});
        pauses(sys)
    });
    while sys.kill(SignalTarget::Group(forker), Some(signal)) == Err(Errno::ESRCH) {
        sys.sched_yield();
    }
    all_end_of(sys, signal)
}

#[test]
fn child_forked_by_second_thread_does_not_escape_killpg() {
    holds(|sys| killpg_during_fork_of_a_thread(sys, Signal::TERM));
}

/// A signal that no thread can handle terminates the program, even if the oldest thread delivers
/// all other signals.
#[test]
fn killed_group_with_oldest_delivery_leaves_no_child() {
    let race = Race::of(|sys| killpg_during_fork_of_a_thread(sys, Signal::KILL));
    Race { with: |builder| builder.delivery(Delivery::Oldest), ..race }.holds();
}

/// A program forks into slots below its own slot while all processes are killed. Either the walk
/// reaches the children, or they are never created.
#[test]
fn process_forking_during_kill_of_everyone_leaves_no_child() {
    holds(|sys| {
        sys.set_subreaper(true).expect("permitted");
        let below: Vec<_> = (0..4).map(|_| sys.fork(|_| 0)).collect();
        let forks = |sys: &dyn Sys| {
            while sys.fork(pauses).is_ok() {}
            pauses(sys)
        };
        forked(sys, forks);
        for child in below {
            let child = child.expect("within the limits");
            end_of(sys, child);
        }
        sys.kill(SignalTarget::Everyone, Some(Signal::KILL)).expect("processes exist");
        all_end_of(sys, Signal::KILL)
    });
}

/// Waits for all children; returns 0 if `signal` ended each.
fn all_end_of(sys: &dyn Sys, signal: Signal) -> i32 {
    loop {
        match sys.wait() {
            Ok(waited) if waited.status.signaled() == Some(signal) => {}
            Ok(_) => return 1,
            Err(errno) => return i32::from(errno != Errno::ECHILD),
        }
    }
}

/// Once `setpgid` has returned, signals to the old group no longer arrive.
#[test]
fn no_signal_arrives_from_a_group_after_leaving_it() {
    holds(|sys| {
        let term = SigSet::of(&[Signal::TERM]);
        sys.sigprocmask(Some((SigmaskHow::Block, term))).expect("permitted");
        let sent = Arc::new(AtomicBool::new(false));
        let seen = sent.clone();
        let mover = forked(sys, move |sys| {
            sys.setpgid(OWN, OWN).expect("permitted");
            let before = sys.sigpending().contains(Signal::TERM);
            await_set(sys, &seen);
            let after = sys.sigpending().contains(Signal::TERM);
            i32::from(after && !before)
        });
        sys.kill(SignalTarget::OwnGroup, Some(Signal::TERM)).expect("the caller exists");
        sent.store(true, Ordering::Relaxed);
        end_of(sys, mover).exited().unwrap_or(1)
    });
}

/// A shell runs pipelines of two processes. The first process leads a group, which both it and the
/// shell try to create, and the second process is moved into that group. Afterwards one group
/// exists, which contains both processes.
#[test]
fn setpgid_by_parent_and_child_creates_one_group() {
    holds(|sys| (0..3).map(|_| run_pipeline(sys)).max().unwrap_or(0));
}

fn run_pipeline(sys: &dyn Sys) -> i32 {
    let leads = move |sys: &dyn Sys| {
        sys.setpgid(OWN, OWN).expect("permitted");
        pauses(sys)
    };
    let first = forked(sys, leads);
    let second = forked(sys, pauses);
    sys.setpgid(first, first).expect("a child of the caller");
    sys.setpgid(second, first).expect("a child of the caller");
    sys.kill(SignalTarget::Group(first), Some(Signal::TERM)).expect("both exist");
    let ended = |child: Pid| end_of(sys, child).signaled() == Some(Signal::TERM);
    i32::from(![first, second].into_iter().all(ended))
}

/// Regression: one thread waits for a child while another thread moves the child between two groups
/// until the child is reaped. The child must leave its current group. It formerly left its previous
/// group instead, which no longer contained it.
#[test]
fn reaped_child_leaves_its_current_group() {
    holds(|sys| {
        let mine = sys.getpgid(OWN).expect("every process has a group");
        for _ in 0..4 {
            let child = forked(sys, |_| 0);
            let waits = move |sys: &dyn Sys| {
                sys.waitpid(child.into(), WaitOptions::empty())
                    .map(drop)
                    .expect("a child of the caller");
            };
            let waiter = threaded(sys, waits);
            while sys.setpgid(child, child).and_then(|()| sys.setpgid(child, mine)).is_ok() {}
            sys.join(waiter).expect("the waiter ends");
        }
        0
    });
}

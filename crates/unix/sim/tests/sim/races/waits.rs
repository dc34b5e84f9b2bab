//! `wait` against `exit`, and against another `wait` (§6.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use tontine_unix::{
    Disposition, Errno, Pid, SigAction, SigSet, SigmaskHow, Signal, SpawnRequest, Sys, WaitOptions,
};

use crate::children::{forked, threaded};
use crate::races::explore::{Race, holds};

/// A parent finds no ended child and falls asleep while its child ends.
#[test]
fn ending_child_wakes_a_parent_that_is_falling_asleep() {
    holds(|sys| {
        for status in 1..4 {
            let child = forked(sys, move |_| status);
            let waited = sys.wait().expect("a child exists");
            if waited.pid != child || waited.status.exited() != Some(status) {
                return 1;
            }
        }
        i32::from(sys.wait() != Err(Errno::ECHILD))
    });
}

/// A child is auto-reaped. Once `wait` returns `ECHILD`, no process has the child's number.
#[test]
fn auto_reaped_child_vanishes_for_wait_and_kill_alike() {
    holds(|sys| {
        let ignore = SigAction { disposition: Disposition::Ignore, ..SigAction::default() };
        sys.sigaction(Signal::CHLD, Some(ignore)).expect("permitted");
        for _ in 0..3 {
            let child = forked(sys, |_| 0);
            while sys.waitpid(child.into(), WaitOptions::NOHANG) != Err(Errno::ECHILD) {
                sys.sched_yield();
            }
            if sys.kill(Pid::number_only(child.number()).into(), None) != Err(Errno::ESRCH) {
                return 1;
            }
        }
        0
    });
}

/// A thread waits for any child while another thread spawns a program that does not exist. The wait
/// returns `ECHILD`, and never reports the end of a child.
#[test]
fn wait_never_reports_a_failed_spawn() {
    holds(|sys| {
        let (over, met) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (ends, meets) = (over.clone(), met.clone());
        let waiter = threaded(sys, move |sys| {
            while !ends.load(Ordering::Relaxed) {
                match sys.wait() {
                    Err(Errno::ECHILD) => sys.sched_yield(),
                    _ => meets.store(true, Ordering::Relaxed),
                }
            }
        });
        let nothing = SpawnRequest::new("nothing", &["nothing"]);
        let failed = (0..3).all(|_| sys.spawn(&nothing) == Err(Errno::ENOENT));
        over.store(true, Ordering::Relaxed);
        sys.join(waiter).expect("a thread of the caller");
        i32::from(!failed || met.load(Ordering::Relaxed))
    });
}

/// Two threads wait for the only child. One reaps the child, and the other receives `ECHILD`.
#[test]
fn one_of_two_waiters_reaps_the_only_child() {
    holds(|sys| {
        let won = Arc::new(AtomicI32::new(0));
        let lost = Arc::new(AtomicI32::new(0));
        forked(sys, |_| 7);
        let wait = |won: Arc<AtomicI32>, lost: Arc<AtomicI32>| {
            move |sys: &dyn Sys| {
                match sys.wait() {
                    Ok(_) => won.fetch_add(1, Ordering::Relaxed),
                    Err(_) => lost.fetch_add(1, Ordering::Relaxed),
                };
            }
        };
        let other = threaded(sys, wait(won.clone(), lost.clone()));
        wait(won.clone(), lost.clone())(sys);
        sys.join(other).expect("a thread of the caller");
        let results = (won.load(Ordering::Relaxed), lost.load(Ordering::Relaxed));
        i32::from(results != (1, 1))
    });
}

/// Runs a parent that sleeps until SIGCHLD arrives and then calls `wait` up to `most` times per
/// signal.
fn reaps_by_signal(sys: &dyn Sys, most: usize) -> i32 {
    let blocked = SigSet::of(&[Signal::CHLD]);
    sys.sigprocmask(Some((SigmaskHow::Block, blocked))).expect("permitted");
    sys.sigaction(Signal::CHLD, Some(SigAction::handler(|_, _| {}))).expect("permitted");
    for _ in 0..3 {
        forked(sys, |_| 0);
    }
    let mut left = 3;
    while left > 0 {
        sys.sigsuspend(SigSet::EMPTY);
        for _ in 0..most {
            match sys.waitpid(tontine_unix::Children::Any, WaitOptions::NOHANG) {
                Ok(Some(_)) => left -= 1,
                _ => break,
            }
        }
    }
    i32::from(sys.wait() != Err(Errno::ECHILD))
}

/// SIGCHLD coalesces: after one signal, the parent may find several ended children to reap.
#[test]
fn waiting_until_echild_loses_no_child_to_coalescing() {
    holds(|sys| reaps_by_signal(sys, usize::MAX));
}

/// The race is in the program itself, which reaps only one of the children that end before it is
/// scheduled again.
#[test]
fn waiting_once_per_signal_loses_children_in_every_mode() {
    Race::of(|sys| reaps_by_signal(sys, 1)).fails();
}

//! `wait` against `exit`, and against another `wait` (§6.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use tontine_unix::{
    Disposition, Errno, Pid, SigAction, SigSet, SigmaskHow, Signal, SpawnRequest, WaitOptions,
};

use crate::races::explore::{PARALLEL, Race, Scene};

/// A parent finds no ended child and falls asleep while its child ends.
const WAIT_AGAINST_EXIT: Race = Race {
    scene: || {
        Arc::new(|sys| {
            for status in 1..4 {
                let child = sys.fork(move |_| status).expect("within the limits");
                let waited = sys.wait().expect("a child exists");
                if waited.pid != child || waited.status.exited() != Some(status) {
                    return 1;
                }
            }
            i32::from(sys.wait() != Err(Errno::ECHILD))
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

/// A child is auto-reaped. Once `wait` returns `ECHILD`, no process has the child's number.
const UNWANTED_AGAINST_KILL: Race = Race {
    scene: || {
        Arc::new(|sys| {
            let ignore = SigAction { disposition: Disposition::Ignore, ..SigAction::default() };
            sys.sigaction(Signal::CHLD, Some(ignore)).expect("permitted");
            for _ in 0..3 {
                let child = sys.fork(|_| 0).expect("within the limits");
                while sys.waitpid(child.into(), WaitOptions::NOHANG) != Err(Errno::ECHILD) {
                    sys.sched_yield();
                }
                if sys.kill(Pid::number_only(child.number()).into(), None) != Err(Errno::ESRCH) {
                    return 1;
                }
            }
            0
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

#[test]
fn auto_reaped_child_vanishes_for_wait_and_kill_alike() {
    UNWANTED_AGAINST_KILL.holds();
}

/// A thread waits for any child while another thread spawns a program that does not exist. The wait
/// returns `ECHILD`, and never reports the end of a child.
const FAILED_SPAWN_AGAINST_WAIT: Race = Race {
    scene: || {
        Arc::new(|sys| {
            let (over, met) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (ends, meets) = (over.clone(), met.clone());
            let waiter = sys.thread(move |sys| {
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
            sys.join(waiter.expect("within the limits")).expect("a thread of the caller");
            i32::from(!failed || met.load(Ordering::Relaxed))
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

#[test]
fn wait_never_reports_a_failed_spawn() {
    FAILED_SPAWN_AGAINST_WAIT.holds();
}

/// Two threads wait for the only child. One reaps the child, and the other receives `ECHILD`.
const TWO_WAITERS: Race = Race {
    scene: || {
        let won = Arc::new(AtomicI32::new(0));
        let lost = Arc::new(AtomicI32::new(0));
        Arc::new(move |sys| {
            sys.fork(|_| 7).expect("within the limits");
            let wait = |won: Arc<AtomicI32>, lost: Arc<AtomicI32>| {
                move |sys: &dyn tontine_unix::Sys| {
                    match sys.wait() {
                        Ok(_) => won.fetch_add(1, Ordering::Relaxed),
                        Err(_) => lost.fetch_add(1, Ordering::Relaxed),
                    };
                }
            };
            let other = sys.thread(wait(won.clone(), lost.clone())).expect("within the limits");
            wait(won.clone(), lost.clone())(sys);
            sys.join(other).expect("a thread of the caller");
            let results = (won.load(Ordering::Relaxed), lost.load(Ordering::Relaxed));
            i32::from(results != (1, 1))
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

/// Runs a parent that sleeps until SIGCHLD arrives and then calls `wait` up to `most` times per
/// signal.
fn reaps_by_signal(most: usize) -> Scene {
    Arc::new(move |sys| {
        let blocked = SigSet::of(&[Signal::CHLD]);
        sys.sigprocmask(Some((SigmaskHow::Block, blocked))).expect("permitted");
        sys.sigaction(Signal::CHLD, Some(SigAction::handler(|_, _| {}))).expect("permitted");
        for _ in 0..3 {
            sys.fork(|_| 0).expect("within the limits");
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
    })
}

/// SIGCHLD coalesces: after one signal, the parent may find several ended children to reap.
const CHILDREN_COALESCE: Race =
    Race { scene: || reaps_by_signal(usize::MAX), with: |builder| builder, parallel: PARALLEL };

#[test]
fn ending_child_wakes_a_parent_that_is_falling_asleep() {
    WAIT_AGAINST_EXIT.holds();
}

#[test]
fn one_of_two_waiters_reaps_the_only_child() {
    TWO_WAITERS.holds();
}

#[test]
fn waiting_until_echild_loses_no_child_to_coalescing() {
    CHILDREN_COALESCE.holds();
}

/// The race is in the program itself, which reaps only one of the children that end before it is
/// scheduled again.
#[test]
fn waiting_once_per_signal_loses_children_in_every_mode() {
    let naive = Race { scene: || reaps_by_signal(1), with: |builder| builder, parallel: 0 };
    naive.fails();
}

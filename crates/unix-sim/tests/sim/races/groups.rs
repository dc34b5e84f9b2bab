//! `killpg` against `fork` and `setpgid` (§5.1), and two concurrent calls of `setpgid`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tontine_unix::{Errno, Pid, SigSet, SigmaskHow, Signal, SignalTarget, Sys, WaitOptions};
use tontine_unix_sim::Delivery;

use crate::races::explore::{PARALLEL, Race, Scene};

const OWN: Pid = Pid::number_only(0);

/// A process forks while its group is signalled. Either the child is a member before the walk, or
/// it is never created, because its fork would complete only after the signal is delivered. The
/// scene also has a scheduling point before the call, so that the race exists in every mode.
const KILLPG_AGAINST_FORK: Race = Race {
    scene: || {
        Arc::new(|sys| {
            sys.set_subreaper(true).expect("permitted");
            let forker = sys
                .fork(|sys| {
                    sys.setpgid(OWN, OWN).expect("permitted");
                    loop {
                        let child = sys.fork(|sys| {
                            sys.pause();
                            0
                        });
                        if child == Err(Errno::EAGAIN) {
                            sys.pause();
                        }
                    }
                })
                .expect("within the limits");
            while sys.kill(SignalTarget::Group(forker), Some(Signal::TERM)) == Err(Errno::ESRCH) {
                sys.sched_yield();
            }
            all_end_of(sys, Signal::TERM)
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

/// Like [`KILLPG_AGAINST_FORK`], but the first thread of the program sleeps while a second thread
/// forks. The sleeping thread receives the signal, and the fork of the other thread must detect it.
fn killpg_against_a_second_thread(signal: Signal) -> Scene {
    Arc::new(move |sys| {
        sys.set_subreaper(true).expect("permitted");
        let forker = sys
            .fork(|sys| {
                sys.setpgid(OWN, OWN).expect("permitted");
                sys.thread(|sys| while sys.fork(pauses).is_ok() {}).expect("within the limits");
                pauses(sys)
            })
            .expect("within the limits");
        while sys.kill(SignalTarget::Group(forker), Some(signal)) == Err(Errno::ESRCH) {
            sys.sched_yield();
        }
        all_end_of(sys, signal)
    })
}

const KILLPG_AGAINST_FORK_OF_A_THREAD: Race = Race {
    scene: || killpg_against_a_second_thread(Signal::TERM),
    with: |builder| builder,
    parallel: PARALLEL,
};

/// A signal that no thread can handle terminates the program, even if the oldest thread delivers
/// all other signals.
const KILLPG_AGAINST_FORK_BESIDE_THE_OLDEST: Race = Race {
    scene: || killpg_against_a_second_thread(Signal::KILL),
    with: |builder| builder.delivery(Delivery::Oldest),
    parallel: PARALLEL,
};

/// A program forks into slots below its own slot while all processes are killed. Either the walk
/// reaches the children, or they are never created.
const KILL_EVERYONE_AGAINST_FORK: Race = Race {
    scene: || {
        Arc::new(|sys| {
            sys.set_subreaper(true).expect("permitted");
            let below: Vec<_> = (0..4).map(|_| sys.fork(|_| 0)).collect();
            let forks = |sys: &dyn Sys| {
                while sys.fork(pauses).is_ok() {}
                pauses(sys)
            };
            sys.fork(forks).expect("within the limits");
            for child in below {
                let child = child.expect("within the limits");
                sys.waitpid(child.into(), Default::default()).expect("a child of the caller");
            }
            sys.kill(SignalTarget::Everyone, Some(Signal::KILL)).expect("processes exist");
            all_end_of(sys, Signal::KILL)
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

fn pauses(sys: &dyn Sys) -> i32 {
    sys.pause();
    0
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
const KILLPG_AGAINST_SETPGID: Race = Race {
    scene: || {
        Arc::new(|sys| {
            let term = SigSet::of(&[Signal::TERM]);
            sys.sigprocmask(Some((SigmaskHow::Block, term))).expect("permitted");
            let sent = Arc::new(AtomicBool::new(false));
            let seen = sent.clone();
            let mover = sys
                .fork(move |sys| {
                    sys.setpgid(OWN, OWN).expect("permitted");
                    let before = sys.sigpending().contains(Signal::TERM);
                    while !seen.load(Ordering::Relaxed) {
                        sys.sched_yield();
                    }
                    let after = sys.sigpending().contains(Signal::TERM);
                    i32::from(after && !before)
                })
                .expect("within the limits");
            sys.kill(SignalTarget::OwnGroup, Some(Signal::TERM)).expect("the caller exists");
            sent.store(true, Ordering::Relaxed);
            let waited = sys.waitpid(mover.into(), Default::default());
            waited
                .expect("a child of the caller")
                .expect("the wait blocks")
                .status
                .exited()
                .unwrap_or(1)
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

/// A shell runs pipelines of two processes. The first process leads a group, which both it and the
/// shell try to create, and the second process is moved into that group. Afterwards one group
/// exists, which contains both processes.
const TWO_SETPGID: Race = Race {
    scene: || Arc::new(|sys| (0..3).map(|_| run_pipeline(sys)).max().unwrap_or(0)),
    with: |builder| builder,
    parallel: PARALLEL,
};

fn run_pipeline(sys: &dyn Sys) -> i32 {
    let sleeps = |sys: &dyn Sys| {
        sys.pause();
        0
    };
    let leads = move |sys: &dyn Sys| {
        sys.setpgid(OWN, OWN).expect("permitted");
        sleeps(sys)
    };
    let first = sys.fork(leads).expect("within the limits");
    let second = sys.fork(sleeps).expect("within the limits");
    sys.setpgid(first, first).expect("a child of the caller");
    sys.setpgid(second, first).expect("a child of the caller");
    sys.kill(SignalTarget::Group(first), Some(Signal::TERM)).expect("both exist");
    let ended = |child: Pid| {
        let waited = sys.waitpid(child.into(), Default::default());
        waited.expect("a child of the caller").expect("the wait blocks").status.signaled()
            == Some(Signal::TERM)
    };
    i32::from(![first, second].into_iter().all(ended))
}

/// Regression: one thread waits for a child while another thread moves the child between two groups
/// until the child is reaped. The child must leave its current group. It formerly left its previous
/// group instead, which no longer contained it.
const SETPGID_AGAINST_WAIT: Race = Race {
    scene: || {
        Arc::new(|sys| {
            let mine = sys.getpgid(OWN).expect("every process has a group");
            for _ in 0..4 {
                let child = sys.fork(|_| 0).expect("within the limits");
                let waits = move |sys: &dyn Sys| {
                    sys.waitpid(child.into(), WaitOptions::empty())
                        .map(drop)
                        .expect("a child of the caller");
                };
                let waiter = sys.thread(waits).expect("within the limits");
                while sys.setpgid(child, child).and_then(|()| sys.setpgid(child, mine)).is_ok() {}
                sys.join(waiter).expect("the waiter ends");
            }
            0
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

#[test]
fn child_forked_during_killpg_does_not_escape_it() {
    KILLPG_AGAINST_FORK.holds();
}

#[test]
fn child_forked_by_second_thread_does_not_escape_killpg() {
    KILLPG_AGAINST_FORK_OF_A_THREAD.holds();
}

#[test]
fn killed_group_with_oldest_delivery_leaves_no_child() {
    KILLPG_AGAINST_FORK_BESIDE_THE_OLDEST.holds();
}

#[test]
fn process_forking_during_kill_of_everyone_leaves_no_child() {
    KILL_EVERYONE_AGAINST_FORK.holds();
}

#[test]
fn no_signal_arrives_from_a_group_after_leaving_it() {
    KILLPG_AGAINST_SETPGID.holds();
}

#[test]
fn reaped_child_leaves_its_current_group() {
    SETPGID_AGAINST_WAIT.holds();
}

#[test]
fn setpgid_by_parent_and_child_creates_one_group() {
    TWO_SETPGID.holds();
}

//! `killpg` against `fork` and `setpgid` (§5.1), and two `setpgid` against each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tontine_unix::{Errno, Pid, SigSet, SigmaskHow, Signal, SignalTarget, Sys, WaitOptions};
use tontine_unix_sim::Delivery;

use crate::races::explore::{PARALLEL, Race, Scene};

const OWN: Pid = Pid::number_only(0);

/// Somebody forks while its group is signalled: the child is a member before the walk, or is made
/// after the signal was delivered, which is never. A point lies before the kernel too, so that the
/// race is there in every mode.
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

/// The same of a program whose first thread sleeps while a second one forks: the signal finds the
/// one that sleeps, and the one that forks has to know of it.
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

/// What no thread can handle ends the program also where the oldest thread delivers all else.
const KILLPG_AGAINST_FORK_BESIDE_THE_OLDEST: Race = Race {
    scene: || killpg_against_a_second_thread(Signal::KILL),
    with: |builder| builder.delivery(Delivery::Oldest),
    parallel: PARALLEL,
};

/// A program forks into slots below its own while everybody is killed: its children are in the
/// walk, or are never made.
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
            sys.kill(SignalTarget::Everyone, Some(Signal::KILL)).expect("they are there");
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

/// Waits for all children; 0 if this signal ended each.
fn all_end_of(sys: &dyn Sys, signal: Signal) -> i32 {
    loop {
        match sys.wait() {
            Ok(waited) if waited.status.signaled() == Some(signal) => {}
            Ok(_) => return 1,
            Err(errno) => return i32::from(errno != Errno::ECHILD),
        }
    }
}

/// What is sent to the old group does not come any more once `setpgid` has returned.
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

/// A shell's pipelines of two: the first process leads a group, which it and the shell both see to,
/// and the second is put into it. There is one such group, and it has both.
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
    sys.kill(SignalTarget::Group(first), Some(Signal::TERM)).expect("both are there");
    let ended = |child: Pid| {
        let waited = sys.waitpid(child.into(), Default::default());
        waited.expect("a child of the caller").expect("the wait blocks").status.signaled()
            == Some(Signal::TERM)
    };
    i32::from(![first, second].into_iter().all(ended))
}

/// One thread waits for a child while another one moves it to and fro between two groups, until it
/// is not there any more: it leaves the group that it is in by then. It once left the one that it
/// had been in a moment before, which did not know it any more.
const SETPGID_AGAINST_WAIT: Race = Race {
    scene: || {
        Arc::new(|sys| {
            let mine = sys.getpgid(OWN).expect("it has one");
            for _ in 0..4 {
                let child = sys.fork(|_| 0).expect("within the limits");
                let waits = move |sys: &dyn Sys| {
                    sys.waitpid(child.into(), WaitOptions::empty()).map(drop).expect("its child");
                };
                let waiter = sys.thread(waits).expect("within the limits");
                while sys.setpgid(child, child).and_then(|()| sys.setpgid(child, mine)).is_ok() {}
                sys.join(waiter).expect("it ends");
            }
            0
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

#[test]
fn a_forked_child_is_in_the_walk_or_comes_after_the_signal() {
    KILLPG_AGAINST_FORK.holds();
}

#[test]
fn a_child_of_a_second_thread_is_in_the_walk_or_comes_after_the_signal() {
    KILLPG_AGAINST_FORK_OF_A_THREAD.holds();
}

#[test]
fn killed_group_has_no_child_left_with_delivery_to_the_oldest() {
    KILLPG_AGAINST_FORK_BESIDE_THE_OLDEST.holds();
}

#[test]
fn whoever_forks_while_everybody_is_killed_leaves_no_child() {
    KILL_EVERYONE_AGAINST_FORK.holds();
}

#[test]
fn nothing_comes_from_a_group_that_was_left() {
    KILLPG_AGAINST_SETPGID.holds();
}

#[test]
fn a_child_leaves_the_group_that_it_was_moved_to() {
    SETPGID_AGAINST_WAIT.holds();
}

#[test]
fn parent_and_child_make_one_group() {
    TWO_SETPGID.holds();
}

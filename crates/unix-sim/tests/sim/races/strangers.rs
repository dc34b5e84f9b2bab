//! Reuse of an ended process's slot: neither the ended process's children, nor its terminal, nor
//! the process that inherits the children may mistake the new process for the ended process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tontine_unix::{Children, Errno, Pid, SigAction, Signal, Sys, WaitOptions};
use tontine_unix_sim::{LockingMode, Virtual};

use crate::races::explore::{PARALLEL, Race};
use crate::systems::assert_success;

fn yields(sys: &dyn Sys, times: u32) {
    (0..times).for_each(|_| sys.sched_yield());
}

fn await_set(sys: &dyn Sys, flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        sys.sched_yield();
    }
}

/// Waits for a child; returns its exit status if it exited.
fn exited(sys: &dyn Sys, child: Pid) -> Option<i32> {
    let waited = sys.waitpid(child.into(), WaitOptions::empty());
    waited.expect("a child of the caller").expect("the wait blocks").status.exited()
}

/// A process ends while the process that would adopt its child also ends and is reaped. The next
/// process in the adopter's slot must not have a child.
const ORPHANS_AGAINST_REAPER: Race = Race {
    scene: || {
        Arc::new(|sys| {
            let ending = Arc::new(AtomicBool::new(false));
            let reaper = sys
                .fork(move |sys| {
                    sys.set_subreaper(true).expect("permitted");
                    let ends = ending.clone();
                    let parent = sys.fork(move |sys| {
                        let orphan = sys.fork(|sys| {
                            sys.pause();
                            0
                        });
                        ends.store(true, Ordering::Relaxed);
                        i32::from(orphan.is_err())
                    });
                    await_set(sys, &ending);
                    i32::from(parent.is_err())
                })
                .expect("within the limits");
            sys.waitpid(reaper.into(), WaitOptions::empty()).expect("a child of the caller");
            let stranger = sys.fork(|sys| {
                let childless = |_: &u32| {
                    sys.sched_yield();
                    sys.waitid(Children::Any, WaitOptions::EXITED | WaitOptions::NOHANG)
                        == Err(Errno::ECHILD)
                };
                i32::from((0..40).filter(childless).count() != 40)
            });
            i32::from(exited(sys, stranger.expect("within the limits")) != Some(0))
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

/// Number of new processes, one of which receives the slot.
const STRANGERS: u32 = 4;

/// A terminal is hung up while the leader of its session ends and is auto-reaped. The next process
/// in the leader's slot survives.
const HANG_UP_AGAINST_EXIT: Race = Race {
    scene: || {
        Arc::new(|sys| {
            sys.sigaction(Signal::CHLD, Some(SigAction::IGNORE)).expect("permitted");
            let (user, terminal) = sys.openpty().expect("within the limits");
            let ready = Arc::new(AtomicBool::new(false));
            let leads = ready.clone();
            let leader = sys.fork(move |sys| {
                sys.setsid().expect("the caller leads no group");
                sys.set_controlling(terminal).expect("the caller leads a session");
                sys.close(user).expect("an open descriptor");
                leads.store(true, Ordering::Relaxed);
                0
            });
            leader.expect("within the limits");
            await_set(sys, &ready);
            let closer = sys.thread(move |sys| sys.close(user).expect("an open descriptor"));
            let lived = Arc::new(AtomicU32::new(0));
            for _ in 0..STRANGERS {
                let lives = lived.clone();
                let stranger = sys.fork(move |sys| {
                    yields(sys, 10);
                    lives.fetch_add(1, Ordering::Relaxed);
                    0
                });
                stranger.expect("within the limits");
            }
            sys.join(closer.expect("within the limits")).expect("a thread of the caller");
            let none = sys.wait() == Err(Errno::ECHILD);
            i32::from(!none || lived.load(Ordering::Relaxed) != STRANGERS)
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

/// A process calls `getppid` while its parent ends and is reaped, and another process receives the
/// parent's slot. The call returns the parent or the first process.
const GETPPID_AGAINST_EXIT: Race = Race {
    scene: || {
        Arc::new(|sys| {
            let [over, done, strange] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
            let (ends, says, finds) = (over.clone(), done.clone(), strange.clone());
            let parent = sys
                .fork(move |sys| {
                    let parent = sys.getpid();
                    let child = sys.fork(move |sys| {
                        while !ends.load(Ordering::Relaxed) {
                            let now = sys.getppid();
                            finds.fetch_or(now != parent && now.number() != 1, Ordering::Relaxed);
                        }
                        says.store(true, Ordering::Relaxed);
                        0
                    });
                    i32::from(child.is_err())
                })
                .expect("within the limits");
            sys.waitpid(parent.into(), WaitOptions::empty()).expect("a child of the caller");
            let stranger = sys.fork(|sys| {
                yields(sys, 10);
                0
            });
            exited(sys, stranger.expect("within the limits"));
            over.store(true, Ordering::Relaxed);
            await_set(sys, &done);
            i32::from(strange.load(Ordering::Relaxed))
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

#[test]
fn orphans_never_go_to_the_next_process_in_a_slot() {
    ORPHANS_AGAINST_REAPER.holds();
}

#[test]
fn hang_up_never_reaches_the_next_process_in_a_slot() {
    HANG_UP_AGAINST_EXIT.holds();
}

#[test]
fn getppid_never_returns_the_next_process_in_a_slot() {
    GETPPID_AGAINST_EXIT.holds();
}

/// A parent and its child end at the same time. The process that adopts them reaps each of them
/// once.
const CHAIN: Race = Race {
    scene: || {
        Arc::new(|sys| {
            sys.set_subreaper(true).expect("permitted");
            let parent = sys.fork(|sys| {
                let child = sys.fork(|sys| i32::from(sys.fork(|_| 0).is_err()));
                i32::from(child.is_err())
            });
            parent.expect("within the limits");
            let ended = (0..3).filter(|_| sys.wait().is_ok()).count();
            i32::from(ended != 3 || sys.wait() != Err(Errno::ECHILD))
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

#[test]
fn process_ending_with_its_parent_is_inherited_once() {
    CHAIN.holds();
}

/// Like [`CHAIN`], but on real processors, where interleavings are not limited to the switch points
/// of the simulation. Each process of a long chain ends as soon as it has forked the next process.
#[test]
fn every_process_of_a_long_chain_is_inherited() {
    const LINKS: u32 = 1000;
    fn link(sys: &dyn Sys, left: u32) -> i32 {
        i32::from(left > 0 && sys.fork(move |sys| link(sys, left - 1)).is_err())
    }
    for mode in [LockingMode::Parallel, LockingMode::PerProcess] {
        for _ in 0..10 {
            let unix =
                Virtual::builder().mode(mode).processors(2).build().expect("a valid configuration");
            let report = unix.run(|sys| {
                sys.set_subreaper(true).expect("permitted");
                sys.fork(|sys| link(sys, LINKS - 1)).expect("within the limits");
                let ended = (0..LINKS).filter(|_| sys.wait().is_ok()).count();
                i32::from(ended != LINKS as usize || sys.wait() != Err(Errno::ECHILD))
            });
            assert_success(&mode.to_string(), &report);
        }
    }
}

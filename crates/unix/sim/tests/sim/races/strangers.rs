//! Reuse of an ended process's slot: neither the ended process's children, nor its terminal, nor
//! the process that inherits the children may mistake the new process for the ended process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tontine_unix::{Children, Errno, SigAction, Signal, Sys, WaitOptions};
use tontine_unix_sim::Virtual;

use crate::children::{await_set, end_of, forked, pauses, threaded};
use crate::races::explore::holds;
use crate::systems::assert_success;

fn yields(sys: &dyn Sys, times: u32) {
    (0..times).for_each(|_| sys.sched_yield());
}

/// A process ends while the process that would adopt its child also ends and is reaped. The next
/// process in the adopter's slot must not have a child.
#[test]
fn orphans_never_go_to_the_next_process_in_a_slot() {
    holds(|sys| {
        let ending = Arc::new(AtomicBool::new(false));
        let reaper = forked(sys, move |sys| {
            sys.set_subreaper(true).expect("permitted");
            let ends = ending.clone();
            let parent = sys.fork(move |sys| {
                let orphan = sys.fork(pauses);
                ends.store(true, Ordering::Relaxed);
                i32::from(orphan.is_err())
            });
            await_set(sys, &ending);
            i32::from(parent.is_err())
        });
        end_of(sys, reaper);
        let stranger = forked(sys, |sys| {
            let childless = |_: &u32| {
                sys.sched_yield();
                sys.waitid(Children::Any, WaitOptions::EXITED | WaitOptions::NOHANG)
                    == Err(Errno::ECHILD)
            };
            i32::from((0..40).filter(childless).count() != 40)
        });
        i32::from(end_of(sys, stranger).exited() != Some(0))
    });
}

/// Number of new processes, one of which receives the slot.
const STRANGERS: u32 = 4;

/// A terminal is hung up while the leader of its session ends and is auto-reaped. The next process
/// in the leader's slot survives.
#[test]
fn hang_up_never_reaches_the_next_process_in_a_slot() {
    holds(|sys| {
        sys.sigaction(Signal::CHLD, Some(SigAction::IGNORE)).expect("permitted");
        let (user, terminal) = sys.openpty().expect("within the limits");
        let ready = Arc::new(AtomicBool::new(false));
        let leads = ready.clone();
        forked(sys, move |sys| {
            sys.setsid().expect("the caller leads no group");
            sys.set_controlling(terminal).expect("the caller leads a session");
            sys.close(user).expect("an open descriptor");
            leads.store(true, Ordering::Relaxed);
            0
        });
        await_set(sys, &ready);
        let closer = threaded(sys, move |sys| sys.close(user).expect("an open descriptor"));
        let lived = Arc::new(AtomicU32::new(0));
        for _ in 0..STRANGERS {
            let lives = lived.clone();
            forked(sys, move |sys| {
                yields(sys, 10);
                lives.fetch_add(1, Ordering::Relaxed);
                0
            });
        }
        sys.join(closer).expect("a thread of the caller");
        let none = sys.wait() == Err(Errno::ECHILD);
        i32::from(!none || lived.load(Ordering::Relaxed) != STRANGERS)
    });
}

/// A process calls `getppid` while its parent ends and is reaped, and another process receives the
/// parent's slot. The call returns the parent or the first process.
#[test]
fn getppid_never_returns_the_next_process_in_a_slot() {
    holds(|sys| {
        let [over, done, strange] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let (ends, says, finds) = (over.clone(), done.clone(), strange.clone());
        let parent = forked(sys, move |sys| {
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
        });
        end_of(sys, parent);
        let stranger = forked(sys, |sys| {
            yields(sys, 10);
            0
        });
        end_of(sys, stranger).exited();
        over.store(true, Ordering::Relaxed);
        await_set(sys, &done);
        i32::from(strange.load(Ordering::Relaxed))
    });
}

/// A parent and its child end at the same time. The process that adopts them reaps each of them
/// once.
#[test]
fn process_ending_with_its_parent_is_inherited_once() {
    holds(|sys| {
        sys.set_subreaper(true).expect("permitted");
        forked(sys, |sys| {
            let child = sys.fork(|sys| i32::from(sys.fork(|_| 0).is_err()));
            i32::from(child.is_err())
        });
        let ended = (0..3).filter(|_| sys.wait().is_ok()).count();
        i32::from(ended != 3 || sys.wait() != Err(Errno::ECHILD))
    });
}

/// Like the race above, but on real processors, where interleavings are not limited to the switch
/// points of the simulation. Each process of a long chain ends as soon as it has forked the next
/// process.
#[test]
fn every_process_of_a_long_chain_is_inherited() {
    const LINKS: u32 = 1000;
    fn link(sys: &dyn Sys, left: u32) -> i32 {
        i32::from(left > 0 && sys.fork(move |sys| link(sys, left - 1)).is_err())
    }
    for _ in 0..10 {
        let unix = Virtual::builder().processors(2).build().expect("a valid configuration");
        let report = unix.run(|sys| {
            sys.set_subreaper(true).expect("permitted");
            forked(sys, |sys| link(sys, LINKS - 1));
            let ended = (0..LINKS).filter(|_| sys.wait().is_ok()).count();
            i32::from(ended != LINKS as usize || sys.wait() != Err(Errno::ECHILD))
        });
        assert_success("parallel", &report);
    }
}

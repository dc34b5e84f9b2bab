//! `exec` and `exit` against `fork` in another thread (§6.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tontine_unix::{
    Children, Errno, SigSet, SigmaskHow, Signal, SignalTarget, SpawnRequest, Sys, WaitOptions,
};
use tontine_unix_sim::Builder;

use crate::children::{end_of, forked, threaded};
use crate::races::explore::{Race, holds};

/// Adds the program `counts`, which exits with status 1 if it has no children at first
/// and then has some.
fn with_counts(builder: Builder) -> Builder {
    builder.program("counts", |sys, _| {
        let none = |sys: &dyn Sys| sys.waitpid(Children::Any, WaitOptions::NOHANG);
        if none(sys) != Err(Errno::ECHILD) {
            return 0;
        }
        (0..50).for_each(|_| sys.sched_yield());
        i32::from(none(sys) != Err(Errno::ECHILD))
    })
}

/// After exec, a process has the children that it had before, and acquires others only by forking.
#[test]
fn exec_waits_for_forks_in_progress() {
    let race = Race::of(|sys| {
        let forker = |sys: &dyn Sys| {
            let _ = sys.fork(|_| 0);
        };
        let process = forked(sys, move |sys| {
            threaded(sys, forker);
            match sys.exec("counts", &[]) {
                Err(_) => 2,
                Ok(never) => match never {},
            }
        });
        end_of(sys, process).exited().unwrap_or(3)
    });
    Race { with: with_counts, ..race }.holds();
}

/// A child that is forked while its process ends still has a parent, and is reaped.
#[test]
fn exit_waits_for_forks_in_progress() {
    holds(|sys| {
        sys.set_subreaper(true).expect("permitted");
        let born = Arc::new(AtomicI32::new(0));
        let counts = born.clone();
        forked(sys, move |sys| {
            let forks = move |sys: &dyn Sys| {
                let counts = counts.clone();
                let _ = sys.fork(move |_| {
                    counts.fetch_add(1, Ordering::Relaxed);
                    0
                });
            };
            threaded(sys, forks);
            0
        });
        let mut waited = 0;
        while sys.wait().is_ok() {
            waited += 1;
        }
        (0..50).for_each(|_| sys.sched_yield());
        i32::from(waited != 1 + born.load(Ordering::Relaxed))
    });
}

/// A child is killed before it has called exec. Its spawner sleeps until it is notified, and then
/// wakes.
#[test]
fn spawner_of_a_killed_child_is_notified() {
    let race = Race::of(|sys| {
        let term = SigSet::of(&[Signal::TERM]);
        sys.sigprocmask(Some((SigmaskHow::Block, term))).expect("permitted");
        let killer = forked(sys, |sys| {
            (0..3).for_each(|_| {
                sys.kill(SignalTarget::OwnGroup, Some(Signal::TERM)).expect("the caller exists")
            });
            0
        });
        let mut spawn = SpawnRequest::new("counts", &[]);
        spawn.mask = Some(SigSet::EMPTY);
        let spawned = sys.spawn(&spawn).expect("within the limits");
        for child in [killer, spawned] {
            let status = end_of(sys, child);
            if status.exited() != Some(0) && status.signaled() != Some(Signal::TERM) {
                return 1;
            }
        }
        0
    });
    Race { with: with_counts, ..race }.holds();
}

/// A thread that is created while its process exits ends with it, even while asleep.
#[test]
fn thread_created_during_exit_is_halted() {
    holds(|sys| {
        let process = forked(sys, |sys| {
            let (reader, _writer) = sys.pipe().expect("within the limits");
            let makes = move |sys: &dyn Sys| {
                let _ = sys.thread(move |sys| {
                    let _ = sys.read(reader, &mut [0]);
                });
            };
            threaded(sys, makes);
            0
        });
        end_of(sys, process).exited().unwrap_or(1)
    });
}

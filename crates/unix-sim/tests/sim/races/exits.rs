//! `exec` and `exit` against `fork` in another thread (§6.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tontine_unix::{
    Children, Errno, SigSet, SigmaskHow, Signal, SignalTarget, SpawnRequest, Sys, WaitOptions,
};

use crate::races::explore::{PARALLEL, Race};

/// After exec, a process has the children that it had before, and acquires others only by forking.
const EXEC_AGAINST_FORK: Race = Race {
    scene: || {
        Arc::new(|sys| {
            let forker = |sys: &dyn Sys| {
                let _ = sys.fork(|_| 0);
            };
            let process = sys
                .fork(move |sys| {
                    sys.thread(forker).expect("within the limits");
                    match sys.exec("counts", &[]) {
                        Err(_) => 2,
                        Ok(never) => match never {},
                    }
                })
                .expect("within the limits");
            let waited = sys.waitpid(process.into(), Default::default());
            waited
                .expect("a child of the caller")
                .expect("the wait blocks")
                .status
                .exited()
                .unwrap_or(3)
        })
    },
    with: |builder| {
        builder.program("counts", |sys, _| {
            let none = |sys: &dyn Sys| sys.waitpid(Children::Any, WaitOptions::NOHANG);
            if none(sys) != Err(Errno::ECHILD) {
                return 0;
            }
            (0..50).for_each(|_| sys.sched_yield());
            i32::from(none(sys) != Err(Errno::ECHILD))
        })
    },
    parallel: PARALLEL,
};

/// A child that is forked while its process ends still has a parent, and is reaped.
const EXIT_AGAINST_FORK: Race = Race {
    scene: || {
        let born = Arc::new(AtomicI32::new(0));
        Arc::new(move |sys| {
            sys.set_subreaper(true).expect("permitted");
            let (born, counts) = (born.clone(), born.clone());
            sys.fork(move |sys| {
                let forks = move |sys: &dyn Sys| {
                    let counts = counts.clone();
                    let _ = sys.fork(move |_| {
                        counts.fetch_add(1, Ordering::Relaxed);
                        0
                    });
                };
                sys.thread(forks).expect("within the limits");
                0
            })
            .expect("within the limits");
            let mut waited = 0;
            while sys.wait().is_ok() {
                waited += 1;
            }
            (0..50).for_each(|_| sys.sched_yield());
            i32::from(waited != 1 + born.load(Ordering::Relaxed))
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

/// A child is killed before it has called exec. Its spawner sleeps until it is notified, and then
/// wakes.
const SPAWN_AGAINST_KILL: Race = Race {
    scene: || {
        Arc::new(|sys| {
            let term = SigSet::of(&[Signal::TERM]);
            sys.sigprocmask(Some((SigmaskHow::Block, term))).expect("permitted");
            let killer = sys.fork(|sys| {
                (0..3).for_each(|_| {
                    sys.kill(SignalTarget::OwnGroup, Some(Signal::TERM)).expect("the caller exists")
                });
                0
            });
            let mut spawn = SpawnRequest::new("counts", &[]);
            spawn.mask = Some(SigSet::EMPTY);
            let spawned = sys.spawn(&spawn).expect("within the limits");
            for child in [killer.expect("within the limits"), spawned] {
                let waited = sys.waitpid(child.into(), Default::default());
                let status =
                    waited.expect("a child of the caller").expect("the wait blocks").status;
                if status.exited() != Some(0) && status.signaled() != Some(Signal::TERM) {
                    return 1;
                }
            }
            0
        })
    },
    with: EXEC_AGAINST_FORK.with,
    parallel: PARALLEL,
};

/// A thread that is created while its process exits ends with it, even while asleep.
const EXIT_AGAINST_THREAD: Race = Race {
    scene: || {
        Arc::new(|sys| {
            let process = sys.fork(|sys| {
                let (reader, _writer) = sys.pipe().expect("within the limits");
                let makes = move |sys: &dyn Sys| {
                    let _ = sys.thread(move |sys| {
                        let _ = sys.read(reader, &mut [0]);
                    });
                };
                sys.thread(makes).expect("within the limits");
                0
            });
            let waited =
                sys.waitpid(process.expect("within the limits").into(), Default::default());
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

#[test]
fn thread_created_during_exit_is_halted() {
    EXIT_AGAINST_THREAD.holds();
}

#[test]
fn spawner_of_a_killed_child_is_notified() {
    SPAWN_AGAINST_KILL.holds();
}

#[test]
fn exec_waits_for_forks_in_progress() {
    EXEC_AGAINST_FORK.holds();
}

#[test]
fn exit_waits_for_forks_in_progress() {
    EXIT_AGAINST_FORK.holds();
}

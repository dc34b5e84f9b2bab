//! Mode `Master`: every call except `exec` runs on processor 0, and a sleeping call does not occupy
//! that processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tontine_unix::{SigAction, SigSet, Signal, Sys};
use tontine_unix_sim::{Executor, LockingMode, RunReport};

use crate::children::{end_of, forked, pauses, send};
use crate::systems::{assert_success, of, run};

fn executors() -> impl Iterator<Item = Executor> {
    (0..20).map(|seed| Executor::Simulated { seed }).chain([Executor::Parallel; 3])
}

fn on_master(
    executor: Executor,
    program: impl FnOnce(&dyn Sys) -> i32 + Send + 'static,
) -> RunReport {
    run(of(LockingMode::Master, executor).processors(4).first_on(1), program)
}

/// Children on each processor except the master sleep in calls of all kinds at the same time. Their
/// parent, on another processor, continues to make calls and then kills them.
#[test]
fn sleeping_calls_do_not_occupy_the_master() {
    for executor in executors() {
        let report = on_master(executor, |sys| {
            let mut children = Vec::new();
            let asleep = Arc::new(AtomicI32::new(0));
            for nth in 0..60 {
                sys.place(Some(1 + nth % 3)).expect("the processor exists");
                let asleep = asleep.clone();
                let child = forked(sys, move |sys| {
                    assert_eq!(sys.processor(), 1 + nth % 3);
                    asleep.fetch_add(1, Ordering::Relaxed);
                    match nth % 4 {
                        0 => {
                            let _ = sys.pause();
                        }
                        1 => {
                            let _ = sys.sigsuspend(SigSet::EMPTY);
                        }
                        2 => {
                            let (reader, _writer) = sys.pipe().expect("within the limits");
                            let _ = sys.read(reader, &mut [0]);
                        }
                        _ => {
                            forked(sys, pauses);
                            let _ = sys.wait();
                        }
                    }
                    9
                });
                children.push(child);
            }
            while asleep.load(Ordering::Relaxed) < 60 {
                sys.sched_yield();
            }
            assert_eq!(sys.processor(), 1);
            for child in children {
                send(sys, child, Signal::KILL);
                let status = end_of(sys, child);
                assert_eq!(status.signaled(), Some(Signal::KILL));
            }
            0
        });
        assert_success(&format!("{executor:?}"), &report);
    }
}

/// A handler is the program's code, and therefore runs on the program's processor, not on the
/// master.
#[test]
fn handlers_run_on_the_processor_of_their_program() {
    for executor in executors() {
        let report = on_master(executor, |sys| {
            let place = Arc::new(AtomicI32::new(-1));
            let says = place.clone();
            let handler = SigAction::handler(move |sys, _| {
                says.store(sys.processor() as i32, Ordering::Relaxed);
            });
            sys.sigaction(Signal::USR1, Some(handler)).expect("permitted");
            sys.raise(Signal::USR1).expect("the caller exists");
            i32::from(place.load(Ordering::Relaxed) != 1)
        });
        assert_success(&format!("{executor:?}"), &report);
    }
}

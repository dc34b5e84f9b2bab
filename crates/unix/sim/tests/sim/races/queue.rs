//! Overload of the event queue by simultaneous deferred events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tontine_unix::{Resource, Rlimit, Signal, Sys};
use tontine_unix_sim::{Executor, LockingMode};

use crate::children::{await_set, end_of, forked};
use crate::systems::{assert_success, of, run};

/// Number of alarms, which exceeds the capacity of the queue.
const ALARMS: usize = 1200;
/// Number of processes that delay the signal thread.
const BUSY: usize = 32;

/// Regression: an alarm was lost if the queue was full. Its reference to the process was never
/// released, so the process could not end.
#[test]
fn full_event_queue_loses_no_alarm() {
    let system =
        of(LockingMode::Parallel, Executor::Simulated { seed: 3 }).pids(3000).max_stacks(2000);
    let no_limit = Rlimit { soft: u64::MAX, hard: u64::MAX };
    let system = system.limit(Resource::Processes, no_limit).stop_at(10_000_000);
    let report = run(system, |sys| {
        let due = sys.now() + Duration::from_secs(1);
        let sleeps = |sys: &dyn Sys| {
            sys.alarm(1);
            sys.pause();
            0
        };
        let sleepers: Vec<_> = (0..ALARMS).map(|_| sys.fork(sleeps)).collect();
        let over = Arc::new(AtomicBool::new(false));
        for _ in 0..BUSY {
            let over = over.clone();
            let busy = move |sys: &dyn Sys| {
                let _ = sys.nanosleep(due.saturating_sub(sys.now()));
                await_set(sys, &over);
                0
            };
            forked(sys, busy);
        }
        let rung = sleepers.into_iter().filter(|sleeper| {
            let sleeper = sleeper.expect("within the limits");
            let status = end_of(sys, sleeper);
            status.signaled() == Some(Signal::ALRM)
        });
        let all = rung.count() == ALARMS;
        over.store(true, Ordering::Relaxed);
        while sys.wait().is_ok() {}
        i32::from(!all)
    });
    assert_success("parallel, simulated", &report);
}

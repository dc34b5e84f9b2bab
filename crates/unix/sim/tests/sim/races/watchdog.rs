//! The watchdog, which names a program that never makes a system call, and no other program.

#![allow(clippy::disallowed_types, reason = "the watchdog's clock is the wall clock")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tontine_unix::{SpawnRequest, Sys};
use tontine_unix_sim::{BusyThread, Executor, LockingMode};

use crate::children::{end_of, threaded};
use crate::systems::{assert_success, of, run};

/// The watchdog's limit, which exceeds the time until a processor returns to a thread that makes
/// calls.
const LIMIT: Duration = Duration::from_secs(2);
/// Maximum wait for the watchdog's report.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The threads that the watchdog reported, and the times of the reports.
#[derive(Default)]
struct Notified {
    named: Mutex<Vec<(BusyThread, Instant)>>,
    any: AtomicBool,
}

impl Notified {
    fn note(&self, busy: BusyThread) {
        self.named.lock().expect("no panic").push((busy, Instant::now()));
        self.any.store(true, Ordering::Relaxed);
    }
}

/// Computes in a second thread, without a system call, until a report arrives.
fn computes(
    sys: &dyn Sys,
    notified: &Arc<Notified>,
    begun: &Arc<Mutex<Option<(i32, Instant)>>>,
) -> i32 {
    let (notified, begun) = (Arc::clone(notified), Arc::clone(begun));
    let thread = threaded(sys, move |sys| {
        let start = Instant::now();
        *begun.lock().expect("no panic") = Some((sys.gettid().0, start));
        while !notified.any.load(Ordering::Relaxed) && start.elapsed() < TIMEOUT {
            std::hint::spin_loop();
        }
    });
    i32::from(sys.join(thread).is_err())
}

/// Makes calls until a report arrives: sleeps, yields, computes and polls.
fn behaves(sys: &dyn Sys, notified: &Notified) -> i32 {
    while !notified.any.load(Ordering::Relaxed) {
        let _ = sys.nanosleep(Duration::from_millis(1));
        sys.sched_yield();
        for _ in 0..1000 {
            std::hint::black_box((0..1000).sum::<i32>());
            sys.poll();
        }
    }
    0
}

#[test]
fn watchdog_names_only_programs_that_make_no_call() {
    for mode in [LockingMode::Master, LockingMode::Parallel] {
        let notified = Arc::new(Notified::default());
        let begun = Arc::new(Mutex::new(None));
        let notify = Arc::clone(&notified);
        let (busy, busy_begun, polite) =
            (Arc::clone(&notified), Arc::clone(&begun), Arc::clone(&notified));
        let system = of(mode, Executor::Parallel)
            .watchdog(LIMIT, move |busy| notify.note(busy))
            .program("computes", move |sys, _| computes(sys, &busy, &busy_begun))
            .program("behaves", move |sys, _| behaves(sys, &polite));
        let pid = Arc::new(Mutex::new(0));
        let spawned = Arc::clone(&pid);
        let report = run(system, move |sys| {
            let polite = sys.spawn(&SpawnRequest::new("behaves", &[])).expect("within the limits");
            // In mode `Master`, processor 0 is the master.
            sys.place(Some(1)).expect("the processor exists");
            let busy = sys.spawn(&SpawnRequest::new("computes", &[])).expect("within the limits");
            *spawned.lock().expect("no panic") = busy.number();
            let ends = [polite, busy].map(|child| end_of(sys, child).exited());
            i32::from(ends != [Some(0); 2])
        });
        assert_success(&mode.to_string(), &report);
        let (tid, start) = begun.lock().expect("no panic").expect("the thread has started");
        let pid = *pid.lock().expect("no panic");
        let named = notified.named.lock().expect("no panic");
        let [(busy, when)] = &named[..] else { panic!("{mode}: {:?} were named", named.len()) };
        let program = "computes".to_owned();
        assert_eq!(*busy, BusyThread { pid, program, tid, limit: LIMIT }, "{mode}");
        let text =
            format!("thread {tid} of process {pid} (computes) has made no system call for 2s");
        assert!(busy.to_string().starts_with(&text), "{busy}");
        assert!(when.duration_since(start) >= LIMIT - Duration::from_millis(100), "{mode}");
    }
}

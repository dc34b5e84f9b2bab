//! Threads and their processors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tontine_unix::{Errno, Pid, Ptrace, Sys, WaitStatus};

use crate::keeper::keep;
use crate::scene::{end, run};

/// Regression: `join` returned as soon as the thread had left the address space, but the kernel
/// releases the number slightly later. Therefore `tgkill` of a joined thread sometimes returned
/// `Ok`.
#[test]
fn number_of_a_joined_thread_is_released() {
    run(|sys| {
        for round in 0..3_000 {
            let thread = sys.thread(|_| {}).unwrap();
            sys.join(thread).unwrap();
            let sent = sys.tgkill(sys.getpid(), thread, None);
            assert_eq!(sent, Err(Errno::ESRCH), "round {round}");
        }
    });
}

/// The kernel keeps an ended tracee thread until its tracer waits for it. A thread that joins the
/// ended thread must not wait for the tracer, which may be waiting for another event.
#[test]
fn join_does_not_wait_for_a_tracer_of_the_thread() {
    run(|sys| {
        let (reads, writes) = sys.pipe().unwrap();
        let child = sys.fork(move |sys| {
            let thread = sys.thread(|sys| sys.ptrace(Ptrace::TraceMe).unwrap()).unwrap();
            sys.join(thread).unwrap();
            sys.write(writes, &thread.0.to_ne_bytes()).map_or(1, |_| 0)
        });
        let mut number = [0; 4];
        assert_eq!(sys.read(reads, &mut number), Ok(4), "the child has joined the thread");
        let thread = Pid::number_only(i32::from_ne_bytes(number));
        assert_eq!(end(sys, thread), WaitStatus::Exited(0), "the tracer kept the thread until now");
        assert_eq!(end(sys, child.unwrap()), WaitStatus::Exited(0));
    });
}

/// Regression: threads of the standard library share a lock that each holds while it starts and
/// ends. A child that was forked meanwhile created such a thread, which waited for it forever.
#[test]
fn child_forked_while_a_thread_starts_creates_threads() {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                std::thread::spawn(|| {}).join().unwrap();
            }
        });
        let all_end = (0..1_000).all(|_| {
            let status = keep(|sys| {
                let thread = sys.thread(|_| {}).unwrap();
                sys.join(thread).map_or(1, |()| 0)
            });
            status == Some(0)
        });
        is_over.store(true, Relaxed);
        assert!(all_end);
    });
}

#[test]
fn panic_terminates_only_its_thread() {
    run(|sys| {
        std::panic::set_hook(Box::new(|_| {}));
        let thread = sys.thread(|_| panic!("on purpose")).unwrap();
        assert_eq!(sys.join(thread), Ok(()));
    });
}

#[test]
fn children_of_a_placed_process_run_on_its_processor() {
    run(|sys| {
        let here = sys.processor();
        assert_eq!(sys.place(Some(1 << 20)), Err(Errno::EINVAL));
        assert_eq!(sys.place(Some(1000)), Err(Errno::EINVAL));
        sys.place(Some(here)).unwrap();
        let allowed = |sys: &dyn Sys| {
            let status = format!("/proc/self/task/{}/status", sys.gettid().0);
            let status = std::fs::read_to_string(status).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            line.unwrap().trim().to_owned()
        };
        let only = here.to_string();
        assert_eq!(
            sys.fork(move |sys| i32::from(allowed(sys) == only)).map(|child| end(sys, child)),
            Ok(WaitStatus::Exited(1))
        );
        let right = Arc::new(AtomicBool::new(false));
        let thread = {
            let (right, only) = (Arc::clone(&right), here.to_string());
            sys.thread(move |sys| right.store(allowed(sys) == only, Relaxed)).unwrap()
        };
        sys.join(thread).unwrap();
        assert!(right.load(Relaxed));
        // A child of a placed process may run on any permitted processor once the child's placement
        // is removed.
        let everywhere = allowed(sys);
        let child = sys.fork(move |sys| {
            sys.place(None).unwrap();
            let grandchild = sys.fork(move |sys| i32::from(allowed(sys) == everywhere)).unwrap();
            end(sys, grandchild).exited().unwrap_or(2)
        });
        assert_eq!(end(sys, child.unwrap()), WaitStatus::Exited(1));
    });
}

/// The test first restricts the affinity, as `taskset` does.
#[test]
fn unplaced_process_keeps_its_original_affinity() {
    run(|sys| {
        let everywhere = sched_getaffinity(None).unwrap();
        let mut only = CpuSet::new();
        only.set(sys.processor());
        sched_setaffinity(None, &only).unwrap();
        let allowed = move |sys: &dyn Sys| {
            let child = sys.fork(move |_| i32::from(sched_getaffinity(None).unwrap() != only));
            assert_eq!(end(sys, child.unwrap()), WaitStatus::Exited(0));
        };
        sys.place(None).unwrap();
        allowed(sys);
        sys.place(Some(sys.processor())).unwrap();
        sys.place(None).unwrap();
        allowed(sys);
        sched_setaffinity(None, &everywhere).unwrap();
    });
}

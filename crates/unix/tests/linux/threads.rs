//! Threads and their processors.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Barrier};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tontine_unix::{Errno, Pid, Ptrace, SigAction, Signal, Sys, Tid, WaitStatus};

use crate::scene::{end, play, until};

#[test]
fn thread_can_be_joined_only_once() {
    play(|sys| {
        let ran = Arc::new(AtomicI32::new(0));
        let thread = {
            let ran = Arc::clone(&ran);
            sys.thread(move |sys| ran.store(sys.gettid().0, Relaxed)).unwrap()
        };
        assert_eq!(sys.join(thread), Ok(()));
        assert_eq!(ran.load(Relaxed), thread.0);
        assert_eq!(sys.join(thread), Err(Errno::ESRCH));
        assert_eq!(sys.join(sys.gettid()), Err(Errno::EDEADLK));
        assert_eq!(sys.join(Tid(1)), Err(Errno::ESRCH));
    });
}

/// Regression: `join` returned as soon as the thread had left the address space, but the kernel
/// releases the number slightly later. Therefore `tgkill` of a joined thread sometimes returned
/// `Ok`.
#[test]
fn number_of_a_joined_thread_is_released() {
    play(|sys| {
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
    play(|sys| {
        let (told, tell) = sys.pipe().unwrap();
        let child = sys.fork(move |sys| {
            let thread = sys.thread(|sys| sys.ptrace(Ptrace::TraceMe).unwrap()).unwrap();
            sys.join(thread).unwrap();
            sys.write(tell, &thread.0.to_ne_bytes()).map_or(1, |_| 0)
        });
        let mut number = [0; 4];
        assert_eq!(sys.read(told, &mut number), Ok(4), "the child has joined the thread");
        let thread = Pid::number_only(i32::from_ne_bytes(number));
        assert_eq!(end(sys, thread), WaitStatus::Exited(0), "the tracer kept the thread until now");
        assert_eq!(end(sys, child.unwrap()), WaitStatus::Exited(0));
    });
}

#[test]
fn second_joiner_of_thread_is_refused() {
    play(|sys| {
        let gate = Arc::new(Barrier::new(2));
        let thread = {
            let gate = Arc::clone(&gate);
            let body = move |_: &dyn Sys| {
                gate.wait();
            };
            sys.thread(body).unwrap()
        };
        let (done, refused) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let joiners = [(); 2].map(|()| {
            let (done, refused) = (Arc::clone(&done), Arc::clone(&refused));
            sys.thread(move |sys| {
                match sys.join(thread) {
                    Ok(()) => done.fetch_add(1, Relaxed),
                    Err(Errno::EINVAL) => refused.fetch_add(1, Relaxed),
                    Err(_) => 0,
                };
            })
            .unwrap()
        });
        until("one is refused while the thread runs", || refused.load(Relaxed) == 1);
        gate.wait();
        for joiner in joiners {
            sys.join(joiner).unwrap();
        }
        assert_eq!((done.load(Relaxed), refused.load(Relaxed)), (1, 1));
    });
}

#[test]
fn panic_terminates_only_its_thread() {
    play(|sys| {
        std::panic::set_hook(Box::new(|_| {}));
        let thread = sys.thread(|_| panic!("on purpose")).unwrap();
        assert_eq!(sys.join(thread), Ok(()));
    });
}

#[test]
fn forked_child_has_no_threads_of_its_parent() {
    play(|sys| {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let stop = Arc::clone(&stop);
            sys.thread(move |sys| {
                while !stop.load(Relaxed) {
                    sys.sched_yield();
                }
            })
            .unwrap()
        };
        let child = sys.fork(move |sys| {
            assert_eq!(sys.join(thread), Err(Errno::ESRCH));
            let own = sys.thread(|_| {}).unwrap();
            assert_eq!(sys.join(own), Ok(()));
            0
        });
        assert_eq!(end(sys, child.unwrap()), WaitStatus::Exited(0));
        stop.store(true, Relaxed);
        sys.join(thread).unwrap();
    });
}

#[test]
fn thread_signal_is_handled_by_that_thread() {
    play(|sys| {
        let handled_by = Arc::new(AtomicI32::new(0));
        let handler = {
            let handled_by = Arc::clone(&handled_by);
            SigAction::handler(move |sys, _| handled_by.store(sys.gettid().0, Relaxed))
        };
        sys.sigaction(Signal::USR1, Some(handler)).unwrap();
        let thread = {
            let handled_by = Arc::clone(&handled_by);
            sys.thread(move |sys| {
                while handled_by.load(Relaxed) == 0 {
                    sys.sched_yield();
                }
            })
            .unwrap()
        };
        sys.tgkill(sys.getpid(), thread, Some(Signal::USR1)).unwrap();
        sys.join(thread).unwrap();
        assert_eq!(handled_by.load(Relaxed), thread.0);
        assert_eq!(sys.tgkill(sys.getpid(), Tid(0), None), Err(Errno::EINVAL));
        assert_eq!(sys.tgkill(sys.getpid(), Tid(1), None), Err(Errno::ESRCH));
    });
}

#[test]
fn children_of_a_placed_process_run_on_its_processor() {
    play(|sys| {
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
    play(|sys| {
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

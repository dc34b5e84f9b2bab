//! The end of a process that another one traces, against the end of its tracer.

use std::sync::Arc;

#[cfg(any(debug_assertions, feature = "mutations"))]
use tontine_unix::Mutation;
use tontine_unix::{Errno, Limit, Pid, Ptrace, Resource, Signal, Sys, WaitOptions};

use crate::explore::{CONCURRENT, PARALLEL, Race};

fn pauses(sys: &dyn Sys) -> i32 {
    sys.pause();
    0
}

/// Looks again and again whether a child has ended; false if there is no such child.
fn polls(sys: &dyn Sys, child: Pid) -> bool {
    loop {
        match sys.waitpid(child.into(), WaitOptions::NOHANG) {
            Ok(None) => {}
            waited => return waited.is_ok(),
        }
    }
}

/// A tracer kills its tracee and ends; the parent of both polls for the tracee. It ends once: its
/// user has as many processes afterwards as there are.
const TRACER_AGAINST_PARENT: Race = Race {
    scene: || {
        Arc::new(|sys| {
            sys.setuid(7).expect("it may");
            let tracee = sys.fork(pauses).expect("there is room");
            let tracer = sys
                .fork(move |sys| {
                    sys.ptrace(Ptrace::Attach(tracee)).expect("it may");
                    sys.kill(tracee.into(), Some(Signal::KILL)).expect("it is there");
                    (0..5).for_each(|_| sys.sched_yield());
                    0
                })
                .expect("there is room");
            let both = polls(sys, tracee) && polls(sys, tracer);
            let alone = sys.wait() == Err(Errno::ECHILD);
            sys.setrlimit(Resource::Processes, Limit { soft: 1, hard: 1 }).expect("lowered");
            let full = sys.fork(|_| 0) == Err(Errno::EAGAIN);
            i32::from(!(both && alone && full))
        })
    },
    with: |builder| builder,
    modes: CONCURRENT,
    parallel: PARALLEL,
};

#[test]
fn a_traced_process_ends_once_though_its_tracer_ends_with_it() {
    TRACER_AGAINST_PARENT.holds();
}

#[cfg(any(debug_assertions, feature = "mutations"))]
#[test]
fn a_tracer_that_lets_go_before_it_locks_ends_its_tracee_a_second_time() {
    TRACER_AGAINST_PARENT.fails_with(Mutation::TraceeLetGoFirst);
}

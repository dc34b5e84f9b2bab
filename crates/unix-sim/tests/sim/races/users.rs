//! `setuid` in one thread against the creation of a process or thread in another: the user's
//! process count must be correct.

use std::sync::Arc;

use tontine_unix::{Errno, Resource, Rlimit, Sys, WaitOptions};

use crate::races::explore::{PARALLEL, Race, Scene};

/// A program changes its user while it creates a process or thread that ends. Afterwards the new
/// user has one process, and a process limit of one permits no other.
fn counted(makes: fn(&dyn Sys)) -> Scene {
    Arc::new(move |sys| {
        let program = sys.fork(move |sys| {
            let changes = sys.thread(|sys| sys.setuid(7).expect("permitted"));
            makes(sys);
            sys.join(changes.expect("within the limits")).expect("a thread of the caller");
            sys.setrlimit(Resource::Processes, Rlimit { soft: 1, hard: 1 })
                .expect("the limit is lowered");
            i32::from(sys.fork(|_| 0) != Err(Errno::EAGAIN))
        });
        let waited = sys.waitpid(program.expect("within the limits").into(), WaitOptions::empty());
        waited
            .expect("a child of the caller")
            .expect("the wait blocks")
            .status
            .exited()
            .unwrap_or(9)
    })
}

const SETUID_AGAINST_FORK: Race = Race {
    scene: || {
        counted(|sys| {
            let child = sys.fork(|_| 0).expect("within the limits");
            sys.waitpid(child.into(), WaitOptions::empty()).expect("a child of the caller");
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

const SETUID_AGAINST_THREAD: Race = Race {
    scene: || {
        counted(|sys| {
            let thread = sys.thread(|_| {}).expect("within the limits");
            sys.join(thread).expect("a thread of the caller");
        })
    },
    with: |builder| builder,
    parallel: PARALLEL,
};

#[test]
fn process_created_during_setuid_is_counted_once() {
    SETUID_AGAINST_FORK.holds();
}

#[test]
fn thread_created_during_setuid_is_counted_once() {
    SETUID_AGAINST_THREAD.holds();
}

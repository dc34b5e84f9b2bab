//! `setuid` in one thread against the creation of a process or thread in another: the user's
//! process count must be correct.

use tontine_unix::{Errno, Resource, Rlimit, Sys};

use crate::children::{end_of, forked, threaded};
use crate::races::explore::holds;

/// A program changes its user while it creates a process or thread that ends. Afterwards the new
/// user has one process, and a process limit of one permits no other.
fn counted(sys: &dyn Sys, makes: fn(&dyn Sys)) -> i32 {
    let program = forked(sys, move |sys| {
        let changes = threaded(sys, |sys| sys.setuid(7).expect("permitted"));
        makes(sys);
        sys.join(changes).expect("a thread of the caller");
        sys.setrlimit(Resource::Processes, Rlimit { soft: 1, hard: 1 })
            .expect("the limit is lowered");
        i32::from(sys.fork(|_| 0) != Err(Errno::EAGAIN))
    });
    end_of(sys, program).exited().unwrap_or(9)
}

#[test]
fn process_created_during_setuid_is_counted_once() {
    holds(|sys| {
        counted(sys, |sys| {
            let child = forked(sys, |_| 0);
            end_of(sys, child);
        })
    });
}

#[test]
fn thread_created_during_setuid_is_counted_once() {
    holds(|sys| {
        counted(sys, |sys| {
            let thread = threaded(sys, |_| {});
            sys.join(thread).expect("a thread of the caller");
        })
    });
}

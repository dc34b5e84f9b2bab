//! A count that is wrong is found where it is looked at next, in every mode and on both executors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tontine_unix::{Pid, Sys};

use super::inside;
use crate::config::Executor;
use crate::machine::Virtual;
use crate::mode::LockingMode;

const OWN: Pid = Pid::number_only(0);

/// Adds one to what the caller's group counts.
fn miscount(sys: &dyn Sys) {
    let me = sys.getpid();
    inside(|kernel| {
        let proc = kernel.find(me).expect("who asks is there");
        let group = proc.state().expect("it lives").pgrp.clone().expect("it is in a group");
        group.qualify(1);
    });
}

/// What a run says in which a group is miscounted and another one is made, after which the program
/// would go on for ever.
fn said(mode: LockingMode, executor: Executor) -> String {
    let unix = Virtual::builder().mode(mode).executor(executor).pids(300).build();
    let unix = unix.expect("it goes together");
    let run = || {
        unix.run(|sys| {
            miscount(sys);
            let child = sys.fork(|sys| {
                sys.setpgid(OWN, OWN).expect("it may");
                loop {
                    sys.sched_yield();
                }
            });
            sys.waitpid(child.expect("there is room").into(), Default::default()).map_or(1, |_| 0)
        })
    };
    let wrong = catch_unwind(AssertUnwindSafe(run)).expect_err("the check finds it");
    *wrong.downcast::<String>().expect("it says what is wrong")
}

#[test]
fn a_simulated_run_is_checked_after_each_change() {
    for mode in LockingMode::ALL {
        let said = said(mode, Executor::Simulated { seed: 1 });
        assert_eq!(said, "group 2 counts 1 qualified members, expected 0", "{mode}");
    }
}

#[test]
fn a_parallel_run_is_checked_after_each_change_where_one_lock_keeps_all_relations() {
    for mode in LockingMode::ALL.into_iter().filter(|mode| *mode != LockingMode::PerProcess) {
        let said = said(mode, Executor::Parallel);
        assert_eq!(said, "group 2 counts 1 qualified members, expected 0", "{mode}");
    }
}

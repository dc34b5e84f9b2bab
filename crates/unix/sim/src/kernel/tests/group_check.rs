//! Tests that the next check finds a wrong count, in every mode and with both executors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tontine_unix::{Pid, Sys};

use super::inside;
use crate::config::Executor;
use crate::machine::Virtual;
use crate::mode::LockingMode;

const OWN: Pid = Pid::number_only(0);

/// Adds one to the count of the caller's group.
fn miscount(sys: &dyn Sys) {
    let me = sys.getpid();
    inside(|kernel| {
        let proc = kernel.find(me).expect("the caller exists");
        let group = proc.state().expect("a live caller").pgrp.clone().expect("its group");
        group.qualify(1);
    });
}

/// Returns the panic message of a run in which one group is miscounted and another group is
/// created, after which the program would run indefinitely.
fn said(mode: LockingMode, executor: Executor) -> String {
    let unix = Virtual::builder().mode(mode).executor(executor).pids(300).build();
    let unix = unix.expect("the settings are valid");
    let run = || {
        unix.run(|sys| {
            miscount(sys);
            let child = sys.fork(|sys| {
                sys.setpgid(OWN, OWN).expect("setpgid succeeds");
                loop {
                    sys.sched_yield();
                }
            });
            sys.waitpid(child.expect("fork succeeds").into(), Default::default()).map_or(1, |_| 0)
        })
    };
    let wrong = catch_unwind(AssertUnwindSafe(run)).expect_err("the check finds it");
    *wrong.downcast::<String>().expect("a text")
}

#[test]
fn simulated_run_is_checked_after_each_change() {
    for mode in LockingMode::ALL {
        let said = said(mode, Executor::Simulated { seed: 1 });
        assert_eq!(said, "group 2 counts 1 qualified members, expected 0", "{mode}");
    }
}

#[test]
fn parallel_run_is_checked_after_each_change() {
    for mode in LockingMode::ALL {
        let said = said(mode, Executor::Parallel);
        assert_eq!(said, "group 2 counts 1 qualified members, expected 0", "{mode}");
    }
}

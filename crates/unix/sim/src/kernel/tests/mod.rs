//! Tests, from inside the kernel of a running system, of properties that no program can observe.

#![allow(unsafe_code, reason = "a fiber's context is its thread's address")]

mod generation;
#[cfg(debug_assertions)]
mod group_check;

use std::ptr::NonNull;

use tontine_unix::{Sys, WaitStatus};

use super::Kernel;
use super::thread::Thread;
use crate::config::Executor;
use crate::executor;
use crate::machine::{Builder, EndReason, Virtual};
use crate::mode::LockingMode;

/// Runs a program in a small simulated system of each mode. A runnable thread is never preempted,
/// so effects of other threads occur only when the program sleeps.
fn in_each_mode(program: impl Fn(&dyn Sys) + Clone + Send + 'static) {
    for mode in LockingMode::ALL {
        let program = program.clone();
        let executor = Executor::Simulated { seed: 1 };
        let builder: Builder = Virtual::builder().mode(mode).executor(executor);
        let unix = builder.pids(300).max_preemptions(0).stop_at(1_000_000).build().expect("valid");
        let report = unix.run(move |sys| {
            program(sys);
            0
        });
        let ended = (report.ending, report.status, report.panicked.len());
        assert_eq!(ended, (EndReason::Finished, Some(WaitStatus::Exited(0)), 0), "mode {mode}");
    }
}

/// Runs `body` inside the kernel of the virtual program that calls this function, on the processor
/// that the mode requires.
fn inside<R>(body: impl FnOnce(&Kernel) -> R) -> R {
    let thread = NonNull::new(executor::context() as *mut Thread).expect("a virtual program");
    // SAFETY: the context of a running fiber is its thread, which the fiber keeps alive.
    let kernel = unsafe { thread.as_ref() }.kernel.get();
    executor::enter_kernel();
    let result = kernel.on_master(|| body(kernel));
    executor::leave_kernel();
    result
}

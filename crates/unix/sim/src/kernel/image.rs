//! The program that a process is about to run ([`ProgramImage`]), and the report of a spawned child
//! that could not run it ([`ExecFailure`]).

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use tontine_unix::{Errno, Sys};

use crate::config::Registered;
use crate::executor::Fiber;

/// A program that a process is about to run, and its arguments.
#[derive(Clone)]
pub(super) struct ProgramImage {
    pub(super) name: Arc<str>,
    pub(super) program: Registered,
    pub(super) arguments: Vec<String>,
}

impl ProgramImage {
    /// Runs the program.
    pub(super) fn run(&self, sys: &dyn Sys) -> i32 {
        (self.program)(sys, &self.arguments)
    }
}

/// The result that a spawned child reports to its parent: 0 if exec succeeded, otherwise the error.
#[derive(Default)]
pub(super) struct ExecResult {
    /// −1 until the result is reported.
    result: AtomicI32,
    parent: OnceLock<Fiber>,
}

/// The child's end of a report. Dropping it reports success: exec has succeeded, or the child was
/// killed first, in which case its creation still counts as a success.
pub(super) struct ExecReporter(pub(super) Option<Arc<ExecResult>>);

impl ExecReporter {
    /// Returns the report, for a caller that reports a different result.
    pub(super) fn report(mut self) -> Arc<ExecResult> {
        self.0.take().expect("a report is taken once")
    }
}

impl Drop for ExecReporter {
    fn drop(&mut self) {
        if let Some(report) = &self.0 {
            report.publish(0);
        }
    }
}

/// The error of a spawned child that could not exec. The child ends without notifying the threads
/// that wait for children; the process that removes its remains reports the error to its creator.
pub(super) struct ExecFailure {
    pub(super) report: Arc<ExecResult>,
    pub(super) errno: Errno,
}

impl ExecFailure {
    /// Reports the error. Called after the child has been removed.
    pub(super) fn publish(self) {
        self.report.publish(self.errno.raw());
    }
}

impl ExecResult {
    pub(super) fn expect(&self, parent: Fiber) {
        self.result.store(-1, Ordering::Relaxed);
        let _ = self.parent.set(parent);
    }

    fn publish(&self, errno: i32) {
        // SYNC spawned: pairs with `ExecResult::result`.
        self.result.store(errno, Ordering::Release);
        if let Some(parent) = self.parent.get() {
            parent.unpark();
        }
    }

    pub(super) fn result(&self) -> Option<i32> {
        // SYNC spawned: pairs with `ExecResult::publish`.
        Some(self.result.load(Ordering::Acquire)).filter(|result| *result != -1)
    }
}

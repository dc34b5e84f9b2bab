//! Control over the calls of a scenario's threads: [`StepControl`].
//!
//! Without a [`StepControl`], threads run as their system schedules them. With a [`StepControl`],
//! each thread stops at a *gate* before each call until it is released, and each new thread is
//! assigned a [`ThreadOrdinal`], an identifier that does not depend on the system. The two
//! implementations are in [`check`](crate::check).

use std::fmt::Display;
use std::time::Duration;

use tontine_unix::Sys;

use super::ast::SourceLine;
use super::log::Log;

/// A thread of a run, identified by the order in which threads were requested. The ordinals are the
/// same on every system as long as the same threads are released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ThreadOrdinal(pub(crate) u32);

impl ThreadOrdinal {
    /// The process that begins the run: `init` in the text.
    pub(crate) const INIT: Self = Self(0);
}

/// The kind of a thread to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpawnKind {
    Process,
    /// A thread of the caller's process.
    Thread,
}

/// The executable for a process of the scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessProgram {
    pub(crate) path: String,
    /// An additional first argument, before the arguments that the process receives.
    pub(crate) mark: Option<&'static str>,
}

/// A call that a thread is about to make.
pub(crate) struct NextCall<'d> {
    /// The line of the call.
    pub(crate) line: u32,
    /// The call. Printing it allocates nothing.
    pub(crate) what: &'d dyn Display,
    /// The time after which the call ends, unless an event ends it earlier.
    pub(crate) timeout: Option<Duration>,
    /// The descriptor that the call writes to, which may be a terminal's.
    pub(crate) writes: Option<i32>,
    /// The descriptor that the call reads from.
    pub(crate) reads: Option<i32>,
}

impl<'d> NextCall<'d> {
    /// Returns the end of a process or thread as a call, made after the last statement of its
    /// block.
    pub(crate) fn end(source: SourceLine) -> Self {
        Self::simple(source, &"its end")
    }

    /// Returns a call that neither sets a timer nor reads or writes a descriptor.
    pub(crate) fn simple(source: SourceLine, what: &'d dyn Display) -> Self {
        Self { line: source.line, what, timeout: None, writes: None, reads: None }
    }
}

/// Controls when threads make their calls (see the module documentation). Handlers also call
/// [`Log`], [`StepControl::gate`], [`StepControl::lasting`], [`StepControl::alarm`] and
/// [`StepControl::passed`]; on Linux these do not allocate. Handlers create no processes or
/// threads, and do not call exec.
pub(crate) trait StepControl: Log {
    /// Blocks the caller until it may make its next call. Handlers may run during the wait.
    fn gate(&self, sys: &dyn Sys, due: &NextCall<'_>);
    /// Records that the call has been made.
    fn passed(&self, due: &NextCall<'_>);
    /// Returns the duration to request for a call that ends after `duration`.
    fn lasting(&self, duration: Duration) -> Duration {
        duration
    }
    /// Makes the call `alarm`.
    fn alarm(&self, sys: &dyn Sys, seconds: u32) -> u32 {
        sys.alarm(seconds)
    }
    /// Assigns an ordinal to the process or thread that the caller is about to create.
    fn expect(&self, sys: &dyn Sys, kind: SpawnKind) -> ThreadOrdinal;
    /// Records the number of the created process or thread, or that the creation failed.
    fn made(&self, ordinal: ThreadOrdinal, number: Option<i32>);
    /// Returns the program that runs this process of the scenario.
    fn image(&self, process: &str) -> ProcessProgram {
        ProcessProgram { path: process.to_owned(), mark: None }
    }
    /// Announces that the caller is about to call exec, and returns the ordinal with which its
    /// process continues.
    fn executes(&self, sys: &dyn Sys) -> ThreadOrdinal;
    /// Records that exec failed and the process continues.
    fn exec_failed(&self, _: ThreadOrdinal) {}
    /// Assigns the calling thread its ordinal.
    fn take_ordinal(&self, sys: &dyn Sys, ordinal: ThreadOrdinal);
}

//! Who decides when a thread of a scenario makes its next call: [`Conduct`].
//!
//! Without one, threads run as their system lets them. With one, each stands at a *gate* before
//! each call until it is let through, and what it makes has a *seat*: a name that does not depend
//! on the system. The two conductors are [`check`](crate::check)'s.

use std::fmt::Display;
use std::time::Duration;

use tontine_unix::Sys;

use super::ast::SourceLine;
use super::log::Log;

/// A thread of a run, by the order in which they were asked for: the same on every system as long
/// as the same threads were let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Seat(pub(crate) u32);

impl Seat {
    /// Who begins the run: `init` in the text.
    pub(crate) const INIT: Self = Self(0);
}

/// What is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A process.
    Process,
    /// A thread of the caller's process.
    Thread,
}

/// A program that runs a process of the scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) path: String,
    /// An argument that stands before those which the process is handed.
    pub(crate) mark: Option<&'static str>,
}

/// A call that a thread is about to make.
pub(crate) struct Due<'d> {
    /// Its line.
    pub(crate) line: u32,
    /// The call. Printing it allocates nothing.
    pub(crate) what: &'d dyn Display,
    /// Time after which it ends, if nothing ends it before.
    pub(crate) timeout: Option<Duration>,
    /// The descriptor to which it writes, which may be a terminal's.
    pub(crate) writes: Option<i32>,
    /// The descriptor from which it reads.
    pub(crate) reads: Option<i32>,
}

impl<'d> Due<'d> {
    /// What comes behind the last statement of a block: the end of its process or thread.
    pub(crate) fn end(source: SourceLine) -> Self {
        Self::simple(source, &"its end")
    }

    /// Returns a call that neither sets a timer nor reads or writes a descriptor.
    pub(crate) fn simple(source: SourceLine, what: &'d dyn Display) -> Self {
        Self { line: source.line, what, timeout: None, writes: None, reads: None }
    }
}

/// See the module. Handlers call the [`Log`] too, and [`Conduct::gate`], [`Conduct::lasting`],
/// [`Conduct::alarm`] and [`Conduct::passed`]; on Linux these do not allocate. Handlers create no
/// processes or threads, and execute no program.
pub(crate) trait Conduct: Log {
    /// Holds the caller until it may make its next call. Handlers run meanwhile.
    fn gate(&self, sys: &dyn Sys, due: &Due<'_>);
    /// The call has been made.
    fn passed(&self, due: &Due<'_>);
    /// How long a call really takes that is to end by itself after so long.
    fn lasting(&self, duration: Duration) -> Duration {
        duration
    }
    /// Makes the call `alarm`.
    fn alarm(&self, sys: &dyn Sys, seconds: u32) -> u32 {
        sys.alarm(seconds)
    }
    /// Gives what the caller is about to make a seat.
    fn expect(&self, sys: &dyn Sys, kind: Kind) -> Seat;
    /// It was made and has this number, or was not.
    fn made(&self, seat: Seat, number: Option<i32>);
    /// What is executed to run this process of the scenario.
    fn image(&self, process: &str) -> Image {
        Image { path: process.to_owned(), mark: None }
    }
    /// The caller is about to execute; its process goes on in this seat.
    fn executes(&self, sys: &dyn Sys) -> Seat;
    /// It could not, and stays what it is.
    fn stays(&self, _: Seat) {}
    /// The caller is the one in this seat.
    fn sit(&self, sys: &dyn Sys, seat: Seat);
}

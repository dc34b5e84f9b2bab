//! Publicly reported races, as programs: [`Race`], [`RACES`].
//!
//! Each file cites its report, and contains the program with and without the mistake. The programs
//! depend neither on a backend nor on the search for schedules.

mod early_handler;
mod late_kill;
mod lost_signal;
mod one_a_signal;
mod taken_terminal;
mod two_waiters;

use tontine_unix::Sys;

/// A program that exits with 0 if it succeeds. The program creates everything that its threads
/// share, so that each run starts from the same state.
pub(crate) type Program = fn(&dyn Sys) -> i32;

/// A race of a published program, with and without the mistake.
#[derive(Clone, Copy)]
pub(crate) struct Race {
    /// The name of the race.
    pub(crate) name: &'static str,
    /// The project in which it occurred.
    pub(crate) project: &'static str,
    /// The address of the report.
    pub(crate) report: &'static str,
    /// A summary of the failure, in one line.
    pub(crate) what: &'static str,
    /// The program with the mistake.
    pub(crate) wrong: Program,
    /// The program with the fix.
    pub(crate) right: Program,
}

/// Maximum number of preemptions in the exploration. One suffices for each mistake.
pub(crate) const BOUND: u32 = 2;

/// All races.
pub(crate) const RACES: [Race; 6] = [
    two_waiters::RACE,
    late_kill::RACE,
    taken_terminal::RACE,
    lost_signal::RACE,
    one_a_signal::RACE,
    early_handler::RACE,
];

/// Returns the race with this name.
pub(crate) fn find(name: &str) -> Option<&'static Race> {
    RACES.iter().find(|race| race.name == name)
}

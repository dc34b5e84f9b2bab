//! Races that were reported in public, as programs: [`Race`], [`RACES`].
//!
//! Each file names its report, and has the program with the mistake and without. They know no
//! backend, and nothing of how schedules are found.

mod early_handler;
mod late_kill;
mod lost_signal;
mod one_a_signal;
mod taken_terminal;
mod two_waiters;

use tontine_unix::Sys;

/// A program that exits with 0 if all went well. It makes all that its threads share, so that each
/// run begins anew.
pub(crate) type Program = fn(&dyn Sys) -> i32;

/// A race of somebody's program, with the mistake and without.
#[derive(Clone, Copy)]
pub(crate) struct Race {
    /// How it is called here.
    pub(crate) name: &'static str,
    /// Whose program it was.
    pub(crate) project: &'static str,
    /// Where it was reported.
    pub(crate) report: &'static str,
    /// What goes wrong, in a line.
    pub(crate) what: &'static str,
    /// With the mistake.
    pub(crate) wrong: Program,
    /// With what keeps it right.
    pub(crate) right: Program,
}

/// Preemptions with which all schedules are gone through. Each mistake shows with one.
pub(crate) const BOUND: u32 = 2;

/// All of them.
pub(crate) const RACES: [Race; 6] = [
    two_waiters::RACE,
    late_kill::RACE,
    taken_terminal::RACE,
    lost_signal::RACE,
    one_a_signal::RACE,
    early_handler::RACE,
];

/// The one of this name.
pub(crate) fn find(name: &str) -> Option<&'static Race> {
    RACES.iter().find(|race| race.name == name)
}

//! Looks for a schedule at which a program goes wrong: [`find`], and [`replay`] once more.

use tontine_unix::{Ending, Executor, Report, Status, Virtual};

use crate::races::Program;

/// A program that makes more steps goes round in circles.
const MOST_STEPS: u64 = 200_000;

/// A schedule at which a program went wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The seed that makes it.
    pub(crate) seed: u64,
    /// What was seen.
    pub(crate) seen: String,
}

/// The first of so many seeds at which the program goes wrong.
pub(crate) fn find(program: Program, seeds: u64) -> Option<Found> {
    (0..seeds).find_map(|seed| replay(program, seed))
}

/// Runs it at this seed; what was seen if it went wrong.
pub(crate) fn replay(program: Program, seed: u64) -> Option<Found> {
    let builder = Virtual::builder().executor(Executor::Simulated { seed }).processors(2);
    let unix = builder.stop_at(MOST_STEPS).build().expect("it goes together");
    let report = unix.run(program);
    (!held(&report)).then(|| Found { seed, seen: told(&report) })
}

fn held(report: &Report) -> bool {
    report.ending == Ending::Finished
        && report.status == Some(Status::Exited(0))
        && report.panicked.is_empty()
}

fn told(report: &Report) -> String {
    let state = report.state.as_ref().map(ToString::to_string).unwrap_or_default();
    match report.status {
        Some(status) => format!("it {status}"),
        None => format!("{:?}\n{state}", report.ending),
    }
}

//! The `tontine-measure` command: measures, compares, explains, and kills.
//!
//! Floors, from the bottom up: `args`; `progress`, `summary`, `table`; `results`, `repetitions`;
//! `own`, `reproduction`; `compare`, `crash`, `doctor`, `explain`, `list`, `measure`.

mod args;
mod compare;
mod crash;
mod doctor;
mod explain;
mod list;
mod measure;
mod own;
mod progress;
mod repetitions;
mod reproduction;
mod results;
mod summary;
mod table;

#[cfg(test)]
#[path = "../../bench/tests/fixture/mod.rs"]
mod fixture;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tontine_command::{CommandFailure, exit_code};
use tontine_experiments::as_published;

use crate::args::{MeasureArguments, MeasureCommand};

fn main() -> ExitCode {
    let cli = MeasureArguments::parse();
    let done = match cli.command {
        None => measure::measure(&cli.measure),
        Some(MeasureCommand::List(args)) => list::list(&args),
        Some(MeasureCommand::Explain(args)) => explain::explain(&args),
        Some(MeasureCommand::Compare(args)) => compare::compare(&args),
        Some(MeasureCommand::Doctor(args)) => doctor::doctor(&args),
        Some(MeasureCommand::Crash(args)) => crash::crash(&args),
        Some(MeasureCommand::Documentation(which)) => which.print(MeasureArguments::command()),
        Some(MeasureCommand::Invocation) => {
            served(tontine_bench::engine::invoked::serve(as_published::measure_here))
        }
        Some(MeasureCommand::Container { order }) => {
            served(tontine_experiments::round_trip::container::serve(&order))
        }
        Some(MeasureCommand::Actor { target, folder }) => {
            served(tontine_crash::actor::serve(&target, &folder))
        }
    };
    exit_code("tontine-measure", done)
}

fn served(done: std::io::Result<()>) -> Result<ExitCode, CommandFailure> {
    done.map(|()| ExitCode::SUCCESS).map_err(CommandFailure::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_follows_the_rules() {
        tontine_command::help::check(MeasureArguments::command());
    }
}

//! `tontine unix`: a Unix in user space, from the command line.

mod bound;
mod check;
mod document;
mod explore;
mod random;
mod run;
mod shell;

use std::process::ExitCode;

use tontine_unix_sim::{Delivery, LockingMode, Masks};

use crate::CommandFailure;
use crate::args::{self, RunScenario, Unix, UnixCommand};

/// Runs a subcommand of `unix`.
pub(crate) fn unix(asked: &Unix) -> Result<ExitCode, CommandFailure> {
    match &asked.command {
        UnixCommand::Run(asked) => run::run(asked),
        UnixCommand::Check(asked) => check::check(asked),
        UnixCommand::Explore(asked) => explore::explore(asked),
        UnixCommand::Shell(asked) => shell::shell(asked),
    }
}

/// Converts an argument into the library's type.
fn delivery(asked: args::DeliveryName) -> Delivery {
    match asked {
        args::DeliveryName::Oldest => Delivery::Oldest,
        args::DeliveryName::AnyUnblocked => Delivery::AnyUnblocked,
    }
}

/// Converts an argument into the library's type.
fn masks(asked: args::MasksName) -> Masks {
    match asked {
        args::MasksName::PerProcess => Masks::PerProcess,
        args::MasksName::PerThread => Masks::PerThread,
    }
}

/// Converts an argument into the library's type.
fn mode(asked: args::ModeName) -> LockingMode {
    match asked {
        args::ModeName::Uniprocessor => LockingMode::Uniprocessor,
        args::ModeName::Master => LockingMode::Master,
        args::ModeName::Coarse => LockingMode::Coarse,
        args::ModeName::Parallel => LockingMode::Parallel,
        args::ModeName::PerProcess => LockingMode::PerProcess,
    }
}

/// Returns the requested number of processors. The default is 2, or 1 in mode uniprocessor.
fn processors(asked: &RunScenario) -> usize {
    let usual = if asked.mode == args::ModeName::Uniprocessor { 1 } else { 2 };
    asked.processors.map_or(usual, usize::from)
}

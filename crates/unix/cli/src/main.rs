//! The `tontine-unix` command: a Unix in user space, from the command line.
//!
//! Floors, from the bottom up: `args`; `bound`, `document`; `random`, `run`, `shell`; `check`,
//! `explore`.

mod args;
mod bound;
mod check;
mod document;
mod explore;
mod random;
mod run;
mod shell;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tontine_command::exit_code;
use tontine_unix_sim::{Delivery, LockingMode, Masks};

use crate::args::{RunScenario, UnixArguments, UnixCommand};

fn main() -> ExitCode {
    let done = match UnixArguments::parse().command {
        UnixCommand::Run(args) => run::run(&args),
        UnixCommand::Check(args) => check::check(&args),
        UnixCommand::Explore(args) => explore::explore(&args),
        UnixCommand::Shell(args) => shell::shell(&args),
        UnixCommand::Documentation(which) => which.print(UnixArguments::command()),
    };
    exit_code("tontine-unix", done)
}

/// Converts an argument into the library's type.
fn delivery(args: args::DeliveryName) -> Delivery {
    match args {
        args::DeliveryName::Oldest => Delivery::Oldest,
        args::DeliveryName::AnyUnblocked => Delivery::AnyUnblocked,
    }
}

/// Converts an argument into the library's type.
fn masks(args: args::MasksName) -> Masks {
    match args {
        args::MasksName::PerProcess => Masks::PerProcess,
        args::MasksName::PerThread => Masks::PerThread,
    }
}

/// Converts an argument into the library's type.
fn mode(args: args::ModeName) -> LockingMode {
    match args {
        args::ModeName::Uniprocessor => LockingMode::Uniprocessor,
        args::ModeName::Master => LockingMode::Master,
        args::ModeName::Parallel => LockingMode::Parallel,
    }
}

/// Returns the requested number of processors. The default is 2, or 1 in mode uniprocessor.
fn processors(args: &RunScenario) -> usize {
    let usual = if args.mode == args::ModeName::Uniprocessor { 1 } else { 2 };
    args.processors.map_or(usual, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_follows_the_rules() {
        tontine_command::help::check(UnixArguments::command());
    }
}

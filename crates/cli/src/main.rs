//! The `tontine` command: sends and receives messages, runs a gateway, and starts the project's
//! other programs.
//!
//! Floors, from the bottom up: `args`; `bridge`, `dispatch`, `mail`.

mod args;
mod bridge;
mod dispatch;
mod mail;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tontine_command::exit_code;

use crate::args::{TontineArguments, TontineCommand};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let done = match dispatch::help_words(&arguments) {
        Some(words) => Err(dispatch::run(&words)),
        None => match TontineArguments::parse().command {
            TontineCommand::Recv(args) => mail::recv(&args),
            TontineCommand::Send(args) => mail::send(&args),
            TontineCommand::Bridge(args) => bridge::bridge(&args),
            TontineCommand::Documentation(which) => which.print(TontineArguments::command()),
            TontineCommand::Other(words) => Err(dispatch::run(&words)),
        },
    };
    exit_code("tontine", done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_follows_the_rules() {
        tontine_command::help::check(TontineArguments::command());
    }
}

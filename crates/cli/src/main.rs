//! The `tontine` command: parses, calls, prints. What it does stands in the libraries.
//!
//! Floors, from the bottom up: `args`; `progress`, `table`; `results`, `repetitions`;
//! `reproduction`; `compare`, `crash`, `doctor`, `explain`, `list`, `mail`, `measure`, `unix`.

mod args;
mod compare;
mod crash;
mod doctor;
mod explain;
mod list;
mod mail;
mod measure;
mod progress;
mod repetitions;
mod reproduction;
mod results;
mod table;
mod unix;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use tontine_experiments::SUITE;

use crate::args::{Cli, Command};

/// Something could not be done; what, was said on standard error.
const FAILED: u8 = 1;

/// The command was used wrongly; clap uses the same number.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Measure(asked) => measure::measure(&asked),
        Command::List(asked) => list::list(&asked),
        Command::Explain(asked) => explain::explain(&asked),
        Command::Recv(asked) => mail::recv(&asked),
        Command::Send(asked) => mail::send(&asked),
        Command::Compare(asked) => compare::compare(&asked),
        Command::Doctor(asked) => doctor::doctor(&asked),
        Command::Crash(asked) => crash::crash(&asked),
        Command::Unix(asked) => unix::unix(&asked),
        Command::Man => manual_page().map(|()| ExitCode::SUCCESS).map_err(Refusal::from),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut args::definition(), "tontine", &mut text);
            print(&text).map(|()| ExitCode::SUCCESS).map_err(Refusal::from)
        }
        Command::Invocation => tontine_bench::engine::invoked::serve(&SUITE)
            .map(|()| ExitCode::SUCCESS)
            .map_err(Refusal::from),
        Command::Container { order } => tontine_experiments::round_trip::container::serve(&order)
            .map(|()| ExitCode::SUCCESS)
            .map_err(Refusal::from),
        Command::Actor { target, folder } => tontine_crash::actor::serve(&target, &folder)
            .map(|()| ExitCode::SUCCESS)
            .map_err(Refusal::from),
    };
    done.unwrap_or_else(|refusal| {
        let _ = writeln!(io::stderr(), "tontine: {}", refusal.why);
        ExitCode::from(refusal.status)
    })
}

/// The exit status of one that a signal ended.
pub(crate) fn stopped_by(signal: i32) -> ExitCode {
    ExitCode::from(signalled(signal))
}

/// Its number.
pub(crate) fn signalled(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(FAILED)
}

/// Why a command was not carried out, and its exit status.
pub(crate) struct Refusal {
    why: String,
    status: u8,
}

impl Refusal {
    /// The command was used wrongly.
    pub(crate) fn usage(why: impl ToString) -> Self {
        Self { why: why.to_string(), status: USAGE }
    }

    /// It could not be done.
    pub(crate) fn failed(why: impl ToString) -> Self {
        Self { why: why.to_string(), status: FAILED }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::failed(error)
    }
}

/// Writes to standard output. That nobody reads any more (`| head`) is no error.
pub(crate) fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// One page for the command and one for each of its commands, and theirs, in one roff text.
fn manual_page() -> io::Result<()> {
    let mut text = Vec::new();
    pages(&args::definition(), "tontine", &mut text)?;
    print(&text)
}

fn pages(command: &clap::Command, title: &str, text: &mut Vec<u8>) -> io::Result<()> {
    clap_mangen::Man::new(command.clone()).title(title).render(text)?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, &format!("{title}-{}", below.get_name()), text)?;
    }
    Ok(())
}

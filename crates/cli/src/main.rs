//! The `tontine` command, which parses arguments, calls the libraries, and prints their results.
//!
//! Floors, from the bottom up: `args`; `progress`, `summary`, `table`; `results`, `repetitions`;
//! `own`, `reproduction`; `bridge`, `compare`, `crash`, `doctor`, `explain`, `list`, `mail`,
//! `measure`, `unix`.

mod args;
mod bridge;
mod compare;
mod crash;
mod doctor;
mod explain;
mod list;
mod mail;
mod measure;
mod own;
mod progress;
mod repetitions;
mod reproduction;
mod results;
mod summary;
mod table;
mod unix;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use textwrap::Options;
use tontine_experiments::as_published;

use crate::args::{Cli, Command};

/// Exit status of a failure, whose message is on standard error.
const FAILED: u8 = 1;

/// Exit status of wrong usage, which is the same as clap's.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Measure(asked) => measure::measure(&asked),
        Command::List(asked) => list::list(&asked),
        Command::Explain(asked) => explain::explain(&asked),
        Command::Recv(asked) => mail::recv(&asked),
        Command::Send(asked) => mail::send(&asked),
        Command::Bridge(asked) => bridge::bridge(&asked),
        Command::Compare(asked) => compare::compare(&asked),
        Command::Doctor(asked) => doctor::doctor(&asked),
        Command::Crash(asked) => crash::crash(&asked),
        Command::Unix(asked) => unix::unix(&asked),
        Command::Man => manual_page().map(|()| ExitCode::SUCCESS).map_err(CommandFailure::from),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut args::definition(), "tontine", &mut text);
            print(&text).map(|()| ExitCode::SUCCESS).map_err(CommandFailure::from)
        }
        Command::Invocation => tontine_bench::engine::invoked::serve(as_published::measure_here)
            .map(|()| ExitCode::SUCCESS)
            .map_err(CommandFailure::from),
        Command::Container { order } => tontine_experiments::round_trip::container::serve(&order)
            .map(|()| ExitCode::SUCCESS)
            .map_err(CommandFailure::from),
        Command::Actor { target, folder } => tontine_crash::actor::serve(&target, &folder)
            .map(|()| ExitCode::SUCCESS)
            .map_err(CommandFailure::from),
    };
    done.unwrap_or_else(|refusal| {
        let _ = writeln!(io::stderr(), "tontine: {}", refusal.why);
        ExitCode::from(refusal.status)
    })
}

/// Returns the exit code of a command that a signal ended.
pub(crate) fn stopped_by(signal: i32) -> ExitCode {
    ExitCode::from(signalled(signal))
}

/// Returns the exit status of a command that a signal ended: 128 plus the signal's number.
pub(crate) fn signalled(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(FAILED)
}

/// An error of a command: its message and exit status.
pub(crate) struct CommandFailure {
    why: String,
    status: u8,
}

impl CommandFailure {
    /// Returns an error of wrong usage.
    pub(crate) fn usage(why: impl ToString) -> Self {
        Self { why: why.to_string(), status: USAGE }
    }

    /// Returns an error of a command that was used correctly.
    pub(crate) fn failed(why: impl ToString) -> Self {
        Self { why: why.to_string(), status: FAILED }
    }

    /// Returns a conversion from an I/O error to a failure whose message states what failed.
    pub(crate) fn cannot(what: &str) -> impl Fn(io::Error) -> Self {
        move |error| Self::failed(format!("cannot {what}: {error}"))
    }
}

impl From<io::Error> for CommandFailure {
    fn from(error: io::Error) -> Self {
        Self::failed(error)
    }
}

/// Writes to standard output. Returns `Ok` if the reader of standard output has ended (`| head`).
pub(crate) fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("cannot write to standard output: {error}; redirect it elsewhere"),
        )),
        Ok(()) => Ok(()),
    }
}

/// Wraps a paragraph to [`args::WIDTH`] columns, with `first` before its first line and `rest`
/// before all other lines.
pub(crate) fn fill(first: &str, rest: &str, text: &str) -> String {
    let options = Options::new(args::WIDTH).initial_indent(first).subsequent_indent(rest);
    textwrap::fill(text, options.break_words(false))
}

/// Prints one page for the command and one for each of its subcommands, as one roff text.
fn manual_page() -> io::Result<()> {
    let mut text = Vec::new();
    pages(&args::definition(), "tontine", &mut text)?;
    print(&text)
}

fn pages(command: &clap::Command, title: &str, text: &mut Vec<u8>) -> io::Result<()> {
    let usage = title.replace('-', " ");
    let named = command.clone().display_name(title).bin_name(usage);
    clap_mangen::Man::new(named).title(title).render(text)?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, &format!("{title}-{}", below.get_name()), text)?;
    }
    Ok(())
}

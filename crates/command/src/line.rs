//! The command line of a command: its errors, exit statuses, output and documentation.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Subcommand;
use clap_complete::Shell;
use textwrap::Options;

/// Exit status of a failure, whose message is on standard error.
pub const FAILED: u8 = 1;

/// Exit status of wrong usage, which is the same as clap's.
pub const USAGE: u8 = 2;

/// Maximum width of help and explanations in columns, also used without a terminal.
pub const WIDTH: usize = 80;

/// An error of a command: its message and exit status.
#[derive(Debug)]
pub struct CommandFailure {
    why: String,
    status: u8,
}

impl CommandFailure {
    /// Returns an error of wrong usage.
    pub fn usage(why: impl ToString) -> Self {
        Self { why: why.to_string(), status: USAGE }
    }

    /// Returns an error of a command that was used correctly.
    pub fn failed(why: impl ToString) -> Self {
        Self { why: why.to_string(), status: FAILED }
    }

    /// Returns a conversion from an I/O error to a failure whose message states what failed.
    pub fn cannot(what: &str) -> impl Fn(io::Error) -> Self {
        move |error| Self::failed(format!("cannot {what}: {error}"))
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl From<io::Error> for CommandFailure {
    fn from(error: io::Error) -> Self {
        Self::failed(error)
    }
}

/// Returns the exit code of `command`, and reports its failure on standard error.
pub fn exit_code(command: &str, done: Result<ExitCode, CommandFailure>) -> ExitCode {
    done.unwrap_or_else(|failure| {
        let _ = writeln!(io::stderr(), "{command}: {failure}");
        ExitCode::from(failure.status)
    })
}

/// Returns the exit code of a command that a signal ended.
pub fn stopped_by(signal: i32) -> ExitCode {
    ExitCode::from(signalled(signal))
}

/// Returns the exit status of a command that a signal ended: 128 plus the signal's number.
pub fn signalled(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(FAILED)
}

/// Writes to standard output. Returns `Ok` if the reader of standard output has ended (`| head`).
///
/// # Errors
/// Fails if standard output cannot be written for another reason.
pub fn print(text: &[u8]) -> io::Result<()> {
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

/// Wraps a paragraph to [`WIDTH`] columns, with `first` before its first line and `rest` before all
/// other lines.
#[must_use]
pub fn fill(first: &str, rest: &str, text: &str) -> String {
    let options = Options::new(WIDTH).initial_indent(first).subsequent_indent(rest);
    textwrap::fill(text, options.break_words(false))
}

/// Subcommands that print what packages install next to the command.
#[derive(Debug, Subcommand)]
pub enum Documentation {
    /// Print the manual page (roff).
    Man,
    /// Print completions for a shell.
    Completions {
        /// Shell to print the completions for.
        shell: Shell,
    },
}

impl Documentation {
    /// Prints the documentation of a command with this definition.
    ///
    /// # Errors
    /// Fails if standard output cannot be written.
    pub fn print(&self, mut definition: clap::Command) -> Result<ExitCode, CommandFailure> {
        let name = definition.get_name().to_owned();
        let mut text = Vec::new();
        match self {
            Self::Man => manual_pages(&definition, &name, &mut text)?,
            Self::Completions { shell } => {
                clap_complete::generate(*shell, &mut definition, name, &mut text);
            }
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Adds one page for the command and one for each of its subcommands, as one roff text.
fn manual_pages(command: &clap::Command, title: &str, text: &mut Vec<u8>) -> io::Result<()> {
    let usage = command.get_bin_name().unwrap_or(title).to_owned();
    let named = command.clone().display_name(title).bin_name(&usage);
    clap_mangen::Man::new(named).title(title).render(text)?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let name = below.get_name();
        let named = below.clone().bin_name(format!("{usage} {name}"));
        manual_pages(&named, &format!("{title}-{name}"), text)?;
    }
    Ok(())
}

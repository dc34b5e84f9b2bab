//! Arguments of `measure` for the user's own commands, and the formats of its output.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

/// The user's own commands, and how to measure them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Your own commands")]
pub(crate) struct OwnArguments {
    /// Measure your own command, or two in pairs: tontine-measure -- ./a --x 1 -- ./b.
    #[arg(last = true, value_name = "COMMAND")]
    #[arg(conflicts_with_all = ["names", "all", "plan", "as_published", "samples", "out"])]
    pub(crate) words: Vec<OsString>,

    /// End the measured time when the command writes to descriptor FD (3 or above), then stop the
    /// command.
    #[arg(long, value_name = "FD", requires = "words")]
    #[arg(value_parser = clap::value_parser!(i32).range(3..=65_535))]
    pub(crate) ready: Option<i32>,
}

impl OwnArguments {
    /// Returns the commands, which `--` separates, each with its arguments.
    pub(crate) fn commands(&self) -> Vec<&[OsString]> {
        self.words.split(|word| word == "--").collect()
    }
}

/// Format of the standard output of `measure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunFormat {
    /// Text for a terminal.
    Text,
    /// JSON, for programs.
    Json,
    /// Bencher Metric Format, for bencher run --adapter json.
    Bencher,
    /// JSON for github-action-benchmark, tool customSmallerIsBetter.
    Github,
}

//! The command line: one definition for parsing, `--help`, the manual page and the completions.

mod unix;

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use tontine_experiments::round_trip::container::COMMAND as CONTAINER;

pub(crate) use unix::{
    CheckScenario, DeliveryName, ExecutorName, ExploreScenario, MasksName, ModeName, RunScenario,
    Shown, Unix, UnixCommand, UnixShell,
};

/// Messages between Linux processes that survive `kill -9`, and the tool that measures what that
/// costs.
#[derive(Debug, Parser)]
#[command(name = "tontine", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "\
Start with:
  tontine measure --quick                    measures this machine in minutes
  tontine doctor                             says what spoils measurements here
  tontine recv @jobs                         and in another terminal:
  echo hello | tontine send @jobs            one message

`tontine help COMMAND` has examples, and says what the exit status means.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure what each mechanism costs on this machine, and write a report.
    Measure(Measure),
    /// List the experiments and their variants.
    List(List),
    /// Explain an experiment to somebody who meets its topic for the first time.
    Explain(Explain),
    /// Receive messages at a path and print them, one a line.
    Recv(Recv),
    /// Send the lines of standard input as messages to whoever receives at a path.
    Send(Send),
    /// Compare two runs of `measure`, row by row; exit status 1 on a regression.
    Compare(Compare),
    /// Say what on this machine spoils measurements, and how to mend it. Changes nothing.
    Doctor(Doctor),
    /// Kill processes at every instruction of an operation, and see who wedges.
    Crash(Crash),
    /// Run process and signal code on a Unix in user space.
    Unix(Unix),
    /// Print the manual page (roff).
    Man,
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Serve one invocation: reads an order from standard input, answers on standard output.
    #[command(name = INVOCATION, hide = true)]
    Invocation,
    /// Serve as one end inside a container: obeys an order, answers on standard output.
    #[command(name = CONTAINER, hide = true)]
    Container {
        /// The order, as JSON.
        order: String,
    },
    /// Serve as an actor: obeys orders from standard input, answers on standard output.
    #[command(name = ACTOR, hide = true)]
    Actor {
        /// The target's name.
        target: OsString,
        /// The folder of its run.
        folder: OsString,
    },
}

/// The hidden command by which `measure` starts itself afresh for each invocation.
pub(crate) const INVOCATION: &str = "__invocation";

/// The hidden command by which `crash` starts itself afresh for each process of a script.
pub(crate) const ACTOR: &str = "__actor";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tontine measure                            everything, in less than 12 minutes
  tontine measure --quick                    everything, a look
  tontine measure round-trip                 one experiment
  tontine measure round-trip/futex liveness-check/kill-0
                                             two variants
  tontine measure survival death-notice      what a kill leaves, and who tells
  tontine measure --plan --precision 1 round-trip/pipe
                                             how often to repeat it, for ±1 %
  tontine measure --as-published 000         a source's own program, repeated
  tontine measure --format json | jq '.cells[] | .variant, .estimate'

Exit status: 0 measured (rows may be skipped); 1 a row failed or a file could
not be written; 2 wrong usage; 128 + n ended early by signal n, and what was
measured was kept.")]
pub(crate) struct Measure {
    /// Experiments or single variants: round-trip, round-trip/futex. All where none is named.
    #[arg(value_name = "NAME", conflicts_with = "as_published")]
    pub(crate) names: Vec<String>,

    /// A look, in under 4 minutes: 6 invocations a cell, 2 where one takes seconds.
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,

    /// Everything at full size: 20 invocations a cell, 6 where one takes seconds; says in advance
    /// how long.
    #[arg(long)]
    pub(crate) full: bool,

    /// Measure nothing yet: try each cell, and print how often to repeat it at each level for an
    /// interval of its mean as narrow as --precision, and what that takes.
    #[arg(long, conflicts_with_all = ["quick", "full", "as_published", "samples", "order_seed"])]
    pub(crate) plan: bool,

    /// For --plan: how far the interval may reach to either side, in per cent of the mean.
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, requires = "plan")]
    #[arg(value_parser = percent)]
    pub(crate) precision: f64,

    /// Invocations a cell, in place of the size's own number.
    #[arg(long, value_name = "N", conflicts_with_all = ["plan", "as_published"])]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) invocations: Option<u16>,

    /// Repeat a source's experiments as they were published: 000, 001, 002, 003 or 004.
    #[arg(long, value_name = "SEED")]
    #[arg(conflicts_with_all = ["full", "format", "samples", "order_seed"])]
    pub(crate) as_published: Option<String>,

    /// Folder for results.json, results.csv, results.md and report.html.
    #[arg(long, value_name = "DIR", default_value = "tontine-results")]
    pub(crate) out: PathBuf,

    /// What to print on standard output: a table, or the text of results.json and nothing else.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,

    /// Write all samples, in order, into this folder: one file an invocation and metric.
    #[arg(long, value_name = "DIR")]
    pub(crate) samples: Option<PathBuf>,

    /// Repeat an earlier run's random order: `order_seed` in its results.json.
    #[arg(long, value_name = "N")]
    pub(crate) order_seed: Option<u64>,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("expected a number above 0, at most 100".into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Experiments to list; all where none is named.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tontine explain                            the topics, and what is in each
  tontine explain signals                    one topic
  tontine explain signal-delivery            what it is, step by step
  tontine explain round-trip/futex           one variant, and its experiment

Exit status: 0 explained; 2 there is no such name.")]
pub(crate) struct Explain {
    /// An experiment, one of its variants (round-trip/futex), or a topic: messages, death, signals,
    /// processes, memory.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// What to print: text, or everything that was found out as JSON.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "\
First all rows are screened by what the files hold. Those that may differ are
measured again with the programs that made the two runs, in pairs, if both
still lie where they lay; else say where they are with --again.

Each row says the smallest difference that it could have resolved. A smaller one
may be there all the same.

Examples:
  cp target/release/tontine old              keep the program of before
  ./old measure --quick --out before         … change something, build …
  tontine measure --quick --out after
  tontine compare before after               what became worse?
  tontine compare before after --threshold 5 --format markdown
                                             for CI: by more than 5 %
  tontine compare before after --again ./old ./new
                                             with programs that lie elsewhere
  tontine compare here/results.json there/results.json
                                             two machines

Exit status: 0 no row is worse by more than --threshold; 1 at least one is, or A
measured one that failed in B; 2 wrong usage, or a file that cannot be read or
compared; 128 + n ended early by signal n, and what was settled was printed.")]
pub(crate) struct Compare {
    /// The run before: a results.json, or the folder that holds it.
    #[arg(value_name = "A")]
    pub(crate) base: PathBuf,

    /// The run after.
    #[arg(value_name = "B")]
    pub(crate) new: PathBuf,

    /// Let a row count as a regression only where all of its interval is worse by more than this:
    /// per cent of A, of shares percentage points.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = threshold)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) threshold: f64,

    /// Measure flagged rows again with these two programs: that of before and that of after.
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"])]
    pub(crate) again: Vec<PathBuf>,

    /// Measure nothing again: only what the files say, corrected for the number of rows.
    #[arg(long, conflicts_with_all = ["again", "pairs", "order_seed"])]
    pub(crate) screen: bool,

    /// Pairs a flagged row at most. Never fewer are made than an interval needs, 20 for one row.
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) pairs: u16,

    /// Repeat an earlier second stage's random order: `order_seed` in its JSON.
    #[arg(long, value_name = "N")]
    pub(crate) order_seed: Option<u64>,

    /// What to print.
    #[arg(long, value_enum, default_value_t = Document::Text)]
    pub(crate) format: Document,
}

fn threshold(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if percent >= 0.0 && f64::is_finite(percent) => Ok(percent),
        _ => Err("expected a number of per cent, 0 or more".into()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Document {
    /// Tables for a terminal.
    Text,
    /// For an issue or a CI summary.
    Markdown,
    /// For programs.
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tontine crash                              all, one kill a visible state
  tontine crash robust-ring --mode full      one, at every instruction
  tontine crash robust-ring --operation send --point 123
                                             one kill again
  tontine crash heap --mode pairs            two deaths, one over the other
  tontine crash --plan --mode full           how many kills, and how long
  tontine crash control-lock control-torn    broken on purpose, to be found

Exit status: 0 explored, whatever came of the peers; 1 Tontine's own wedged,
tore or lost, or there is no such --point; 2 wrong usage; 128 + n ended
early by signal n.")]
pub(crate) struct Crash {
    /// What to explore: pipe, robust-ring, … All where none is named, except the controls.
    #[arg(value_name = "TARGET")]
    pub(crate) targets: Vec<String>,

    /// Where to kill.
    #[arg(long, value_enum, default_value_t = Mode::Fast)]
    pub(crate) mode: Mode,

    /// Explore only this operation: send, receive, allocate, …
    #[arg(long, value_name = "NAME")]
    pub(crate) operation: Option<String>,

    /// Kill only at this point; with --mode pairs N+M, where M is the successor's.
    #[arg(long, value_name = "N", requires = "operation", value_parser = point)]
    pub(crate) point: Option<Point>,

    /// Kill only at so many of each operation's points, spread evenly.
    #[arg(long, value_name = "N", conflicts_with = "point")]
    pub(crate) sample: Option<NonZeroUsize>,

    /// Say how many kills that would be, and about how long: records, and kills at a few points.
    #[arg(long, conflicts_with_all = ["point", "sample"])]
    pub(crate) plan: bool,

    /// What to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// At one point of each class that looks the same from outside.
    Fast,
    /// The same, and then the successor as well.
    Pairs,
    /// At every instruction.
    Full,
}

/// A point of a recording, and where the successor is killed too, a point of its own.
pub(crate) type Point = (usize, Option<usize>);

fn point(text: &str) -> Result<Point, String> {
    let (first, then) = match text.split_once('+') {
        Some((first, then)) => (first, Some(then)),
        None => (text, None),
    };
    let number = |text: &str| text.parse().map_err(|_| "expected N or N+M".to_owned());
    Ok((number(first)?, then.map(number).transpose()?))
}

#[derive(Debug, Args)]
#[command(after_help = "\
A message is acknowledged when its line is written to standard output. Should
the reader die before that, its successor gets the message; so nothing is lost,
and a line may come twice.

Ctrl-C, SIGTERM and SIGHUP close the mailbox and remove the socket; so does a
standard output that nobody reads any more. Senders keep what was not read.
PATH.lock stays: it keeps two owners apart.

Examples:
  tontine recv /run/user/1000/jobs           prints messages until it is stopped
  tontine recv --count 1 --timeout 5 @jobs   waits 5 seconds for one message
  tontine recv --wait /run/user/1000/jobs    takes over when the reader dies

Exit status: 0 --count messages were printed, or --timeout passed without
--count, or nobody reads standard output any more; 1 anything else went wrong,
as when the path has a living owner, or --count messages did not come; 2 wrong
usage; 128 + n ended by signal n.")]
pub(crate) struct Recv {
    /// Where to receive: a path, or @ and a name that needs no folder.
    #[arg(value_name = "PATH")]
    pub(crate) address: OsString,

    /// End messages with NUL in place of a new line: for those that contain new lines.
    #[arg(short = '0', long)]
    pub(crate) null: bool,

    /// End after so many messages.
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// End when no message has come for so long.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,

    /// Where the path has a living owner, wait for its end.
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without --wait and --unread it ends when everything is sent, which may be before
it is read: what a reader that dies then has not read is gone.

Examples:
  seq 3 | tontine send /run/user/1000/jobs
  seq 3 | tontine send --wait @jobs          ends when all is read, by whomever
  find . -print0 | tontine send --null @jobs
  tontine send --unread @jobs < todo > left  `left` is what a dead reader left

Exit status: 0 everything was sent, and with --wait or --unread everything was
read; 1 anything else, as when nobody receives there or the reader died; 2 wrong
usage.")]
pub(crate) struct Send {
    /// Where to send: a path, or @ and a name that needs no folder.
    #[arg(value_name = "PATH")]
    pub(crate) address: OsString,

    /// Messages end with NUL in place of a new line.
    #[arg(short = '0', long)]
    pub(crate) null: bool,

    /// Wait for a reader to come, for the next one when it ends or dies, and until all is read.
    #[arg(long)]
    pub(crate) wait: bool,

    /// Wait until all is read; should the reader die or end before, print the messages that it did
    /// not acknowledge on standard output and end with status 1.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) unread: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds, like 0.5".into())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// The whole definition, for the manual page and the completions.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Broken at 100 columns, the paragraphs were broken again at 80, after every second word.
    #[test]
    fn what_stands_below_the_options_fits_a_terminal_of_80_columns() {
        let whole = definition();
        let below = whole.get_subcommands().flat_map(clap::Command::get_subcommands);
        let all = std::iter::once(&whole).chain(whole.get_subcommands()).chain(below);
        let mut lines = 0;
        for command in all {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
                lines += 1;
            }
        }
        assert!(lines > 40, "{lines}");
    }

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }
}

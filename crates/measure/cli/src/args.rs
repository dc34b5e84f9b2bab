//! The definition of the command line, for parsing, `--help`, the manual page and the completions.

mod own;

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tontine_command::{Documentation, WIDTH};
use tontine_experiments::round_trip::container::COMMAND as CONTAINER;

pub(crate) use own::{OwnArguments, RunFormat};

/// Measure what each mechanism costs here, and write a report.
#[derive(Debug, Parser)]
#[command(name = "tontine-measure", version, max_term_width = WIDTH)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  tontine-measure                            the questions of the verdict, in
                                             under 3 minutes
  tontine-measure --quick                    the same, in less than a minute
  tontine-measure --all                      all experiments, in 14 minutes
  tontine-measure round-trip                 one experiment
  tontine-measure round-trip/futex liveness-check/kill-0
                                             two variants
  tontine-measure survival death-notice      effects of a kill, and its notice
  tontine-measure --plan --precision 1 round-trip/pipe
                                             repetitions that reach ±1 %
  tontine-measure --as-published 000         a source's own programs, repeated
  tontine-measure --format json | jq '.cells[] | .variant, .estimate'
  tontine-measure -- ./a --fast -- ./b       two commands of yours, in pairs
  tontine-measure --ready 3 -- ./server      the time until it writes to 3

Exit status:
  0        measured; rows may be skipped
  1        a row or a command failed, or a file could not be written
  2        wrong usage
  128 + N  stopped by signal N; what was measured is kept")]
pub(crate) struct MeasureArguments {
    #[command(flatten)]
    pub(crate) measure: Measure,

    #[command(subcommand)]
    pub(crate) command: Option<MeasureCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MeasureCommand {
    /// List the experiments and their variants.
    List(ListArguments),
    /// Explain an experiment to readers new to its topic.
    Explain(Explain),
    /// Compare two runs, row by row.
    Compare(Compare),
    /// Report what disturbs measurements here, and how to fix it.
    Doctor(Doctor),
    /// Kill processes at every instruction, and check the survivors.
    Crash(Crash),
    #[command(flatten)]
    Documentation(Documentation),
    /// Serve one invocation: request on standard input, reply on standard output.
    #[command(name = INVOCATION, hide = true)]
    Invocation,
    /// Serve as one end inside a container, with the reply on standard output.
    #[command(name = CONTAINER, hide = true)]
    Container {
        /// Request, as JSON.
        order: String,
    },
    /// Serve as a worker: commands on standard input, replies on standard output.
    #[command(name = ACTOR, hide = true)]
    Actor {
        /// Name of the target.
        target: OsString,
        /// Directory of the run.
        folder: OsString,
    },
}

/// Hidden command by which `measure` starts this program again for each invocation.
pub(crate) const INVOCATION: &str = "__invocation";

/// Hidden command by which `crash` starts this program again for each worker process.
pub(crate) const ACTOR: &str = "__actor";

#[derive(Debug, Args)]
pub(crate) struct Measure {
    /// Experiments or variants: round-trip, round-trip/futex [default: the cells that answer the
    /// questions of the verdict].
    #[arg(value_name = "NAME", conflicts_with = "as_published")]
    pub(crate) names: Vec<String>,

    /// Measure all experiments.
    #[arg(long, conflicts_with_all = ["names", "as_published"])]
    pub(crate) all: bool,

    /// Measure with less effort: 6 invocations per cell, 2 if one takes seconds. With --all, in
    /// under 6 minutes.
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,

    /// Measure with more effort, and print an estimate of the time first: 20 invocations per cell,
    /// 6 if one takes seconds.
    #[arg(long)]
    pub(crate) full: bool,

    /// Only try each cell, and print how often to repeat it at each level for an interval of its
    /// mean as narrow as --precision, and how long that takes.
    #[arg(long, conflicts_with_all = ["quick", "full", "as_published", "samples", "order_seed"])]
    pub(crate) plan: bool,

    /// With --plan, the maximum half-width of the interval, in percent of the mean.
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, requires = "plan")]
    #[arg(value_parser = percent)]
    pub(crate) precision: f64,

    /// Invocations per cell (or pairs of your own commands), instead of the number that --quick,
    /// --full or neither implies.
    #[arg(long, value_name = "N", conflicts_with_all = ["plan", "as_published"])]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) invocations: Option<u16>,

    /// Repeat the experiments of a source as published: 000, 001, 002, 003 or 004.
    #[arg(long, value_name = "SOURCE")]
    #[arg(conflicts_with_all = ["full", "format", "samples", "order_seed"])]
    pub(crate) as_published: Option<String>,

    /// Directory for results.json, results.csv, results.md and report*.html.
    #[arg(long, value_name = "DIR", default_value = "tontine-results")]
    pub(crate) out: PathBuf,

    /// Format of standard output: a table, the contents of results.json, or figures for CI.
    #[arg(long, value_enum, default_value_t = RunFormat::Text)]
    pub(crate) format: RunFormat,

    /// Write all samples in order into this directory, one file per invocation and metric.
    #[arg(long, value_name = "DIR")]
    pub(crate) samples: Option<PathBuf>,

    /// Repeat the random order of an earlier run: `order_seed` of its results.json.
    #[arg(long, value_name = "N")]
    pub(crate) order_seed: Option<u64>,

    #[command(flatten)]
    pub(crate) own: OwnArguments,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("expected a percentage above 0 and at most 100, like 2.5".into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Experiments to list [default: all].
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tontine-measure explain                    the topics and their experiments
  tontine-measure explain signals            one topic
  tontine-measure explain signal-delivery    one experiment, step by step
  tontine-measure explain round-trip/futex   one variant, and its experiment

Exit status:
  0        explained
  2        unknown name")]
pub(crate) struct Explain {
    /// Experiment, variant (round-trip/futex) or topic (messages, death, signals, processes or
    /// memory) [default: a list of the topics].
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Format of the output: advice as text, or all facts about the machine as JSON.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "\
All rows are first screened by the contents of the two files. Rows that may \
differ are then measured again in pairs, with the programs that made the two \
runs, if both are still at their recorded paths; otherwise name them with \
--again.

Each row shows the smallest difference that it could have resolved; a smaller \
one may exist.

Examples:
  cp target/release/tontine-measure old      keep the earlier build
  ./old --quick --out before                 … change something, build …
  tontine-measure --quick --out after
  tontine-measure compare before after       list what became worse
  tontine-measure compare before after --threshold 5 --format markdown
                                             for CI: worse by more than 5 %
  tontine-measure compare before after --again ./old ./new
                                             programs that were moved
  tontine-measure compare here/results.json there/results.json
                                             two machines

Exit status:
  0        no row is worse by more than --threshold
  1        a row is worse, or was measured in A and failed in B
  2        wrong usage, or a file that cannot be read or compared
  128 + N  stopped by signal N; rows judged so far are printed")]
pub(crate) struct Compare {
    /// Earlier run: a results.json, or the directory that holds it.
    #[arg(value_name = "A")]
    pub(crate) base: PathBuf,

    /// Later run: a results.json, or the directory that holds it.
    #[arg(value_name = "B")]
    pub(crate) new: PathBuf,

    /// Count a row as a regression only if its whole interval is worse by more than this: percent
    /// of A, or percentage points if the row is a share.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = threshold)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) threshold: f64,

    /// Measure flagged rows again with these programs: the earlier and the later build.
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"])]
    pub(crate) again: Vec<PathBuf>,

    /// Measure nothing again: judge by the files alone, corrected for the number of rows.
    #[arg(long, conflicts_with_all = ["again", "pairs", "order_seed"])]
    pub(crate) screen: bool,

    /// Maximum number of pairs per flagged row, but at least what an interval needs: 20 for one.
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) pairs: u16,

    /// Repeat the random order of an earlier second stage: `order_seed` in its JSON.
    #[arg(long, value_name = "N")]
    pub(crate) order_seed: Option<u64>,

    /// Format of the output.
    #[arg(long, value_enum, default_value_t = Document::Text)]
    pub(crate) format: Document,
}

fn threshold(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if percent >= 0.0 && f64::is_finite(percent) => Ok(percent),
        _ => Err("expected a percentage of 0 or more, like 5".into()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Document {
    /// Tables for a terminal.
    Text,
    /// Markdown, for an issue or a CI summary.
    Markdown,
    /// JUnit XML, for CI: a test case for each row, which fails if the row is worse.
    Junit,
    /// JSON, for programs.
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tontine-measure crash                      all, one kill per visible state
  tontine-measure crash robust-ring --mode full
                                             one, at every instruction
  tontine-measure crash robust-ring --operation send --point 123
                                             one kill, repeated
  tontine-measure crash heap --mode pairs    two deaths, the second while the
                                             successor recovers the first
  tontine-measure crash --plan --mode full   the number of kills, and the time
  tontine-measure crash control-lock control-torn
                                             broken on purpose, to be found

Exit status:
  0        explored; other mechanisms may have wedged, torn or lost
  1        a mechanism of Tontine's wedged, tore or lost, or --point is unknown
  2        wrong usage
  128 + N  stopped by signal N")]
pub(crate) struct Crash {
    /// Targets to explore: pipe, robust-ring, … [default: all except the controls].
    #[arg(value_name = "TARGET")]
    pub(crate) targets: Vec<String>,

    /// Points at which to kill.
    #[arg(long, value_enum, default_value_t = ModeArgument::Fast)]
    pub(crate) mode: ModeArgument,

    /// Explore only this operation: send, receive, allocate, ….
    #[arg(long, value_name = "NAME")]
    pub(crate) operation: Option<String>,

    /// Kill only at this point; with --mode pairs N+M, where M is a point of the successor.
    #[arg(long, value_name = "N", requires = "operation", value_parser = point)]
    pub(crate) point: Option<KillPointArgument>,

    /// Kill only at N points of each operation, spread evenly.
    #[arg(long, value_name = "N", conflicts_with = "point")]
    pub(crate) sample: Option<NonZeroUsize>,

    /// Print only the number of kills and an estimate of the time, from kills at a few points.
    #[arg(long, conflicts_with_all = ["point", "sample"])]
    pub(crate) plan: bool,

    /// Format of the output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArgument {
    /// A point of each class: the other processes cannot tell its points apart.
    Fast,
    /// A point of each class, and then one of each class of the successor.
    Pairs,
    /// Every instruction.
    Full,
}

/// A point of a recording and, if the successor is killed too, a point of that one.
pub(crate) type KillPointArgument = (usize, Option<usize>);

fn point(text: &str) -> Result<KillPointArgument, String> {
    let (first, then) = match text.split_once('+') {
        Some((first, then)) => (first, Some(then)),
        None => (text, None),
    };
    let number = |text: &str| {
        text.parse().map_err(|_| "expected the number of a point, N, or of two, N+M".to_owned())
    };
    Ok((number(first)?, then.map(number).transpose()?))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for a terminal.
    Text,
    /// JSON, for programs.
    Json,
}

//! The definition of the command line, for parsing, `--help`, the manual page and the completions.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tontine_command::{Documentation, WIDTH};
use tontine_unix_lab::explore::{Exploration, Schedule};

/// Run process and signal code on a virtual Unix.
#[derive(Debug, Parser)]
#[command(name = "tontine-unix", version, max_term_width = WIDTH, arg_required_else_help = true)]
#[command(after_help = "Examples and exit statuses of a command: tontine-unix help COMMAND")]
pub(crate) struct UnixArguments {
    #[command(subcommand)]
    pub(crate) command: UnixCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UnixCommand {
    /// Run a scenario, and print its events and its verdict.
    Run(RunScenario),
    /// Run a scenario in lock-step with Linux, and compare both.
    Check(CheckScenario),
    /// Run a scenario under all schedules up to a bound, or a sample.
    Explore(ExploreScenario),
    /// Open a shell with job control on a virtual Unix.
    Shell(UnixShell),
    #[command(flatten)]
    Documentation(Documentation),
}

#[derive(Debug, Args)]
#[command(after_help = "\
A scenario is a text: processes, what each does, and what must be observed. \
Language: docs/reference/scenarios.md. Examples: examples/unix.

Examples:
  tontine-unix run examples/unix/groups/setsid.unix
  tontine-unix run --runs 1000 examples/unix/waits/sigchld-once-or-twice.unix
                                             a thousand schedules
  tontine-unix run --seed 17 FILE            one of them, byte for byte
  tontine-unix run --mode master --processors 4 FILE
  tontine-unix run --format columns FILE     processes side by side
  tontine-unix run --delivery oldest --masks per-process FILE
                                             signals as in OSF/1
  tontine-unix run --statistics FILE         how often each lock was taken

A run stops after --limit seconds, after 200,000 events, or at ^C; its events \
so far are printed all the same. A run that does not stop within 2 s is \
abandoned; a second ^C ends the command at once. At most 4,096 threads live at \
once; fork returns EAGAIN for the next one.

Exit status:
  0        all expectations held, or there were none
  1        an expectation failed, or the run did not end
  2        wrong usage, an unreadable file, or an invalid scenario
  128 + N  stopped by signal N")]
pub(crate) struct RunScenario {
    /// File with the scenario.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Seed of the scheduler: the same seed gives the same run.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Maximum number of runs, with consecutive seeds from --seed, until an expectation fails.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) runs: u64,

    /// Locks of the system, and where its calls run.
    #[arg(long, value_enum, default_value_t = ModeName::Parallel)]
    pub(crate) mode: ModeName,

    /// Number of processors [default: 2, or 1 with --mode uniprocessor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) processors: Option<u16>,

    /// Executor of the threads.
    #[arg(long, value_enum, default_value_t = ExecutorName::Simulated)]
    pub(crate) executor: ExecutorName,

    /// Thread that delivers a signal sent to a process.
    #[arg(long, value_enum, default_value_t = DeliveryName::AnyUnblocked)]
    pub(crate) delivery: DeliveryName,

    /// Owner of the signal mask.
    #[arg(long, value_enum, default_value_t = MasksName::PerThread)]
    pub(crate) masks: MasksName,

    /// Stop all runs after this much real time, and print the events so far; 0 means never.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) limit: u64,

    /// Print a table of how often each lock was taken.
    #[arg(long)]
    pub(crate) statistics: bool,

    /// Format of the output.
    #[arg(long, value_enum, default_value_t = ShownFormat::Text)]
    pub(crate) format: ShownFormat,

    /// For tests: add a program `spin` that computes this long without a system call.
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "SECONDS", hide = true)]
    pub(crate) spin: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
On real processes and in the virtual Unix alike, every thread stops at a gate \
before each call. One is released; when all threads are quiescent, the next. \
Both sides must observe the same. Details: docs/reference/check.md.

The real processes have a PID namespace of their own: no signal leaves it, and \
all of them end with the command.

Examples:
  tontine-unix check examples/unix/groups/setsid.unix
  tontine-unix check --runs 100 FILE         a hundred orders of steps
  tontine-unix check --seed 17 --mode master FILE
                                             one of them again
  tontine-unix check --log FILE              print what both observed
  tontine-unix check --random 1000           a thousand random scenarios, in
                                             all modes by turns

Exit status:
  0        both sides observed the same
  1        the sides diverged, or one did not become quiescent
  2        wrong usage, an unreadable file, or a scenario that is invalid or
           cannot be compared")]
pub(crate) struct CheckScenario {
    /// File with the scenario.
    #[arg(value_name = "FILE", required_unless_present = "random")]
    pub(crate) file: Option<PathBuf>,

    /// Compare N random scenarios, with consecutive seeds from --seed; those that diverge are
    /// reduced and printed.
    #[arg(long, value_name = "N", conflicts_with_all = ["file", "runs", "steps", "log"])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) random: Option<u64>,

    /// Seed of the order of steps: the same seed gives the same order on both sides.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Maximum number of runs, with consecutive seeds from --seed, until the sides diverge.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) runs: u64,

    /// Locks of the virtual Unix, and where its calls run [default: all modes in turn].
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeName>,

    /// Maximum number of steps of both runs.
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub(crate) steps: u32,

    /// Abandon the real run after this much real time.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) limit: u64,

    /// Print the observations even if both sides agree.
    #[arg(long)]
    pub(crate) log: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A preemption takes the processor from a thread that could continue. First all \
schedules without a preemption run, then those with one, and so on up to \
--bound; schedules equivalent to an earlier one are left out. Details: \
docs/reference/explore.md.

The first run in which an expectation fails, all threads are blocked or a check \
of the kernel fails is printed with its schedule, a short text for --replay, \
and with its seed if schedules are sampled.

Examples:
  tontine-unix explore examples/unix/waits/two-waiters-one-child.unix
  tontine-unix explore --bound 3 --mode parallel FILE
  tontine-unix explore --seeds 100000 FILE       sampled, for larger ones
  tontine-unix explore --replay '17>3.40>2' FILE one schedule again
  tontine-unix explore --seeds 1 --seed 17 FILE  the run of one seed again

Exit status:
  0        all runs held
  1        a run did not hold
  2        wrong usage, an unreadable file, or an invalid scenario")]
pub(crate) struct ExploreScenario {
    /// File with the scenario.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Maximum number of preemptions.
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "seeds")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) bound: u32,

    /// Sample N random schedules instead of running all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: Option<u64>,

    /// First seed of the sampled schedules.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Run this schedule only, and print which thread ran when.
    #[arg(long, value_name = "SCHEDULE", conflicts_with_all = ["bound", "seeds", "seed"])]
    pub(crate) replay: Option<Schedule>,

    /// Maximum number of schedules.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) most: Option<u64>,

    /// Report a run of more than N steps as one that does not end.
    #[arg(long, value_name = "N", default_value_t = Exploration::DEFAULT_MAX_STEPS)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: u64,

    /// Let time pass only while no thread is runnable, for a scenario that relies on a timer being
    /// far off.
    ///
    /// Otherwise time may pass at any point, as a preemption: on a busy machine each thread may be
    /// delayed that long.
    #[arg(long)]
    pub(crate) idle_clock: bool,

    /// Also run schedules that are equivalent to others.
    #[arg(long)]
    pub(crate) unreduced: bool,

    /// Locks of the system, and where its calls run.
    ///
    /// With one processor a call runs from its beginning to its end or its sleep. The other modes
    /// also explore the kernel, at each of its locks, with many more schedules.
    #[arg(long, value_enum, default_value_t = ModeName::Uniprocessor)]
    pub(crate) mode: ModeName,

    /// Number of processors [default: 1, or 2 with another --mode].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) processors: Option<u16>,

    /// Thread that delivers a signal sent to a process.
    #[arg(long, value_enum, default_value_t = DeliveryName::AnyUnblocked)]
    pub(crate) delivery: DeliveryName,

    /// Owner of the signal mask.
    #[arg(long, value_enum, default_value_t = MasksName::PerThread)]
    pub(crate) masks: MasksName,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Your terminal becomes that of the virtual system: ^C and ^Z send signals there, \
and ^D or `exit` leaves the shell. `help` lists its commands and programs; `ps` \
shows the processes and what they wait for. The shell reads and writes no files.

Examples:
  tontine-unix shell
  tontine-unix shell --seed 1          virtual clock: `sleep 100` ends soon
  tontine-unix shell --mode master --processors 4
  tontine-unix shell -c 'seq 3 | wc'   works without a terminal; empty input

Output and errors both go to standard output. If SIGKILL ends the command, your \
terminal stays raw: type `reset` and ^J, although neither is shown.

Exit status: that of the shell, or
  1        the terminal failed, or all threads are blocked
  2        wrong usage, or no terminal on standard input
  128 + N  signal N ended the shell")]
pub(crate) struct UnixShell {
    /// Run these commands, and exit.
    #[arg(short, value_name = "COMMANDS")]
    pub(crate) commands: Option<String>,

    /// Simulate with this seed: seed and input alone decide which thread runs when.
    #[arg(long, value_name = "N", conflicts_with = "executor")]
    pub(crate) seed: Option<u64>,

    /// Locks of the system, and where its calls run.
    #[arg(long, value_enum, default_value_t = ModeName::Parallel)]
    pub(crate) mode: ModeName,

    /// Number of processors.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) processors: u16,

    /// Executor of the threads.
    #[arg(long, value_enum, default_value_t = ExecutorName::Parallel)]
    pub(crate) executor: ExecutorName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// A single processor, and only the locks that are held across a sleep.
    Uniprocessor,
    /// All calls but exec on processor 0, as in OSF/1.0.
    Master,
    /// The paper's locks, as in OSF/1.1.
    Parallel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExecutorName {
    /// A single thread, a seeded scheduler, and a virtual clock.
    Simulated,
    /// A thread per processor, and the real clock.
    Parallel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeliveryName {
    /// The oldest thread, as in OSF/1.
    Oldest,
    /// Any thread that does not block the signal, as in POSIX and Linux.
    AnyUnblocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MasksName {
    /// The process, as in OSF/1: a signal blocked by one thread is blocked for all.
    PerProcess,
    /// Each thread, as in POSIX and Linux.
    PerThread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShownFormat {
    /// A line per event.
    Text,
    /// A line per event, a column per process.
    Columns,
    /// JSON, for programs.
    Json,
}

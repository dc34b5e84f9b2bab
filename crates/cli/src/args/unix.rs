//! The arguments of `tontine unix`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tontine_unix_lab::explore::{Exploration, Schedule};

#[derive(Debug, Args)]
pub(crate) struct Unix {
    #[command(subcommand)]
    pub(crate) command: UnixCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UnixCommand {
    /// Run a scenario, print what happened, and say whether what it expects holds.
    Run(RunScenario),
    /// Run a scenario on the virtual Unix and on Linux in lock-step, and say where they part.
    Check(CheckScenario),
    /// Run a scenario under all schedules up to a bound, or under many by dice.
    Explore(ExploreScenario),
    /// Sit at the terminal of a Unix in user space, at a shell with job control.
    Shell(UnixShell),
}

#[derive(Debug, Args)]
#[command(after_help = "\
A scenario is a text: processes, what each does, and what must be observed.
docs/scenarios.md describes the language; examples are in examples/unix.

Examples:
  tontine unix run examples/unix/groups/setsid.unix
  tontine unix run --runs 1000 examples/unix/waits/sigchld-once-or-twice.unix
                                             a thousand schedules
  tontine unix run --seed 17 FILE            one of them again, to the byte
  tontine unix run --mode master --processors 4 FILE
  tontine unix run --format columns FILE     processes side by side
  tontine unix run --delivery oldest --masks per-process FILE
                                             signals as OSF/1 has them
  tontine unix run --statistics FILE         which locks were taken, how often

A run is stopped after --limit seconds, after 200,000 events, and by ^C; what
had happened is printed all the same. One that cannot be stopped is given up
2 s later; a second ^C ends the command at once. 4,096 threads may live at
once; fork says EAGAIN to the next one.

Exit status: 0 all expectations held, or there was none; 1 one failed, or the
run came to no end; 2 wrong usage, a file that cannot be read, or a text that
is no scenario; 128 + N stopped by signal N.")]
pub(crate) struct RunScenario {
    /// The scenario.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Decides who runs when: the same seed gives the same run.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Run it so often, with the seeds from --seed on, until an expectation fails.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) runs: u64,

    /// Which locks the system has, and where its calls run.
    #[arg(long, value_enum, default_value_t = ModeName::Parallel)]
    pub(crate) mode: ModeName,

    /// How many processors it has; 2, or 1 with --mode uniprocessor, where nothing is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) processors: Option<u16>,

    /// What its threads run on.
    #[arg(long, value_enum, default_value_t = ExecutorName::Simulated)]
    pub(crate) executor: ExecutorName,

    /// Which thread delivers what was sent to a process.
    #[arg(long, value_enum, default_value_t = DeliveryName::AnyUnblocked)]
    pub(crate) delivery: DeliveryName,

    /// Whose the signal mask is.
    #[arg(long, value_enum, default_value_t = MasksName::PerThread)]
    pub(crate) masks: MasksName,

    /// Stop all runs after so many seconds of your clock, and say what happened so far; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) limit: u64,

    /// Count how often each lock was taken, and print the table.
    #[arg(long)]
    pub(crate) statistics: bool,

    /// What to print.
    #[arg(long, value_enum, default_value_t = Shown::Text)]
    pub(crate) format: Shown,

    /// Have a program `spin` that computes for so long without a system call: for tests.
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "SECONDS", hide = true)]
    pub(crate) spin: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Every thread stands at a gate before each call; one is let through, everybody
comes to rest, and the next one is let through, on real processes and in the
virtual Unix alike. What they observe must be the same. docs/check.md has the
whole of it.

Real processes live in a PID namespace of their own: no signal of theirs
leaves it, and all are gone when the command ends.

Examples:
  tontine unix check examples/unix/groups/setsid.unix
  tontine unix check --runs 100 FILE         a hundred orders of steps
  tontine unix check --seed 17 --mode master FILE
                                             one of them again
  tontine unix check --log FILE              print what both observed
  tontine unix check --random 1000           a thousand random scenarios, in
                                             turn in all modes

Exit status: 0 the same on both; 1 they part, or one of them came to no rest;
2 wrong usage, a file that cannot be read, a text that is no scenario, or one
that cannot be compared.")]
pub(crate) struct CheckScenario {
    /// The scenario.
    #[arg(value_name = "FILE", required_unless_present = "random")]
    pub(crate) file: Option<PathBuf>,

    /// Compare so many random scenarios, with the seeds from --seed on; those that part are made
    /// small and printed.
    #[arg(long, value_name = "N", conflicts_with_all = ["file", "runs", "steps", "log"])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) random: Option<u64>,

    /// Decides who goes on next: the same seed gives the same order of steps on both sides.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Run it so often, with the seeds from --seed on, until both sides part.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) runs: u64,

    /// The mode of the virtual Unix; all five, one after another, where nothing is said.
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeName>,

    /// Cut both runs after so many steps.
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub(crate) steps: u32,

    /// Give up the real run after so many seconds of your clock.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) limit: u64,

    /// Print what was observed where both sides are the same, too.
    #[arg(long)]
    pub(crate) log: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A preemption takes the processor from a thread that could go on. All schedules
without one are run, then those with at most one, and so on to --bound; those
that come to the same as others are left out. docs/explore.md says how.

The first run in which an expectation fails, all threads are blocked, or a
check of the kernel's own finds something is printed with a schedule, a short
text, that --replay takes, and by dice with the seed.

Examples:
  tontine unix explore examples/unix/waits/two-waiters-one-child.unix
  tontine unix explore --bound 3 --mode per-process FILE
  tontine unix explore --seeds 100000 FILE       for larger ones: by dice
  tontine unix explore --replay '17>3.40>2' FILE one of them again
  tontine unix explore --seeds 1 --seed 17 FILE  the run of a seed again

Exit status: 0 all runs held; 1 one did not; 2 wrong usage, a file that cannot
be read, or a text that is no scenario.")]
pub(crate) struct ExploreScenario {
    /// The scenario.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// At most so many preemptions.
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "seeds")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) bound: u32,

    /// Run so many schedules by dice, in the place of all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: Option<u64>,

    /// The first seed of the dice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Run this schedule, and print who ran when.
    #[arg(long, value_name = "SCHEDULE", conflicts_with_all = ["bound", "seeds", "seed"])]
    pub(crate) replay: Option<Schedule>,

    /// Run at most so many schedules.
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
    /// kept waiting that long.
    #[arg(long)]
    pub(crate) idle_clock: bool,

    /// Also run schedules that come to the same as others.
    #[arg(long)]
    pub(crate) unreduced: bool,

    /// Which locks the system has, and where its calls run; every mode, if nothing is said.
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeName>,

    /// How many processors it has; 2, or 1 with --mode uniprocessor, where nothing is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) processors: Option<u16>,

    /// Which thread delivers what was sent to a process.
    #[arg(long, value_enum, default_value_t = DeliveryName::AnyUnblocked)]
    pub(crate) delivery: DeliveryName,

    /// Whose the signal mask is.
    #[arg(long, value_enum, default_value_t = MasksName::PerThread)]
    pub(crate) masks: MasksName,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Your terminal becomes that of the system: ^C and ^Z make signals there, and ^D
or `exit` leaves it. `help` lists what the shell knows and the programs there
are; `ps` shows the processes and what they wait for. No file is read or
written.

Examples:
  tontine unix shell
  tontine unix shell --seed 1          a virtual clock: `sleep 100` is soon over
  tontine unix shell --mode master --processors 4
  tontine unix shell -c 'seq 3 | wc'   without a terminal, too; input is empty

Both its output and its errors go to standard output. Should the command be
killed by SIGKILL, your terminal stays raw: type `reset`, though you do not
see it, and ^J.

Exit status: that of the shell, 128 + N if signal N ended it; 2 wrong usage,
or no terminal to type at; 1 the terminal failed, or all threads are blocked.")]
pub(crate) struct UnixShell {
    /// Do these commands, and leave.
    #[arg(short, value_name = "COMMANDS")]
    pub(crate) commands: Option<String>,

    /// Run it simulated, and let this decide, beside what you type, who runs when.
    #[arg(long, value_name = "N", conflicts_with = "executor")]
    pub(crate) seed: Option<u64>,

    /// Which locks the system has, and where its calls run.
    #[arg(long, value_enum, default_value_t = ModeName::Parallel)]
    pub(crate) mode: ModeName,

    /// How many processors it has.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) processors: u16,

    /// What its threads run on.
    #[arg(long, value_enum, default_value_t = ExecutorName::Parallel)]
    pub(crate) executor: ExecutorName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// One processor, and the locks that are held across a sleep.
    Uniprocessor,
    /// All calls but exec on processor 0, as in OSF/1.0.
    Master,
    /// One lock around every call.
    Coarse,
    /// The paper's locks, as in OSF/1.1.
    Parallel,
    /// Locks of each process in place of the one for relations.
    PerProcess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExecutorName {
    /// One thread, a scheduler with a seed, and a virtual clock.
    Simulated,
    /// A thread for each processor, and the real clock.
    Parallel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeliveryName {
    /// The oldest, as in OSF/1.
    Oldest,
    /// Any that does not block it, as POSIX and Linux have it.
    AnyUnblocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MasksName {
    /// The process's, as in OSF/1: what one thread blocks all block.
    PerProcess,
    /// Each thread's own, as POSIX and Linux have it.
    PerThread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shown {
    /// A line for each event.
    Text,
    /// The same with a column for each process.
    Columns,
    /// For programs.
    Json,
}

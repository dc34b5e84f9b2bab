//! `cargo xtask twins`: compares the experiments with plain C.
//!
//! Each mechanism has a twin in `twins/`, a small C program that times its whole loop by two clock
//! readings. Experiment and twin run alternately, each time in a fresh process, and the ratios of
//! the pairs show whether the instrument adds to the measured time. The task compares means,
//! because two clock readings yield only a mean.
//!
//! The task judges the instrument's figures and not the machine, because both sides have the same
//! noise.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tontine_bench::machine::topology::Topology;
use tontine_bench::size::Size;
use tontine_bench::stats::order;
use tontine_bench::stats::ratio::{self, LimitVerdict};
use tontine_bench::stats::summary::Summary;
use tontine_bench::suite::Experiment;
use tontine_bench::task::{self, InvocationTask};
use tontine_experiments::SUITE;

use crate::invocation;

/// Number of pairs of runs, equal to the number of invocations of a default run.
const PAIRS: usize = 10;

/// Number of pairs if both ends spin: such a run takes milliseconds and samples only one state of
/// the machine.
const SPINNING_PAIRS: usize = 40;

/// Number of checks that a C program times, which makes its two clock readings negligible.
const CHECKS: usize = 1_000_000;

/// Number of records that a C program streams.
const RECORDS: usize = 2_000_000;

/// Number of rounds of signals and of forks, equal to the number in one invocation of the
/// experiment.
const ROUNDS: usize = 10;

/// Number of bytes that the parent of a thread or a process has touched in `thread-vs-process`.
const PARENT: usize = 1 << 20;

/// Flags for the program that `posix_spawn` starts: one segment and no C library, as in the
/// experiment.
const NOTHING: [&str; 4] = ["-nostdlib", "-static", "-fno-stack-protector", BARE];
const BARE: &str = "-Wl,-z,noseparate-code,--build-id=none";

/// A mechanism in both languages.
struct Pair {
    /// Name of the experiment.
    experiment: &'static str,
    /// Name of the variant.
    ours: &'static str,
    /// Parameters of the cell.
    params: &'static [(&'static str, &'static str)],
    /// Files in `twins/`; the result of the fastest file is used.
    twins: &'static [&'static str],
    /// Maximum ratio of experiment to twin.
    limit: f64,
}

const fn trip(ours: &'static str, twins: &'static [&'static str], limit: f64) -> Pair {
    Pair { experiment: "round-trip", ours, params: &[("placement", "cross-core")], twins, limit }
}

/// Returns a pair for `liveness-check`, which itself prints ratios to `load` and `lock-cmpxchg`.
const fn check(ours: &'static str) -> Pair {
    Pair { experiment: "liveness-check", ours, params: &[], twins: &["liveness"], limit: 1.15 }
}

const fn signals(params: &'static [(&'static str, &'static str)]) -> Pair {
    let twins = &["signal_throughput"];
    Pair { experiment: "signal-throughput", ours: "linux", params, twins, limit: 1.15 }
}

/// Returns a pair for a stream of records of one size from one sender.
const fn stream(
    params: &'static [(&'static str, &'static str)],
    twins: &'static [&'static str],
    limit: f64,
) -> Pair {
    Pair { experiment: "throughput", ours: "mailbox", params, twins, limit }
}

const fn spawn(ours: &'static str) -> Pair {
    let params = &[("placement", "same-core")];
    Pair { experiment: "spawn", ours, params, twins: &["spawn"], limit: 1.15 }
}

const fn with_parent_of_1_mib(ours: &'static str) -> Pair {
    let params = &[("parent", "1 MiB"), ("placement", "same-core")];
    Pair { experiment: "thread-vs-process", ours, params, twins: &["spawn"], limit: 1.15 }
}

const TABLE: &[Pair] = &[
    trip("flag-one-line", &["flag_one_line", "flag_one_line_pause"], 1.1),
    trip("flag-two-lines", &["flag_two_line", "flag_two_line_pause"], 1.1),
    trip("spinlock-tas-process", &["spinlock_tas"], 1.15),
    trip("spinlock-ttas-process", &["spinlock_ttas"], 1.15),
    trip("semaphore-process", &["semaphore"], 1.15),
    trip("futex", &["futex"], 1.15),
    trip("condvar", &["condvar"], 1.15),
    trip("eventfd", &["eventfd"], 1.15),
    trip("pipe", &["pipe"], 1.15),
    trip("unix-stream", &["unix_stream"], 1.15),
    trip("unix-seqpacket", &["unix_seqpacket"], 1.15),
    trip("tcp-loopback", &["tcp_loopback"], 1.15),
    trip("posix-mq", &["posix_mq"], 1.15),
    trip("signal", &["signal"], 1.15),
    check("dummy"),
    check("load"),
    check("mutex-trylock"),
    check("epoll-empty"),
    check("epoll-socket"),
    check("poll-socket"),
    check("select-socket"),
    check("kill-0"),
    check("pidfd-signal-0"),
    check("procfs-faccessat"),
    stream(&[("size", "8"), ("senders", "1")], &["stream"], 1.25),
    stream(&[("size", "64"), ("senders", "1")], &["stream"], 1.25),
    stream(&[("size", "1024"), ("senders", "1")], &["stream"], 1.25),
    stream(&[("size", "64"), ("senders", "1")], &["fresh_copy"], 3.0),
    stream(&[("size", "1024"), ("senders", "1")], &["fresh_copy"], 1.5),
    signals(&[("pairs", "1"), ("placement", "same-core")]),
    signals(&[("pairs", "1"), ("placement", "cross-core")]),
    Pair {
        experiment: "fork-throughput",
        ours: "linux",
        params: &[("processes", "1")],
        twins: &["fork_throughput"],
        limit: 1.15,
    },
    spawn("fork"),
    spawn("vfork"),
    spawn("posix-spawn"),
    spawn("clone3"),
    with_parent_of_1_mib("thread"),
    with_parent_of_1_mib("fork"),
];

/// Compiles the twins, runs the pairs whose names contain one of `only` (all pairs if it is empty),
/// and prints one line for each. Returns `Ok(false)` if a ratio is certainly above its limit.
///
/// # Errors
/// Fails if a program cannot be compiled or run.
pub(crate) fn run(only: &[String]) -> io::Result<bool> {
    let topology = Topology::of_this_machine();
    let folder = tempfile::tempdir()?;
    println!("| mechanism | ours, ns | C, ns | ratio | limit | verdict |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut good = true;
    let wanted =
        |pair: &&Pair| only.is_empty() || only.iter().any(|part| pair.name().contains(part));
    for pair in TABLE.iter().filter(wanted) {
        let twins = pair.twins.iter().map(|twin| compile(twin, folder.path(), &[]));
        let twins = twins.collect::<io::Result<Vec<PathBuf>>>()?;
        let (ours, theirs) = measure(pair, &twins, &pair.arguments(&topology, folder.path())?)?;
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, c)| ours / c).collect();
        let ratio = ratio::paired(&ratios).expect("ten pairs are enough for an interval");
        let verdict = LimitVerdict::at_most(ratio, pair.limit);
        good &= verdict != LimitVerdict::Failed;
        println!(
            "| {} | {:.2} | {:.2} | {:.3} [{:.3}, {:.3}] | {} | {verdict:?} |",
            pair.name(),
            order::median(&ours).unwrap_or(f64::NAN),
            order::median(&theirs).unwrap_or(f64::NAN),
            ratio.estimate,
            ratio.low,
            ratio.high,
            pair.limit
        );
    }
    Ok(good)
}

impl Pair {
    /// Returns the name in the table, without the parameters that all round trips share.
    fn name(&self) -> String {
        let mut name = format!("{}/{}", self.experiment, self.ours);
        if self.experiment != "round-trip" {
            task::short(&self.task().params).for_each(|word| name = format!("{name} {word}"));
        }
        if self.experiment == "throughput" {
            name = format!("{name} ({})", self.twins[0]);
        }
        name
    }

    fn task(&self) -> InvocationTask {
        let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        InvocationTask {
            experiment: self.experiment.into(),
            variant: self.ours.into(),
            params: self.params.iter().map(own).collect(),
            size: Size::Quick,
        }
    }

    /// Returns the arguments of the C program: number of operations, processors, and operation.
    fn arguments(&self, topology: &Topology, folder: &Path) -> io::Result<Vec<OsString>> {
        let place = self.params.iter().find(|(name, _)| *name == "placement");
        let place = place.map_or("cross-core", |(_, place)| place);
        let needs_two = || io::Error::other("expected two processors, found one");
        let place = topology.placement(place).ok_or_else(needs_two)?;
        let operations = experiment_of(self).operations(self.ours, Size::Quick);
        let (times, what) = match self.experiment {
            "liveness-check" => (CHECKS, self.ours.to_owned()),
            "throughput" => (RECORDS, self.task().params["size"].clone()),
            "signal-throughput" | "fork-throughput" => (ROUNDS, operations.to_string()),
            _ => (operations, self.ours.to_owned()),
        };
        let mut arguments: Vec<OsString> =
            [times, place.here, place.there].map(|number| number.to_string().into()).into();
        arguments.push(what.into());
        if self.ours == "posix-spawn" {
            arguments.push(compile("nothing", folder, &NOTHING)?.into());
        }
        if self.experiment == "thread-vs-process" {
            arguments.push(PARENT.to_string().into());
        }
        Ok(arguments)
    }

    /// Converts the figure of an invocation into nanoseconds.
    fn ns(&self, figure: &Summary) -> f64 {
        if self.experiment.ends_with("-throughput") { 1e9 / figure.mean } else { figure.mean }
    }
}

/// Returns the means of both sides in pairs, in nanoseconds per operation.
fn measure(
    pair: &Pair,
    twins: &[PathBuf],
    arguments: &[OsString],
) -> io::Result<(Vec<f64>, Vec<f64>)> {
    let task = pair.task();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let spins = ["flag", "mailbox", "spinlock"].iter().any(|name| pair.ours.starts_with(name));
    for turn in 0..if spins { SPINNING_PAIRS } else { PAIRS } {
        // The side that runs first finds warmer or colder caches, so the sides take turns.
        if turn.is_multiple_of(2) {
            ours.push(pair.ns(&invocation::figure(&task)?));
            theirs.push(fastest(twins, arguments)?);
        } else {
            theirs.push(fastest(twins, arguments)?);
            ours.push(pair.ns(&invocation::figure(&task)?));
        }
    }
    Ok((ours, theirs))
}

fn experiment_of(pair: &Pair) -> &'static dyn Experiment {
    SUITE.find(pair.experiment).expect("the table names experiments that exist")
}

/// Runs each twin once; returns the smallest of the printed numbers.
fn fastest(twins: &[PathBuf], arguments: &[OsString]) -> io::Result<f64> {
    let mut fastest = f64::INFINITY;
    for twin in twins {
        let output = Command::new(twin).args(arguments).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let figure: f64 = text.trim().parse().map_err(|_| {
            let errors = String::from_utf8_lossy(&output.stderr);
            let (twin, status) = (twin.display(), output.status);
            io::Error::other(format!("{twin}: {status}, printed {text:?}: {errors}"))
        })?;
        fastest = fastest.min(figure);
    }
    Ok(fastest)
}

fn compile(twin: &str, folder: &Path, more: &[&str]) -> io::Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("twins");
    let (source, binary) = (sources.join(format!("{twin}.c")), folder.join(twin));
    let compiled = Command::new("cc")
        .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-o"])
        .args([&binary, &source])
        .args(["-pthread", "-lrt"])
        .args(more)
        .status()
        .map_err(|error| io::Error::other(format!("cc: {error}; install a C compiler")))?;
    let failed = || io::Error::other(format!("cc on {}: {compiled}", source.display()));
    compiled.success().then_some(binary).ok_or_else(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_name_existing_variants_and_files() {
        for pair in TABLE {
            let known =
                experiment_of(pair).variants().iter().any(|variant| variant.name == pair.ours);
            assert!(known, "{}/{}", pair.experiment, pair.ours);
            for twin in pair.twins {
                let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("twins");
                assert!(folder.join(format!("{twin}.c")).exists(), "{twin}");
            }
        }
    }
}

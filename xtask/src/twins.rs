//! Ours against plain C: `cargo xtask twins`.
//!
//! Each mechanism has a twin in `twins/`, a small C program that times its whole loop by two clock
//! readings. Both run in turn, each time in a fresh process, and the ratios of the pairs say
//! whether the instrument adds anything to what it measures. The means are compared: that is what a
//! program with two clock readings knows.
//!
//! It judges our figures, not the machine: both sides suffer from the same noise.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tontine_measure::experiment::{self, Experiment, Params, Task};
use tontine_measure::machine::topology::{Placement, Topology};
use tontine_measure::size::Size;
use tontine_measure::stats::order;
use tontine_measure::stats::ratio::{self, Verdict};

use crate::invocation;

/// Pairs of runs, as many as a default run has invocations.
const PAIRS: usize = 10;

/// The same for ends that spin: a run of them is over in milliseconds and meets the machine in one
/// mood.
const SPINNING_PAIRS: usize = 40;

/// Checks that a C program times: enough that its two clock readings disappear.
const CHECKS: usize = 1_000_000;

/// A mechanism in both languages.
struct Pair {
    /// Name of the experiment.
    experiment: &'static str,
    /// Its variant.
    ours: &'static str,
    /// Files in `twins/`; where there are several, the fastest counts.
    twins: &'static [&'static str],
    /// Largest ratio ours / twin that is still good.
    limit: f64,
}

const fn trip(ours: &'static str, twins: &'static [&'static str], limit: f64) -> Pair {
    Pair { experiment: "round-trip", ours, twins, limit }
}

/// The experiment gives ratios to `load` and `lock-cmpxchg` of its own.
const fn check(ours: &'static str) -> Pair {
    Pair { experiment: "liveness-check", ours, twins: &["liveness"], limit: 1.15 }
}

const TABLE: &[Pair] = &[
    trip(
        "flag",
        &["flag_one_line", "flag_one_line_pause", "flag_two_line", "flag_two_line_pause"],
        1.1,
    ),
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
];

/// Compiles the twins, runs all pairs, prints a line each. False where a ratio is resolved to lie
/// above its limit.
///
/// # Errors
/// Where something cannot be compiled or run.
pub(crate) fn run() -> io::Result<bool> {
    let topology = Topology::of_this_machine();
    let needs_two = || io::Error::other("needs two processors");
    let place = topology.placement("cross-core").ok_or_else(needs_two)?;
    let folder = tempfile::tempdir()?;
    println!("| mechanism | ours, ns | C, ns | ratio | limit | verdict |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut good = true;
    for pair in TABLE {
        let twins = pair.twins.iter().map(|twin| compile(twin, folder.path()));
        let twins = twins.collect::<io::Result<Vec<PathBuf>>>()?;
        let (ours, theirs) = measure(pair, &twins, place)?;
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, c)| ours / c).collect();
        let ratio = ratio::paired(&ratios).expect("ten pairs are enough for an interval");
        let verdict = Verdict::at_most(ratio, pair.limit);
        good &= verdict != Verdict::Failed;
        println!(
            "| {}/{} | {:.2} | {:.2} | {:.3} [{:.3}, {:.3}] | {} | {verdict:?} |",
            pair.experiment,
            pair.ours,
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

/// Means of both sides, nanoseconds one way or a check, in pairs.
fn measure(pair: &Pair, twins: &[PathBuf], at: Placement) -> io::Result<(Vec<f64>, Vec<f64>)> {
    let placed = Params::from([("placement".to_owned(), at.name.to_owned())]);
    let (params, rounds) = match pair.experiment {
        "liveness-check" => (Params::new(), CHECKS),
        _ => (placed, experiment_of(pair).operations(pair.ours, Size::Quick)),
    };
    let task = Task {
        experiment: pair.experiment.into(),
        variant: pair.ours.into(),
        params,
        size: Size::Quick,
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let spins = pair.ours == "flag" || pair.ours.starts_with("spinlock");
    for turn in 0..if spins { SPINNING_PAIRS } else { PAIRS } {
        // Whoever runs first has it warmer or colder: they take turns.
        if turn.is_multiple_of(2) {
            ours.push(invocation::figure(&task)?.mean);
            theirs.push(fastest(twins, rounds, at, pair.ours)?);
        } else {
            theirs.push(fastest(twins, rounds, at, pair.ours)?);
            ours.push(invocation::figure(&task)?.mean);
        }
    }
    Ok((ours, theirs))
}

fn experiment_of(pair: &Pair) -> &'static dyn Experiment {
    experiment::find(pair.experiment).expect("the table names experiments that exist")
}

/// Runs each twin once; the smallest of the numbers that they print.
fn fastest(twins: &[PathBuf], rounds: usize, at: Placement, variant: &str) -> io::Result<f64> {
    let mut fastest = f64::INFINITY;
    for twin in twins {
        let arguments = [rounds, at.here, at.there].map(|number| number.to_string());
        let output = Command::new(twin).args(arguments).arg(variant).output()?;
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

fn compile(twin: &str, folder: &Path) -> io::Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("twins");
    let (source, binary) = (sources.join(format!("{twin}.c")), folder.join(twin));
    let compiled = Command::new("cc")
        .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-o"])
        .args([&binary, &source])
        .args(["-pthread", "-lrt"])
        .status()
        .map_err(|error| io::Error::other(format!("cc: {error}; install a C compiler")))?;
    let failed = || io::Error::other(format!("cc on {}: {compiled}", source.display()));
    compiled.success().then_some(binary).ok_or_else(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_names_a_variant_and_files_that_exist() {
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

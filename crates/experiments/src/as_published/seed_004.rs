//! Source 004 as published: the minimum latency of five mechanisms, measured by its protocol and
//! shown in its table.
//!
//! The program times consecutive rounds, halves the times, drops samples beyond 1.5 interquartile
//! ranges, and computes the naive 95 % interval. The measurement itself is that of `round-trip`; a
//! line below the table comments on the statistics.

use std::io::Write;

use tontine_bench::machine::topology::Topology;
use tontine_bench::stats::interval::Interval;
use tontine_bench::stats::naive;
use tontine_bench::stats::outliers::trimmed;
use tontine_bench::task::Params;
use tontine_host::error::{ErrorContext, MeasureError, Result};

use crate::published::published;
use crate::round_trip::{self, StampMode};

/// Number of rounds that the source timed, and of its warm-up rounds.
const ROUNDS: (usize, usize) = (1_000_000, 10_000);
/// Number of rounds and of warm-up rounds in a quick run.
const QUICK: (usize, usize) = (20_000, 2_000);
/// Number of rows of a histogram, and the width of its longest bar in characters.
const HISTOGRAM: (usize, usize) = (8, 40);

/// Rows of the source's table: the source's name, and our variant.
const ROWS: [(&str, &str); 6] = [
    ("Spinlock", "spinlock-tas"),
    ("Better spinlock", "spinlock-ttas"),
    ("Semaphore", "semaphore"),
    ("ZMQ inproc", "zmq-inproc"),
    ("ZMQ ipc", "zmq-ipc"),
    ("Docker containers", "container-unix"),
];

/// Runs the source's experiment and writes its table to `out`. If `quick`, shortens the run and
/// says so.
///
/// # Errors
/// Returns `Failed` if `out` cannot be written. If a mechanism cannot be measured, its row gives
/// the reason.
pub fn reproduce(quick: bool, out: &mut dyn Write) -> Result<()> {
    let (rounds, warm_up) = if quick { QUICK } else { ROUNDS };
    let reduced =
        if quick { format!(" Reduced from {} for a quick run.", ROUNDS.0) } else { String::new() };
    say(
        out,
        format_args!(
            "Minimal latency of IPC mechanisms, one way, ns; {rounds} rounds each after {warm_up} \
             warm-up rounds.{reduced}\n\n{:>12} {:>12} {:>12}   {:<18} published (Apple M2)",
            "lower bound", "mean", "upper bound", "mechanism"
        ),
    )?;
    let mut below = Vec::new();
    for (name, variant) in ROWS {
        let published = published_row(variant);
        match measure(variant, rounds, warm_up) {
            Ok(measured) => {
                let Interval { low, estimate, high, .. } = naive::interval(&measured.kept);
                say(
                    out,
                    format_args!(
                        "{low:>12.2} {estimate:>12.2} {high:>12.2}   {name:<18} {published}"
                    ),
                )?;
                below.push((name, measured));
            }
            Err(trouble) => {
                say(out, format_args!("{:>38}   {name:<18} {published}", "–"))?;
                say(out, format_args!("{:>38}   {trouble}", ""))?;
            }
        }
    }
    for (name, MeasuredRow { samples, kept, skipped }) in &below {
        let left = samples - kept.len();
        say(out, format_args!("\n{name}: {left} of {samples} samples trimmed"))?;
        if let Some(share) = skipped {
            say(
                out,
                format_args!("rounds skipped: {share:.3} for each completed one, warm-up included"),
            )?;
        }
        histogram(out, kept)?;
    }
    say(
        out,
        format_args!(
            "\nToday: the naive interval (±0.08 ns on 113 ns in the source) does not contain the \
             next run's result, because consecutive samples are not independent; compare whole \
             invocations instead."
        ),
    )
}

/// Returns the published lower bound, mean and upper bound in ns, as text.
fn published_row(variant: &str) -> String {
    let found = published("round-trip", variant, "one_way", &Params::new());
    let figures = found.iter().flat_map(|row| [row.low, Some(row.value), row.high]).flatten();
    figures.map(|ns| format!("{ns:.2}")).collect::<Vec<_>>().join(" – ")
}

/// One mechanism's row.
struct MeasuredRow {
    /// Number of samples of the one-way latency, one per round.
    samples: usize,
    /// The samples within 1.5 interquartile ranges of the quartiles, in ns, in ascending order.
    kept: Vec<f64>,
    /// Number of skipped rounds per completed round, if the mechanism counts them.
    skipped: Option<f64>,
}

fn measure(variant: &str, rounds: usize, warm_up: usize) -> Result<MeasuredRow> {
    let placement = Topology::of_this_machine()
        .placement("cross-core")
        .ok_or_else(|| MeasureError::skip("needs two processors; this process may use one"))?;
    let observed = round_trip::measure(variant, rounds, warm_up, placement, StampMode::EveryRound)?;
    let find = |metric: &str| observed.series.iter().find(|series| series.metric == metric);
    let samples = &find("one_way")
        .ok_or_else(|| MeasureError::fail("round-trip yielded no series one_way"))?
        .samples;
    let kept = trimmed(samples)
        .ok_or_else(|| MeasureError::fail("round-trip yielded no finite samples of one_way"))?;
    let skipped = find("skipped").and_then(|series| series.samples.first().copied());
    Ok(MeasuredRow { samples: samples.len(), kept, skipped })
}

fn histogram(out: &mut dyn Write, sorted: &[f64]) -> Result<()> {
    let (rows, width) = HISTOGRAM;
    let (Some(&least), Some(&most)) = (sorted.first(), sorted.last()) else {
        return Ok(());
    };
    let step = (most - least) / rows as f64;
    let mut counts = vec![0_usize; rows];
    for ns in sorted {
        let row = if step > 0.0 { ((ns - least) / step) as usize } else { 0 };
        counts[row.min(rows - 1)] += 1;
    }
    let highest = counts.iter().copied().max().unwrap_or(0).max(1);
    for (row, count) in counts.iter().enumerate() {
        let from = least + row as f64 * step;
        let bar = "#".repeat((count * width).div_ceil(highest));
        say(out, format_args!("{from:>12.1} {count:>8} {bar}"))?;
    }
    Ok(())
}

fn say(out: &mut dyn Write, line: std::fmt::Arguments<'_>) -> Result<()> {
    writeln!(out, "{line}").during("writing the table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_prints_its_published_figures() {
        for (name, variant) in ROWS {
            assert_eq!(published_row(variant).split(" – ").count(), 3, "{name}");
        }
        assert_eq!(published_row("spinlock-ttas"), "88.16 – 88.20 – 88.24");
    }

    #[test]
    fn histogram_counts_every_sample() {
        let mut out = Vec::new();
        histogram(&mut out, &[1.0, 1.0, 2.0, 9.0]).expect("a vector can be written");
        let text = String::from_utf8(out).expect("UTF-8");
        let counts = text.lines().filter_map(|line| line.split_whitespace().nth(1));
        let sum: usize = counts.map(|count| count.parse::<usize>().expect("a count")).sum();
        assert_eq!((text.lines().count(), sum), (HISTOGRAM.0, 4));
    }
}

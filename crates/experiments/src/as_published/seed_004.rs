//! Source 004 as published: the minimum latency of five mechanisms, measured by its protocol and
//! shown in its table.
//!
//! The program times consecutive rounds, halves the times, drops samples beyond 1.5 interquartile
//! ranges, and computes the naive 95 % interval. The measurement itself is that of `round-trip`.
//! The notes below the table state what the source's programs, in the repository that its text
//! names, do otherwise; [`rows`] judges each row.

mod rows;

use std::io::Write;

use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::Observed;
use tontine_bench::size::Size;
use tontine_bench::stats::interval::Interval;
use tontine_bench::stats::outliers::trimmed;
use tontine_bench::stats::{naive, order};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::error::{ErrorContext, MeasureError, Result};

use super::points::{SourcePoints, reply};
use super::verdict;
use crate::round_trip::{self, StampMode};
use rows::{IGNORING, MeasuredRow, NOTES, ROWS, SourceRow};

/// Number of rounds that the source timed, and of its warm-up rounds.
const ROUNDS: (usize, usize) = (1_000_000, 10_000);
/// Number of rounds and of warm-up rounds in a quick run.
const QUICK: (usize, usize) = (20_000, 2_000);
/// Number of rows of a histogram, and the width of its longest bar in characters.
const HISTOGRAM: (usize, usize) = (8, 40);

/// Runs the source's experiment and writes its table to `out`. If `quick`, shortens the run and
/// says so.
///
/// # Errors
/// Returns `Failed` if `out` cannot be written. If a mechanism cannot be measured, its row gives
/// the reason.
pub(super) fn reproduce(points: &mut SourcePoints<'_, '_>, out: &mut dyn Write) -> Result<()> {
    let quick = points.quick();
    let (rounds, warm_up) = if quick { QUICK } else { ROUNDS };
    let reduced =
        if quick { format!("\nReduced from {} for a quick run.", ROUNDS.0) } else { String::new() };
    say(
        out,
        format_args!(
            "Minimal latency of IPC mechanisms, one way, ns; {rounds} rounds each after {warm_up}\n\
             warm-up rounds.{reduced}\n\n{:>10} {:>10} {:>10}  {:21} published (Apple M2)",
            "lower", "mean", "upper", "mechanism"
        ),
    )?;
    let mut measured = Vec::new();
    for row in &ROWS {
        let SourceRow { name, variant, notes, .. } = *row;
        let name = format!("{name} {notes}");
        let [low, mean, high] = row.published();
        let published = format!("{low:.2} {mean:.2} {high:.2}");
        let found = points.own::<MeasuredRow>(variant, Params::new());
        match &found {
            Ok(found) => {
                let Interval { low, estimate, high, .. } = found.interval;
                let ours = format!("{low:>10.2} {estimate:>10.2} {high:>10.2}");
                say(out, format_args!("{ours}  {name:21} {published}"))?;
            }
            // The verdict gives the reason.
            Err(_) => say(out, format_args!("{:>32}  {name:21} {published}", "not measured"))?,
        }
        measured.push(found);
    }
    say(out, format_args!("\n{NOTES}"))?;
    for (row, found) in ROWS.iter().zip(&measured) {
        let (name, Ok(MeasuredRow { samples, left, histogram, skipped, .. })) = (row.name, found)
        else {
            continue;
        };
        say(out, format_args!("\n{name}: {left} of {samples} samples trimmed"))?;
        if let Some(share) = skipped {
            say(
                out,
                format_args!("rounds skipped: {share:.3} for each completed one, warm-up included"),
            )?;
        }
        draw(out, histogram)?;
    }
    let again = points.own(ROWS[0].variant, Params::new());
    verdict::print(out, &rows::verdicts(&measured, &again))
}

/// Measures one row in the calling process.
pub(super) fn own_point(task: &InvocationTask) -> Result<Observed> {
    let (rounds, warm_up) = if task.size == Size::Quick { QUICK } else { ROUNDS };
    reply(&measure(&task.variant, rounds, warm_up)?)
}

/// Returns the seconds that a point takes on two processors of a virtual machine.
pub(super) fn seconds(task: &InvocationTask) -> f64 {
    match (task.variant.as_str(), task.size) {
        ("semaphore" | "zmq-inproc" | "zmq-ipc", Size::Quick) => 2.0,
        ("container-unix", Size::Quick) => 5.0,
        ("semaphore", _) => 40.0,
        ("zmq-inproc" | "zmq-ipc" | "container-unix", _) => 60.0,
        (_, Size::Quick) => 0.1,
        _ => 0.4,
    }
}

fn measure(variant: &str, rounds: usize, warm_up: usize) -> Result<MeasuredRow> {
    let placement = Topology::of_this_machine()
        .placement("cross-core")
        .ok_or_else(|| MeasureError::skip("needs two processors; this process may use one"))?;
    let observed = match variant {
        IGNORING => round_trip::without_exclusion(rounds, warm_up, placement)?,
        _ => round_trip::measure(variant, rounds, warm_up, placement, StampMode::EveryRound)?,
    };
    let find = |metric: &str| observed.series.iter().find(|series| series.metric == metric);
    let samples = &find("one_way")
        .ok_or_else(|| MeasureError::fail("round-trip yielded no series one_way"))?
        .samples;
    let kept = trimmed(samples)
        .ok_or_else(|| MeasureError::fail("round-trip yielded no finite samples of one_way"))?;
    let skipped = find("skipped").and_then(|series| series.samples.first().copied());
    let quartile = |q| order::quantile(&kept, q).unwrap_or(f64::NAN);
    Ok(MeasuredRow {
        samples: samples.len(),
        left: samples.len() - kept.len(),
        quartiles: [0.25, 0.5, 0.75].map(quartile),
        histogram: histogram(&kept),
        interval: naive::interval(&kept),
        skipped,
    })
}

/// Returns the lower ends and the counts of the rows of a histogram.
fn histogram(sorted: &[f64]) -> Vec<(f64, usize)> {
    let rows = HISTOGRAM.0;
    let (Some(&least), Some(&most)) = (sorted.first(), sorted.last()) else {
        return Vec::new();
    };
    let step = (most - least) / rows as f64;
    let mut counts: Vec<_> = (0..rows).map(|row| (least + row as f64 * step, 0)).collect();
    for ns in sorted {
        let row = if step > 0.0 { ((ns - least) / step) as usize } else { 0 };
        counts[row.min(rows - 1)].1 += 1;
    }
    counts
}

fn draw(out: &mut dyn Write, histogram: &[(f64, usize)]) -> Result<()> {
    let highest = histogram.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    for (from, count) in histogram {
        let bar = "#".repeat((count * HISTOGRAM.1).div_ceil(highest));
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
    fn histogram_counts_every_sample() {
        let mut out = Vec::new();
        draw(&mut out, &histogram(&[1.0, 1.0, 2.0, 9.0])).expect("a vector can be written");
        let text = String::from_utf8(out).expect("UTF-8");
        let counts = text.lines().filter_map(|line| line.split_whitespace().nth(1));
        let sum: usize = counts.map(|count| count.parse::<usize>().expect("a count")).sum();
        assert_eq!((text.lines().count(), sum), (HISTOGRAM.0, 4));
    }
}

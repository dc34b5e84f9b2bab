//! `cargo xtask speed`: measures the promises on the speed of the virtual Unix and its Linux
//! backend. Each figure is a ratio to its competitor in one run or, without a competitor, a value
//! in its own unit.
//!
//! Both sides of a pair are measured in fresh processes, one directly after the other, in
//! alternating order. The table shows the median of the pairs' ratios and its interval; a target is
//! met if the whole interval meets it. [`side`] defines the sides.
//!
//! The task does not fail if a target is missed, because a machine with two shared processors
//! cannot prove a miss. Readers judge the table.

mod side;

use std::io;
use std::process::Command;

use tontine_bench::size::Size;
use tontine_bench::stats::interval::Interval;
use tontine_bench::stats::ratio::{self, LimitVerdict};
use tontine_bench::task::{InvocationTask, Params};

use crate::invocation;

/// Hidden command that measures one side in a fresh process.
pub(crate) const NAME: &str = "__side";

/// One side of a figure: a cell of an experiment, or a side of this task, by name.
#[derive(Debug, Clone, Copy)]
enum Of {
    /// Signals that one receiver handles per second: variant, pairs, placement.
    Signals(&'static str, usize, &'static str),
    /// One of [`side::ALL`].
    Own(&'static str),
    /// The number 1, for a figure without a competitor.
    One,
}

#[derive(Debug, Clone, Copy)]
enum SpeedTarget {
    AtLeast(f64),
    AtMost(f64),
}

/// `above` ÷ `below`, times `factor`.
struct SpeedRatio {
    what: &'static str,
    above: Of,
    below: Of,
    factor: f64,
    target: SpeedTarget,
}

const fn figure(what: &'static str, above: Of, below: Of, target: SpeedTarget) -> SpeedRatio {
    SpeedRatio { what, above, below, factor: 1.0, target }
}

impl SpeedRatio {
    /// Returns the figure scaled by `factor`, because `above` is measured for only one of `factor`
    /// concurrent pairs.
    const fn times(self, factor: f64) -> Self {
        Self { factor, ..self }
    }
}

const FIGURES: &[SpeedRatio] = &[
    figure(
        "signals/s, one pair, one processor: virtual (calls) ÷ Linux (traps)",
        Of::Signals("parallel", 1, "same-core"),
        Of::Signals("linux", 1, "same-core"),
        SpeedTarget::AtLeast(20.0),
    ),
    figure(
        "a tokio task spawned and joined ÷ fork + exit + wait",
        Of::Own("tokio"),
        Of::Own("fork-exit-wait"),
        SpeedTarget::AtLeast(0.5),
    ),
    figure(
        "signals/s, the pair not on processor 0: parallel ÷ master",
        Of::Signals("parallel", 1, "off-master"),
        Of::Signals("master", 1, "off-master"),
        SpeedTarget::AtLeast(2.0),
    ),
    figure(
        "signals/s, independent pairs: parallel, two processors ÷ one",
        Of::Signals("parallel", 2, "apart"),
        Of::Signals("parallel", 1, "same-core"),
        SpeedTarget::AtLeast(1.6),
    )
    .times(2.0),
    figure(
        "signals/s, independent pairs: per-process, two processors ÷ one",
        Of::Signals("per-process", 2, "apart"),
        Of::Signals("per-process", 1, "same-core"),
        SpeedTarget::AtLeast(1.8),
    )
    .times(2.0),
    figure(
        "signals/s on one processor: parallel ÷ uniprocessor",
        Of::Signals("parallel", 1, "same-core"),
        Of::Signals("uniprocessor", 1, "same-core"),
        SpeedTarget::AtLeast(0.85),
    ),
    figure(
        "100,000 blocked processes: resident memory, GiB",
        Of::Own("many-memory"),
        Of::One,
        SpeedTarget::AtMost(2.0),
    ),
    figure(
        "100,000 blocked processes: created and reaped, s",
        Of::Own("many-time"),
        Of::One,
        SpeedTarget::AtMost(1.0),
    ),
    figure(
        "kill to a group of 10,000, ms",
        Of::Own("group-kill"),
        Of::One,
        SpeedTarget::AtMost(2.0),
    ),
    figure(
        "kill to a group: 10,000 members ÷ 1,000",
        Of::Own("group-kill"),
        Of::Own("small-group-kill"),
        SpeedTarget::AtMost(12.0),
    ),
    figure(
        "simulated: system calls, millions per second",
        Of::Own("simulated"),
        Of::One,
        SpeedTarget::AtLeast(2.0),
    ),
    figure(
        "Linux: spawn + wait ÷ std::process",
        Of::Own("spawn"),
        Of::Own("command"),
        SpeedTarget::AtMost(1.05),
    ),
    figure(
        "Linux, 1 GiB touched: spawn + wait ÷ fork + exec + wait",
        Of::Own("spawn-large"),
        Of::Own("fork-exec-large"),
        SpeedTarget::AtMost(0.2),
    ),
];

/// Measures `pairs` pairs of each figure whose name contains one of `only` (of all figures if it is
/// empty), and prints the table.
///
/// # Errors
/// Fails if a side yields no figure; the text names the reason.
pub(crate) fn run(pairs: usize, only: &[String]) -> io::Result<bool> {
    println!("| figure | above | below | {pairs} pairs: median [95 %] | target | |");
    println!("| --- | --: | --: | --: | --: | --- |");
    for figure in FIGURES {
        let asked = only.is_empty() || only.iter().any(|part| figure.what.contains(part));
        if asked {
            println!("{}", row(figure, pairs)?);
        }
    }
    Ok(true)
}

/// Measures one side and prints the figure for the parent process.
pub(crate) fn serve(name: &str) -> io::Result<bool> {
    println!("{}", side::measure(name)?);
    Ok(true)
}

fn row(figure: &SpeedRatio, pairs: usize) -> io::Result<String> {
    let (mut above, mut below) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        if pair.is_multiple_of(2) {
            above.push(value(figure.above)?);
            below.push(value(figure.below)?);
        } else {
            below.push(value(figure.below)?);
            above.push(value(figure.above)?);
        }
    }
    let ratios: Vec<f64> = above.iter().zip(&below).map(|(a, b)| figure.factor * a / b).collect();
    let interval = ratio::paired(&ratios)
        .ok_or_else(|| io::Error::other(format!("expected at least 6 pairs, found {pairs}")))?;
    let middle = |values: &[f64]| {
        let median = tontine_bench::stats::order::median(values);
        median.map_or("–".to_owned(), significant)
    };
    let below = if matches!(figure.below, Of::One) { "–".to_owned() } else { middle(&below) };
    let (target, verdict) = judge(figure.target, interval);
    Ok(format!(
        "| {} | {} | {below} | {} [{}, {}] | {target} | {verdict} |",
        figure.what,
        middle(&above),
        significant(interval.estimate),
        significant(interval.low),
        significant(interval.high),
    ))
}

fn value(of: Of) -> io::Result<f64> {
    match of {
        Of::One => Ok(1.0),
        Of::Signals(variant, pairs, placement) => {
            let task = InvocationTask {
                experiment: "signal-throughput".to_owned(),
                variant: variant.to_owned(),
                params: Params::from([
                    ("pairs".to_owned(), pairs.to_string()),
                    ("placement".to_owned(), placement.to_owned()),
                ]),
                size: Size::Default,
            };
            Ok(invocation::figure(&task)?.mean)
        }
        Of::Own(name) => fresh_process(name),
    }
}

/// Measures a side of this task in a fresh process.
fn fresh_process(name: &str) -> io::Result<f64> {
    let output = Command::new(std::env::current_exe()?).args([NAME, name]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().parse() {
        Ok(value) if output.status.success() => Ok(value),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("{name}: {}: {text}{said}", output.status)))
        }
    }
}

fn judge(target: SpeedTarget, interval: Interval) -> (String, &'static str) {
    let (words, verdict) = match target {
        SpeedTarget::AtLeast(limit) => {
            (format!("≥ {limit}"), LimitVerdict::at_least(interval, limit))
        }
        SpeedTarget::AtMost(limit) => {
            (format!("≤ {limit}"), LimitVerdict::at_most(interval, limit))
        }
    };
    let verdict = match verdict {
        LimitVerdict::Met => "met",
        LimitVerdict::Failed => "failed",
        LimitVerdict::Unresolved => "unresolved",
    };
    (words, verdict)
}

/// Formats a value with three significant digits.
fn significant(value: f64) -> String {
    let digits = value.abs().log10().floor();
    if digits >= 2.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.*}", (2.0 - digits) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_target_is_met_failed_or_unresolved() {
        let interval =
            |low, high| Interval { estimate: (low + high) / 2.0, low, high, achieved: 0.95 };
        assert_eq!(judge(SpeedTarget::AtLeast(20.0), interval(21.0, 22.0)).1, "met");
        assert_eq!(judge(SpeedTarget::AtLeast(20.0), interval(18.0, 19.0)).1, "failed");
        assert_eq!(judge(SpeedTarget::AtMost(2.0), interval(1.9, 2.1)).1, "unresolved");
    }

    #[test]
    fn figures_name_existing_sides() {
        for figure in FIGURES {
            for of in [figure.above, figure.below] {
                if let Of::Own(name) = of {
                    assert!(side::ALL.iter().any(|(side, _)| *side == name), "{name}");
                }
            }
        }
    }

    #[test]
    fn significant_rounds_to_three_digits() {
        assert_eq!(significant(1234.4), "1234");
        assert_eq!(significant(32.14), "32.1");
        assert_eq!(significant(0.009_123), "0.00912");
    }
}

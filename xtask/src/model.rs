//! `cargo xtask model`: how far the modelled executor's word holds on the processors that there
//! are.
//!
//! First what each step costs here is measured, or read from a file. Then each figure is measured
//! and modelled in turn, in fresh processes, so many times; the table has the median of the ratios
//! and its interval. A figure *holds* where the whole interval lies within the promised distance.
//! The table belongs into docs/model.md when nobody else uses the machine.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use tontine_measure::experiment::{Params, Task};
use tontine_measure::os::pin;
use tontine_measure::size::Size;
use tontine_measure::stats::interval::Interval;
use tontine_measure::stats::{order, ratio};
use tontine_unix::Costs;

use crate::invocation;

/// How far a model may be from what it models.
const DISTANCE: f64 = 0.15;

/// A cell that can be measured and modelled.
struct Figure {
    what: &'static str,
    experiment: &'static str,
    variant: &'static str,
    params: &'static [(&'static str, &'static str)],
    processors: usize,
}

const MODES: [&str; 4] = ["master", "coarse", "parallel", "per-process"];

/// The figures: those of one mode for each number of processors.
const SHAPES: [Figure; 7] = [
    signals("one pair", &[("pairs", "1"), ("placement", "same-core")], 1),
    signals("one pair", &[("pairs", "1"), ("placement", "cross-core")], 2),
    signals("one pair, off the master", &[("pairs", "1"), ("placement", "off-master")], 2),
    signals("two pairs apart", &[("pairs", "2"), ("placement", "apart")], 2),
    signals("two pairs, spread", &[("pairs", "2"), ("placement", "spread")], 2),
    forks("one process", &[("processes", "1")], 1),
    forks("two processes", &[("processes", "2")], 2),
];

const fn signals(
    what: &'static str,
    params: &'static [(&'static str, &'static str)],
    processors: usize,
) -> Figure {
    Figure { what, experiment: "signal-throughput", variant: "", params, processors }
}

const fn forks(
    what: &'static str,
    params: &'static [(&'static str, &'static str)],
    processors: usize,
) -> Figure {
    Figure { what, experiment: "fork-throughput", variant: "", params, processors }
}

/// Compares model and machine in so many pairs, and prints the table; `costs` is where they are, or
/// nothing if they are to be measured first.
///
/// # Errors
/// Where a cell gives no figure; the text says why.
pub(crate) fn run(pairs: usize, costs: Option<&Path>) -> io::Result<bool> {
    let mut file = tempfile::NamedTempFile::new()?;
    let text = match costs {
        Some(path) => fs::read_to_string(path)?,
        None => Costs::measure().to_string(),
    };
    file.write_all(text.as_bytes())?;
    println!("```\n{text}```\n");
    println!("| experiment | P | mode | | measured | modelled | modelled ÷ measured | |");
    println!("| --- | --: | --- | --- | --: | --: | --: | --- |");
    let there = pin::allowed().map_err(|trouble| io::Error::other(trouble.to_string()))?;
    for shape in SHAPES.iter().filter(|shape| shape.processors <= there.len()) {
        // Who is measured on one processor has no other one.
        if shape.processors == 1 {
            pin::pin_to(there[0]).map_err(|trouble| io::Error::other(trouble.to_string()))?;
        }
        for variant in MODES {
            println!("{}", row(&Figure { variant, ..*shape }, pairs, file.path())?);
        }
        pin::pin_to_all(&there).map_err(|trouble| io::Error::other(trouble.to_string()))?;
    }
    Ok(true)
}

fn row(figure: &Figure, pairs: usize, costs: &Path) -> io::Result<String> {
    let task = |params: Params| Task {
        experiment: figure.experiment.to_owned(),
        variant: figure.variant.to_owned(),
        params,
        size: Size::Default,
    };
    let measured_params: Params =
        figure.params.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut modelled_params = measured_params.clone();
    let word = if figure.processors == 1 { "processor" } else { "processors" };
    modelled_params.insert("modelled".to_owned(), format!("{} {word}", figure.processors));
    modelled_params.insert("costs".to_owned(), costs.display().to_string());
    let (measured, modelled) = (task(measured_params), task(modelled_params));
    let (mut real, mut said) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        if pair.is_multiple_of(2) {
            real.push(invocation::figure(&measured)?.mean);
            said.push(invocation::figure(&modelled)?.mean);
        } else {
            said.push(invocation::figure(&modelled)?.mean);
            real.push(invocation::figure(&measured)?.mean);
        }
    }
    let ratios: Vec<f64> = said.iter().zip(&real).map(|(said, real)| said / real).collect();
    let interval = ratio::paired(&ratios)
        .ok_or_else(|| io::Error::other(format!("{pairs} pairs are too few: 6 at least")))?;
    let middle = |values: &[f64]| {
        order::median(values).map_or("–".to_owned(), |median| format!("{median:.0}"))
    };
    Ok(format!(
        "| {} | {} | {} | {} | {} | {} | {:.2} [{:.2}, {:.2}] | {} |",
        figure.experiment,
        figure.processors,
        figure.variant,
        figure.what,
        middle(&real),
        middle(&said),
        interval.estimate,
        interval.low,
        interval.high,
        judge(interval),
    ))
}

fn judge(interval: Interval) -> &'static str {
    let within = 1.0 - DISTANCE..=1.0 + DISTANCE;
    if within.contains(&interval.low) && within.contains(&interval.high) {
        "holds"
    } else if interval.high < *within.start() || interval.low > *within.end() {
        "does not hold"
    } else {
        "unresolved"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_holds_where_the_whole_interval_is_near() {
        let interval =
            |low, high| Interval { estimate: (low + high) / 2.0, low, high, achieved: 0.95 };
        assert_eq!(judge(interval(0.9, 1.1)), "holds");
        assert_eq!(judge(interval(0.8, 1.1)), "unresolved");
        assert_eq!(judge(interval(1.2, 1.3)), "does not hold");
        assert_eq!(judge(interval(0.5, 0.7)), "does not hold");
    }
}

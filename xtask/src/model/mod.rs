//! `cargo xtask model`: compares the modelled executor with the machine, on the processors of the
//! machine.
//!
//! In each round the task measures the cost of each step, or reads it from a file. It then measures
//! and models each figure, one directly after the other, in fresh processes. A hypervisor may move
//! the virtual processors between physical ones, which changes the cost of a step, so each round
//! uses its own costs. The table shows the median of the ratios and its interval. A figure *holds*
//! if the whole interval is within the promised distance. Copy the table to docs/reference/model.md
//! if the machine was otherwise idle.
//!
//! `--tables` models processors that the machine does not have, for the same page.

mod tables;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use tontine_bench::size::Size;
use tontine_bench::stats::interval::Interval;
use tontine_bench::stats::{order, ratio};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::os::pin;
use tontine_unix_sim::CostModel;

use crate::invocation;

/// Maximum relative distance of a modelled figure from the measured figure.
const DISTANCE: f64 = 0.15;

/// A cell that can be measured and modelled.
struct ModelledCell {
    what: &'static str,
    experiment: &'static str,
    variant: &'static str,
    params: &'static [(&'static str, &'static str)],
    processors: usize,
}

const MODES: [&str; 4] = ["master", "coarse", "parallel", "per-process"];

/// Cells of one mode, for each number of processors.
const SHAPES: [ModelledCell; 7] = [
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
) -> ModelledCell {
    ModelledCell { what, experiment: "signal-throughput", variant: "", params, processors }
}

const fn forks(
    what: &'static str,
    params: &'static [(&'static str, &'static str)],
    processors: usize,
) -> ModelledCell {
    ModelledCell { what, experiment: "fork-throughput", variant: "", params, processors }
}

/// Prints figures 1 and 2 of the model, each with `times` seeds; see [`tables`].
///
/// # Errors
/// A cell yields no figure; the text names the reason.
pub(crate) fn print_tables(times: usize, costs: Option<&Path>) -> io::Result<bool> {
    tables::print(times, costs)
}

/// Compares model and machine in `rounds` rounds, and prints the table. `costs` is the file with
/// the costs; without a file, they are measured.
///
/// # Errors
/// A cell yields no figure; the text names the reason.
pub(crate) fn run(rounds: usize, costs: Option<&Path>) -> io::Result<bool> {
    let there = pin::allowed().map_err(|trouble| io::Error::other(trouble.to_string()))?;
    let mut compared: Vec<ModelComparison> = SHAPES
        .iter()
        .filter(|shape| shape.processors <= there.len())
        .flat_map(|shape| {
            MODES.map(|variant| ModelComparison::new(ModelledCell { variant, ..*shape }))
        })
        .collect();
    for round in 0..rounds {
        let mut file = tempfile::NamedTempFile::new()?;
        let text = match costs {
            Some(path) => fs::read_to_string(path)?,
            None => CostModel::measure().to_string(),
        };
        file.write_all(text.as_bytes())?;
        if round == 0 {
            println!("```\n{text}```\n");
        }
        for one in &mut compared {
            // A figure for one processor must not use any other processor.
            let allowed = &there[..one.figure.processors.min(there.len())];
            pin::pin_to_all(allowed).map_err(|trouble| io::Error::other(trouble.to_string()))?;
            one.compare(round, file.path())?;
        }
        pin::pin_to_all(&there).map_err(|trouble| io::Error::other(trouble.to_string()))?;
    }
    println!("| experiment | P | mode | | measured | modelled | modelled ÷ measured | |");
    println!("| --- | --: | --- | --- | --: | --: | --: | --- |");
    for one in &compared {
        println!("{}", one.row()?);
    }
    Ok(true)
}

/// A figure, measured and modelled, round by round.
struct ModelComparison {
    figure: ModelledCell,
    measured: Vec<f64>,
    modelled: Vec<f64>,
}

impl ModelComparison {
    fn new(figure: ModelledCell) -> Self {
        Self { figure, measured: Vec::new(), modelled: Vec::new() }
    }

    /// Measures and models the figure once more. In every second round, the measurement comes
    /// first.
    fn compare(&mut self, round: usize, costs: &Path) -> io::Result<()> {
        let task = |params: Params| InvocationTask {
            experiment: self.figure.experiment.to_owned(),
            variant: self.figure.variant.to_owned(),
            params,
            size: Size::Default,
        };
        let params = self.figure.params.iter();
        let real: Params =
            params.map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut model = real.clone();
        let word = if self.figure.processors == 1 { "processor" } else { "processors" };
        model.insert("modelled".to_owned(), format!("{} {word}", self.figure.processors));
        model.insert("costs".to_owned(), costs.display().to_string());
        let (real, model) = (task(real), task(model));
        if round.is_multiple_of(2) {
            self.measured.push(invocation::figure(&real)?.mean);
            self.modelled.push(invocation::figure(&model)?.mean);
        } else {
            self.modelled.push(invocation::figure(&model)?.mean);
            self.measured.push(invocation::figure(&real)?.mean);
        }
        Ok(())
    }

    fn row(&self) -> io::Result<String> {
        let both = self.modelled.iter().zip(&self.measured);
        let ratios: Vec<f64> = both.map(|(modelled, measured)| modelled / measured).collect();
        let interval = ratio::paired(&ratios).ok_or_else(|| {
            io::Error::other(format!("expected at least 6 rounds, found {}", ratios.len()))
        })?;
        let middle = |values: &[f64]| {
            order::median(values).map_or("–".to_owned(), |median| format!("{median:.0}"))
        };
        Ok(format!(
            "| {} | {} | {} | {} | {} | {} | {:.2} [{:.2}, {:.2}] | {} |",
            self.figure.experiment,
            self.figure.processors,
            self.figure.variant,
            self.figure.what,
            middle(&self.measured),
            middle(&self.modelled),
            interval.estimate,
            interval.low,
            interval.high,
            judge(interval),
        ))
    }
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
    fn model_holds_if_whole_interval_is_within_distance() {
        let interval =
            |low, high| Interval { estimate: (low + high) / 2.0, low, high, achieved: 0.95 };
        assert_eq!(judge(interval(0.9, 1.1)), "holds");
        assert_eq!(judge(interval(0.8, 1.1)), "unresolved");
        assert_eq!(judge(interval(1.2, 1.3)), "does not hold");
        assert_eq!(judge(interval(0.5, 0.7)), "does not hold");
    }
}

//! `cargo xtask planted`: injects a delay as large as `compare` says that it can resolve.
//!
//! Each rerun of a cell makes two comparisons like the second stage, side by side: the cell with
//! itself, and the cell with itself plus a delay in every operation. The delay is the smallest
//! difference that the previous rerun (for the first rerun, a pilot) could have resolved. Therefore
//! the task tests the claim as a user reads it, and the delay adapts to the state of the machine.
//! At least 95 of 100 delays must be found, and at most 7 of 100 comparisons without a delay may
//! find one.
//!
//! The cell that blocks runs on one processor: on two, part of a delay would elapse before the
//! other side sleeps, and would not reach the figure.

use std::ffi::OsString;
use std::io;
use std::time::Instant;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use tontine_bench::compare::arm::{Arm, FigureSource};
use tontine_bench::engine::plan;
use tontine_bench::engine::stop::StopRequest;
use tontine_bench::injected_delay::InjectedDelay;
use tontine_bench::machine::topology::Topology;
use tontine_bench::size::Size;
use tontine_bench::stats::interval::CONFIDENCE;
use tontine_bench::stats::order::{median, quantile_interval};
use tontine_bench::stats::resolution;
use tontine_bench::task::InvocationTask;
use tontine_experiments::SUITE;

use crate::invocation::NAME;

/// Cells and their placements: one spins, one blocks, and one makes a system call.
const CELLS: [(&str, Option<&str>); 3] = [
    ("round-trip/flag-one-line", Some("cross-core")),
    ("round-trip/pipe", Some("same-core")),
    ("liveness-check/kill-0", None),
];

/// Minimum share of delays that are found, and maximum share of false alarms.
const FOUND: f64 = 0.95;
const ALLOWED: f64 = 0.07;

/// Makes `reruns` of each cell and prints a table. Returns `Ok(false)` if a share misses its limit.
///
/// # Errors
/// Fails if a cell cannot be measured on this machine, or if `only` names no cell.
pub(crate) fn run(reruns: usize, only: Option<&str>) -> io::Result<bool> {
    let stop = StopRequest::on_signals()?;
    let arm = Arm::new(&std::env::current_exe()?, vec![OsString::from(NAME)]);
    let mut rows = Vec::new();
    let mut good = true;
    for task in tasks(only)? {
        let mut cell =
            PlantedCell { arm: &arm, stop: &stop, random: ChaCha8Rng::seed_from_u64(1), task };
        let row = cell.trial(reruns)?;
        good &= row.good();
        rows.push(row);
    }
    println!("| cell | reruns | pairs each | delay: median | as a share | found | false alarms |");
    println!("| --- | --: | --: | --: | --: | --: | --: |");
    for row in &rows {
        println!(
            "| {} | {} | {} | {:.1} ns | {:.1} % | {} | {} |",
            row.cell,
            row.reruns,
            row.pairs,
            row.delay_ns,
            row.share * 100.0,
            row.found,
            row.false_alarms
        );
    }
    println!(
        "\ntarget: at least {:.0} % found, at most {:.0} % false alarms in each cell",
        FOUND * 100.0,
        ALLOWED * 100.0
    );
    Ok(good)
}

fn tasks(only: Option<&str>) -> io::Result<Vec<InvocationTask>> {
    let topology = Topology::of_this_machine();
    let mut tasks = Vec::new();
    for (name, placement) in CELLS {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let found = plan::select(&SUITE, &[name.to_owned()], Size::Quick, &topology);
        let mut found = found.map_err(io::Error::other)?.into_iter();
        let fits = |task: &InvocationTask| {
            placement.is_none_or(|placement| task.params["placement"] == placement)
        };
        let missing = || io::Error::other(format!("{name}: no {placement:?} on this machine"));
        tasks.push(found.find(fits).ok_or_else(missing)?);
    }
    if tasks.is_empty() {
        let names = CELLS.map(|(name, _)| name).join(", ");
        return Err(io::Error::other(format!(
            "expected a cell, found another name; name one of {names}"
        )));
    }
    Ok(tasks)
}

struct PlantedRow {
    cell: String,
    reruns: usize,
    pairs: usize,
    delay_ns: f64,
    share: f64,
    found: usize,
    false_alarms: usize,
}

impl PlantedRow {
    fn good(&self) -> bool {
        let reruns = self.reruns as f64;
        self.found as f64 >= FOUND * reruns && self.false_alarms as f64 <= ALLOWED * reruns
    }
}

struct PlantedCell<'a> {
    arm: &'a Arm,
    stop: &'a StopRequest,
    random: ChaCha8Rng,
    task: InvocationTask,
}

/// Logarithms of ratios, and the figures without a delay.
#[derive(Default)]
struct Pairs {
    equal: Vec<f64>,
    delayed: Vec<f64>,
    figures: Vec<f64>,
}

impl PlantedCell<'_> {
    fn trial(&mut self, reruns: usize) -> io::Result<PlantedRow> {
        let pairs = resolution::fewest_pairs(CONFIDENCE);
        eprintln!("{}: pilot", self.task);
        let mut last = self.pairs(pairs, 0.0)?;
        let (mut delays, mut shares) = (Vec::new(), Vec::new());
        let (mut found, mut false_alarms) = (0, 0);
        let began = Instant::now();
        for rerun in 1..=reruns {
            let smallest = resolution::paired(&last.equal, CONFIDENCE);
            let share = smallest.expect("the fewest pairs are enough").exp() - 1.0;
            let delay = share * median(&last.figures).unwrap_or(0.0);
            last = self.pairs(pairs, delay)?;
            let interval = |differences: &[f64]| {
                quantile_interval(differences, 0.5, CONFIDENCE).expect("enough pairs")
            };
            found += usize::from(interval(&last.delayed).low > 0.0);
            false_alarms += usize::from(!interval(&last.equal).holds(0.0));
            delays.push(delay);
            shares.push(share);
            let left = began.elapsed().as_secs_f64() / rerun as f64 * (reruns - rerun) as f64;
            eprintln!(
                "{}: rerun {rerun} of {reruns}, {delay:.1} ns ({:.1} %): found {found}, false \
                 alarms {false_alarms}, {left:.0} s left",
                self.task,
                share * 100.0
            );
        }
        Ok(PlantedRow {
            cell: self.task.to_string(),
            reruns,
            pairs,
            delay_ns: median(&delays).unwrap_or(f64::NAN),
            share: median(&shares).unwrap_or(f64::NAN),
            found,
            false_alarms,
        })
    }

    /// Measures `count` times, in random order, the cell twice and once with the delay.
    fn pairs(&mut self, count: usize, delay: f64) -> io::Result<Pairs> {
        let mut pairs = Pairs::default();
        for _ in 0..count {
            let mut order = [0, 1, 2];
            order.shuffle(&mut self.random);
            let mut figures = [0.0; 3];
            for arm in order {
                figures[arm] = self.figure(if arm == 2 { delay } else { 0.0 })?;
            }
            let [base, equal, delayed] = figures;
            pairs.equal.push((equal / base).ln());
            pairs.delayed.push((delayed / base).ln());
            pairs.figures.push(base);
        }
        Ok(pairs)
    }

    fn figure(&self, ns: f64) -> io::Result<f64> {
        let figures = self.arm.planted(InjectedDelay { ns }).figures(&self.task, self.stop);
        let figures =
            figures.map_err(|without| io::Error::other(format!("{}: {without:?}", self.task)))?;
        Ok(figures[0].summary.figure(figures[0].statistic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_exists_in_its_placement() {
        assert_eq!(tasks(None).expect("the cells exist").len(), CELLS.len());
    }
}

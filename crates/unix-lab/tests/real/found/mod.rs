//! Differences found by random scenarios. Each test is a scenario on which the virtual Unix and
//! Linux once diverged, with the reason. The two are compared in the modes of the [`extent`], under
//! several orders of steps.

mod families;
mod signals;
mod tracee_stops;
mod tracing;

use tontine_unix_lab::check::{CheckOptions, Checker, TraceComparison, against};
use tontine_unix_lab::scenario::Scenario;
use tontine_unix_sim::Virtual;

use crate::extent;

/// Number of orders of steps tried if the [`extent`] is full, and otherwise.
const SEEDS: [u64; 2] = [6, 2];

/// Maximum number of steps of each run.
const STEPS: u32 = 400;

/// Number of initial runs of each order of steps if the [`extent`] is full, and otherwise. With
/// twelve runs, a difference that occurs in half of all runs is missed in one of four thousand
/// cases.
const FIRST: [u64; 2] = [2, 1];
/// Number of runs, including the initial runs, of an order of steps in which the two systems
/// diverged.
const TIMES: u64 = 8;
/// Minimum number of those runs that must diverge. On a busy machine, an order of events within a
/// step occasionally occurs that the kernel did not cause.
const MIN_DIVERGED: usize = 4;

/// Asserts that the virtual Unix and Linux do the same.
fn is_the_same(text: &str) {
    let scenario: Scenario = text.parse().unwrap_or_else(|error| panic!("{error}"));
    let mut checker = Checker::new().expect("a PID namespace");
    let [seeds, first] = [SEEDS, FIRST].map(|[all, sample]| extent::seeds(all, sample));
    for seed in 1..=seeds {
        let options = CheckOptions { seed, max_steps: STEPS, ..CheckOptions::new() };
        let mut run = || find_difference(&mut checker, &scenario, &options);
        let mut parted: Vec<String> = (0..first).filter_map(|_| run()).collect();
        if !parted.is_empty() {
            parted.extend((first..TIMES).filter_map(|_| run()));
        }
        let times = parted.len();
        if let Some(difference) = parted.pop().filter(|_| times >= MIN_DIVERGED) {
            panic!("in {times} of {TIMES} runs: {difference}");
        }
    }
}

/// Returns the difference in a mode, if any.
fn find_difference(
    checker: &mut Checker,
    scenario: &Scenario,
    options: &CheckOptions,
) -> Option<String> {
    let real = checker.on_linux(scenario, options).expect("the run becomes quiescent");
    extent::modes().iter().find_map(|&mode| {
        let options = CheckOptions { builder: Virtual::builder().mode(mode), ..options.clone() };
        let found = against(scenario, &options, &real).expect("comparable on Linux");
        match found {
            TraceComparison::Differs(difference) => Some(format!("{mode}: {difference}")),
            _ => None,
        }
    })
}

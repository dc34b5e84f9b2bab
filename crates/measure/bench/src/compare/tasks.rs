//! The task that produces a row, [`Tasks`], and the duration of its invocations,
//! [`InvocationCost`].
//!
//! A row has the parameters of its task and those that its samples added (each pause of `wake-up`
//! is a row, and one invocation measures all pauses). The task to measure again has only its own
//! parameters, at the smallest size that lists them, because the work could differ at a smaller
//! size.

use std::collections::BTreeMap;

use super::read::RunFiles;
use crate::machine::topology::Topology;
use crate::schema::{Results, Status};
use crate::size::Size;
use crate::suite::{Experiment, Suite};
use crate::task::{InvocationTask, Params};

/// Minimum duration in seconds of an invocation that measures little: it still starts a process and
/// calibrates the clock.
const LEAST_SECONDS: f64 = 0.02;

#[derive(Debug, Clone)]
pub struct Tasks {
    suite: &'static Suite,
    topology: Topology,
}

impl Tasks {
    pub fn of_this_machine(suite: &'static Suite) -> Self {
        Self { suite, topology: Topology::of_this_machine() }
    }

    /// Returns the task that produces a row with these parameters in a run of size `largest`, at
    /// the smallest size that lists the task. If this program does not have the experiment or the
    /// variant, the parameters stay unchanged.
    pub fn task(
        &self,
        experiment: &str,
        variant: &str,
        params: &Params,
        largest: Size,
    ) -> InvocationTask {
        let mut task = InvocationTask::new(experiment, variant, params.clone(), Size::Quick);
        let Some(known) = self.known(experiment, variant) else { return task };
        let listed = Size::ALL.map(|size| known.params(variant, &self.topology, size));
        let own = |key: &String| listed.iter().flatten().any(|params| params.contains_key(key));
        task.params.retain(|key, _| own(key));
        // If an invocation takes seconds, a smaller size saves no work but has a shorter timeout.
        let long = known.invocations(variant, largest) < largest.invocations();
        let least = if long { Size::Default.min(largest) } else { Size::Quick };
        let sizes = Size::ALL.into_iter().zip(&listed);
        let mut fitting = sizes.filter(|(size, all)| *size >= least && all.contains(&task.params));
        let smallest = fitting.next().map_or(least, |(size, _)| size);
        task.size = smallest.min(largest);
        task
    }

    fn known(&self, experiment: &str, variant: &str) -> Option<&'static dyn Experiment> {
        let found = self.suite.find(experiment)?;
        found.variants().iter().any(|known| known.name == variant).then_some(found)
    }
}

/// The duration of invocations, computed from the seconds that the two runs recorded.
#[derive(Debug)]
pub struct InvocationCost {
    pub(super) tasks: Tasks,
    /// Seconds per invocation of each experiment, and the size of the run.
    seconds: BTreeMap<String, (f64, Size)>,
}

impl InvocationCost {
    /// Computes the durations from the two runs. The slower run counts.
    pub fn of(tasks: Tasks, base: &RunFiles, new: &RunFiles) -> Self {
        let mut seconds: BTreeMap<String, (f64, Size)> = BTreeMap::new();
        for run in [&base.results, &new.results] {
            for (experiment, whole) in &run.ledger {
                let invocations = invocations(&tasks, run, experiment);
                if invocations > 0 {
                    let each = whole / invocations as f64;
                    let slowest = seconds.entry(experiment.clone()).or_insert((each, run.size));
                    if each > slowest.0 {
                        *slowest = (each, run.size);
                    }
                }
            }
        }
        Self { tasks, seconds }
    }

    /// Returns the approximate duration of one invocation of `task`, or `None` if the files contain
    /// no times.
    pub fn seconds(&self, task: &InvocationTask) -> Option<f64> {
        let (seconds, size) = *self.seconds.get(&task.experiment)?;
        let operations = |size: Size| {
            let known = self.tasks.known(&task.experiment, &task.variant)?;
            Some(known.operations(&task.variant, size) as f64)
        };
        let share = operations(task.size).zip(operations(size)).map(|(less, all)| less / all);
        let share = share.filter(|share| share.is_finite()).unwrap_or(1.0);
        Some((seconds * share).max(LEAST_SECONDS))
    }
}

/// Returns the number of invocations of `experiment` that have figures in a run.
fn invocations(tasks: &Tasks, run: &Results, experiment: &str) -> usize {
    // The rows of one task share its invocations.
    let mut most: Vec<(InvocationTask, usize)> = Vec::new();
    for cell in &run.cells {
        if cell.experiment != experiment || cell.status != Status::Ok {
            continue;
        }
        let task = tasks.task(experiment, &cell.variant, &cell.params, run.size);
        let count = cell.invocations.len();
        match most.iter_mut().find(|(known, _)| *known == task) {
            Some((_, most)) => *most = (*most).max(count),
            None => most.push((task, count)),
        }
    }
    most.iter().map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, suite::SUITE};

    fn task(
        experiment: &str,
        variant: &str,
        params: &[(&str, &str)],
        largest: Size,
    ) -> InvocationTask {
        let pair = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let params = params.iter().map(pair).collect();
        Tasks::of_this_machine(&SUITE).task(experiment, variant, &params, largest)
    }

    #[test]
    fn rows_of_one_invocation_share_their_task() {
        let after = |pause: &str| {
            let params = [("placement", "cross-core"), ("pause_us", pause)];
            task("wake-up", "futex", &params, Size::Default)
        };
        assert_eq!(after("1"), after("10000"));
        assert_eq!(after("1").params, Params::from([("placement".into(), "cross-core".into())]));
        assert_eq!(after("1").size, Size::Quick);
    }

    #[test]
    fn task_is_measured_at_the_smallest_size_that_has_it() {
        let placement = Topology::of_this_machine().placements()[0].name;
        let counted = |increments: &str, largest: Size| {
            let params = [("placement", placement), ("increments", increments)];
            task("false-sharing", "serial", &params, largest).size
        };
        assert_eq!(counted("1000000", Size::Default), Size::Quick);
        assert_eq!(counted("10000000", Size::Default), Size::Default);
        assert_eq!(counted("10000000", Size::Full), Size::Default);
        assert_eq!(counted("77", Size::Full), Size::Quick, "no size has it");
        let whole = |largest| task("sessions", "pty", &[("sessions", "1")], largest).size;
        assert_eq!([whole(Size::Quick), whole(Size::Full)], [Size::Quick, Size::Default]);
    }

    #[test]
    fn unknown_task_keeps_its_parameters() {
        let found = task("pigeons", "homing", &[("loft", "north")], Size::Full);
        assert_eq!((found.params.len(), found.size), (1, Size::Quick));
    }

    #[test]
    fn invocation_cost_is_ledger_seconds_per_invocation() {
        let tasks = Tasks::of_this_machine(&SUITE);
        let mut run = fixture::run();
        let pipe = task("round-trip", "pipe", &[("placement", "cross-core")], Size::Default);
        let side = |results: Results| RunFiles { path: "results.json".into(), results };
        let none = InvocationCost::of(tasks.clone(), &side(run.clone()), &side(run.clone()));
        assert_eq!(none.seconds(&pipe), None, "an older file has no ledger");
        let made = invocations(&tasks, &run, "round-trip");
        assert!(made > 100, "ten of each cell: {made}");
        run.ledger.insert("round-trip".into(), 2.0 * made as f64);
        let pace = InvocationCost::of(tasks.clone(), &side(run.clone()), &side(run));
        let at =
            |size: Size| pace.seconds(&InvocationTask { size, ..pipe.clone() }).expect("known");
        assert!((at(Size::Default) - 2.0).abs() < 1e-9);
        assert!(at(Size::Quick) < 1.0 && at(Size::Quick) >= LEAST_SECONDS);
    }
}

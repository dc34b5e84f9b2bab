//! Comparisons of runs that are resampled from a recorded run: [`all`].
//!
//! An invocation of a resampled run is one of the [`recorded`](super::recorded) invocations of its
//! task, drawn with replacement, so the two runs of an A/A comparison differ only by chance and
//! have the spread, the modes and the outliers of an actual machine. The comparison is that of
//! `tontine-measure compare` with both stages; the second stage draws further invocations in pairs.
//! What drifts from one run to the next is not part of it.

use std::cell::RefCell;

use crate::fixture;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tontine_bench::compare::again::{self, SecondStageLimits};
use tontine_bench::compare::arm::{FigureSource, Missing};
use tontine_bench::compare::listener::CompareListener;
use tontine_bench::compare::read::RunFiles;
use tontine_bench::compare::screen::screen;
use tontine_bench::compare::tasks::{InvocationCost, Tasks};
use tontine_bench::compare::{ComparedRow, Comparison, RowVerdict};
use tontine_bench::engine::collect::Collector;
use tontine_bench::engine::invoked::{
    InvocationFigures, InvocationReply, InvocationResult, MetricSummary,
};
use tontine_bench::engine::plan::Plan;
use tontine_bench::engine::stop::StopRequest;
use tontine_bench::observe::Series;
use tontine_bench::schema::Results;
use tontine_bench::size::Size;
use tontine_bench::task::{InvocationTask, Params};

use super::recorded::{RecordedRow, RecordedTask, SUITE, TASKS};
use super::shared;

/// Number of comparisons of equal runs.
const EQUAL: usize = 200;
/// Number of comparisons with a planted change.
const PLANTED: usize = 100;
/// The planted change: times in B are a tenth longer.
const SLOWER: f64 = 1.1;
/// Maximum share of the comparisons of equal runs that report a regression.
const MOST_ALARMS: f64 = 0.05;
/// Minimum share of the planted changes that are found, if the row can resolve them.
const LEAST_FOUND: f64 = 0.95;
/// Maximum number of pairs per row, the default of `tontine-measure compare`.
const MOST_PAIRS: usize = 100;

/// The rows of B whose times are longer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Plant {
    None,
    /// The row with this number of the task with this number.
    Row(usize, usize),
    Everywhere,
}

/// A side of a comparison.
struct Resampled<'a> {
    tasks: &'a [RecordedTask],
    /// The number of recorded invocations for each invocation of the run.
    thinned: usize,
    plant: Plant,
    random: RefCell<ChaCha8Rng>,
}

impl Resampled<'_> {
    /// Draws one invocation of task number `index`.
    fn invocation(&self, index: usize) -> Vec<MetricSummary> {
        let task = &self.tasks[index];
        let count = task.rows[0].figures.len();
        let drawn = self.random.borrow_mut().random_range(0..count);
        let figure = |(at, row): (usize, &RecordedRow)| {
            let is_planted = match self.plant {
                Plant::None => false,
                Plant::Row(task, row) => (task, row) == (index, at),
                Plant::Everywhere => row.is_time(),
            };
            let factor = if is_planted { SLOWER } else { 1.0 };
            let samples = vec![row.figures[drawn] * factor];
            MetricSummary::of(&Series { samples, ..row.series.clone() })
        };
        task.rows.iter().enumerate().map(figure).collect()
    }

    /// Draws a run.
    fn run(&self) -> RunFiles {
        let tasks = self.tasks.iter().map(|one| one.task.clone()).collect();
        let plan = Plan::new(&SUITE, tasks, Size::Default, 0);
        let mut collector = Collector::new(&plan);
        for (index, task) in self.tasks.iter().enumerate() {
            for block in 0..task.rows[0].figures.len().div_ceil(self.thinned) {
                let figures = self.invocation(index);
                let measured = InvocationFigures { figures, ..InvocationFigures::default() };
                let reply = InvocationReply::of(InvocationResult::Measured(measured));
                collector.add(index, block, None, reply);
            }
        }
        let cells = collector.finish().cells;
        let results = Results { cells, ratios: Vec::new(), ..fixture::small() };
        RunFiles { path: "results.json".into(), results }
    }
}

impl FigureSource for Resampled<'_> {
    fn figures(
        &self,
        task: &InvocationTask,
        _: &StopRequest,
    ) -> Result<Vec<MetricSummary>, Missing> {
        let is_requested = |one: &RecordedTask| {
            let one = &one.task;
            (&one.experiment, &one.variant, &one.params)
                == (&task.experiment, &task.variant, &task.params)
        };
        let index = self.tasks.iter().position(is_requested);
        let index = index.ok_or_else(|| Missing::Failed(format!("{task} was not recorded")))?;
        Ok(self.invocation(index))
    }

    fn name(&self) -> String {
        "a recorded run".into()
    }
}

struct Quiet;

impl CompareListener for Quiet {}

/// The results of the comparisons.
#[derive(Debug)]
pub(super) struct CompareTrials {
    /// Number of rows of a run.
    pub rows: usize,
    /// Comparisons of equal runs of default and of quick length.
    pub equal: [EqualTrials; 2],
    /// Planted changes, and the number of them that were found.
    pub planted: [PlantedTrials; 3],
}

/// Comparisons of equal runs.
#[derive(Debug)]
pub(super) struct EqualTrials {
    pub name: &'static str,
    /// The smallest and the largest number of invocations of a row.
    pub invocations: (usize, usize),
    /// Number of comparisons that report a regression.
    pub alarms: usize,
    /// Number of comparisons that report any change.
    pub changes: usize,
}

/// Comparisons with a planted change.
#[derive(Debug)]
pub(super) struct PlantedTrials {
    pub name: String,
    pub found: usize,
    /// `true` if the change must be found.
    pub is_promised: bool,
}

pub(super) fn all() -> CompareTrials {
    let tasks = &*TASKS;
    let (by_default, quick) = (Trials::of(tasks, 1), Trials::of(tasks, 3));
    let equal = by_default.many(EQUAL, 0, |_| Plant::None);
    let rows = equal[0].rows.len();
    let times: Vec<Plant> = (0..tasks.len())
        .flat_map(|task| (0..tasks[task].rows.len()).map(move |row| (task, row)))
        .filter(|&(task, row)| tasks[task].rows[row].is_time())
        .map(|(task, row)| Plant::Row(task, row))
        .collect();
    let can: Vec<Plant> =
        times.iter().copied().filter(|&plant| by_default.resolves(&equal, plant)).collect();
    let count = can.len();
    let named = if count == 1 { "row that resolves" } else { "rows that resolve" };
    let single = |name: String, among: Vec<Plant>, seed: u64, is_promised: bool| {
        let plant = |trial: usize| among[trial % among.len()];
        let made = by_default.many(PLANTED, seed, plant);
        let found = |(trial, comparison): &(usize, &Comparison)| {
            let row = by_default.row(comparison, plant(*trial));
            row.is_some_and(|row| row.verdict == RowVerdict::Worse)
        };
        let found = made.iter().enumerate().filter(found).count();
        PlantedTrials { name, found, is_promised }
    };
    let everywhere = by_default.many(PLANTED, 2_000, |_| Plant::Everywhere);
    let planted = [
        PlantedTrials {
            name: format!("all {} times", times.len()),
            found: everywhere.iter().filter(|one| one.regressions > 0).count(),
            is_promised: true,
        },
        single(format!("one time, in the {count} {named} 10 %"), can, 3_000, true),
        single(format!("one of all {} times", times.len()), times, 4_000, false),
    ];
    let short = quick.many(EQUAL, 1_000, |_| Plant::None);
    let equal = [EqualTrials::of("default", &equal), EqualTrials::of("quick", &short)];
    CompareTrials { rows, equal, planted }
}

impl EqualTrials {
    fn of(name: &'static str, made: &[Comparison]) -> Self {
        let counts = made[0].rows.iter().map(|row| row.invocations.0);
        let changed = [RowVerdict::Worse, RowVerdict::Better, RowVerdict::Changed];
        let has_changes =
            |one: &&Comparison| one.rows.iter().any(|row| changed.contains(&row.verdict));
        Self {
            name,
            invocations: (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0)),
            alarms: made.iter().filter(|one| one.regressions > 0).count(),
            changes: made.iter().filter(has_changes).count(),
        }
    }
}

impl CompareTrials {
    /// Returns the rows of the tables in docs/evidence/coverage.md.
    pub(super) fn page_rows(&self) -> Vec<String> {
        let equal = self.equal.iter().map(|one| {
            let EqualTrials { name, invocations: (least, most), alarms, changes } = one;
            format!("| {name} | {least} to {most} | {EQUAL} | {alarms} | {changes} |")
        });
        let planted = self.planted.iter().map(|one| {
            let promised = if one.is_promised { "95" } else { "–" };
            format!("| {} | {PLANTED} | {} | {promised} |", one.name, one.found)
        });
        let rows = format!("on runs of {} rows", self.rows);
        equal.chain(planted).chain([rows]).collect()
    }

    pub(super) fn broken(&self) -> Vec<String> {
        let alarms = self.equal.iter().filter(|one| one.alarms as f64 > MOST_ALARMS * EQUAL as f64);
        let alarms = alarms.map(|one| format!("{} of {EQUAL} equal runs: alarms", one.alarms));
        let missed = self
            .planted
            .iter()
            .filter(|one| one.is_promised && (one.found as f64) < LEAST_FOUND * PLANTED as f64);
        let missed = missed.map(|one| format!("{}: found {} of {PLANTED}", one.name, one.found));
        alarms.chain(missed).collect()
    }
}

/// Comparisons of runs of one length.
struct Trials<'a> {
    tasks: &'a [RecordedTask],
    thinned: usize,
}

impl<'a> Trials<'a> {
    fn of(tasks: &'a [RecordedTask], thinned: usize) -> Self {
        Self { tasks, thinned }
    }

    /// Makes `count` comparisons, each with its plant.
    fn many(
        &self,
        count: usize,
        seed: u64,
        plant: impl Fn(usize) -> Plant + Sync,
    ) -> Vec<Comparison> {
        shared(count, |trial| self.compare(plant(trial), seed + trial as u64))
    }

    /// Compares two runs with both stages.
    fn compare(&self, plant: Plant, seed: u64) -> Comparison {
        let side = |plant, seed| {
            let random = RefCell::new(ChaCha8Rng::seed_from_u64(seed));
            Resampled { tasks: self.tasks, thinned: self.thinned, plant, random }
        };
        let (base, new) = (side(Plant::None, 2 * seed), side(plant, 2 * seed + 1));
        let (a, b) = (base.run(), new.run());
        let mut comparison = screen(&a, &b, 0.0);
        if !comparison.flagged().is_empty() {
            let pace = InvocationCost::of(Tasks::of_this_machine(&SUITE), &a, &b);
            let limits = SecondStageLimits { most_pairs: MOST_PAIRS, order_seed: seed };
            let stop = StopRequest::never().expect("descriptors");
            again::measure(&mut comparison, [&base, &new], limits, &pace, &stop, &mut Quiet);
        }
        comparison
    }

    /// Returns the row of a comparison into which a change is planted.
    fn row<'c>(&self, comparison: &'c Comparison, plant: Plant) -> Option<&'c ComparedRow> {
        let Plant::Row(task, row) = plant else { return None };
        let (task, series) = (&self.tasks[task].task, &self.tasks[task].rows[row].series);
        let params: Params = task.params.clone().into_iter().chain(series.at.clone()).collect();
        comparison.rows.iter().find(|row| {
            (&row.experiment, &row.variant, &row.params, &row.metric)
                == (&task.experiment, &task.variant, &params, &series.metric)
        })
    }

    /// Returns `true` if most comparisons of equal runs state that they could have resolved the
    /// planted change in this row.
    fn resolves(&self, equal: &[Comparison], plant: Plant) -> bool {
        let states = |one: &&Comparison| {
            let row = self.row(one, plant);
            row.and_then(|row| row.screen.smallest).is_some_and(|least| least <= SLOWER - 1.0)
        };
        2 * equal.iter().filter(states).count() > equal.len()
    }
}

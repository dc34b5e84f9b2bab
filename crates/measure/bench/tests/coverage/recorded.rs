//! The recorded run: [`TASKS`] with their figures, and the [`SUITE`] of their experiments.
//!
//! `recorded.txt` contains the figures of a default run. The experiments are those of the run, so
//! that the comparisons do not change with the experiments or with the machine.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::error::{MeasureError, Result};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series, Statistic};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Suite, Variant};
use tontine_bench::task::{InvocationTask, Params};

/// The invocations of one task.
pub(super) struct RecordedTask {
    pub(super) task: InvocationTask,
    pub(super) rows: Vec<RecordedRow>,
}

/// The figures of one metric, one per invocation.
pub(super) struct RecordedRow {
    /// The series without its samples.
    pub(super) series: Series,
    pub(super) figures: Vec<f64>,
}

impl RecordedRow {
    pub(super) fn is_time(&self) -> bool {
        self.series.unit == "ns"
    }
}

/// The tasks of the recorded run, in its order.
pub(super) static TASKS: LazyLock<Vec<RecordedTask>> = LazyLock::new(read);

fn read() -> Vec<RecordedTask> {
    let mut tasks: Vec<RecordedTask> = Vec::new();
    let params = |words: &[&str]| -> Params {
        let pairs = words.iter().map(|word| word.split_once('=').expect("a name and a value"));
        pairs.map(|(name, value)| (name.to_owned(), value.replace('_', " "))).collect()
    };
    for line in include_str!("recorded.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["task", name, ref rest @ ..] => {
                let (experiment, variant) = name.split_once('/').expect("a variant");
                let task = InvocationTask::new(experiment, variant, params(rest), Size::Default);
                tasks.push(RecordedTask { task, rows: Vec::new() });
            }
            ["row", metric, unit, statistic, tries, ref rest @ ..] => {
                let series = Series {
                    metric: metric.to_owned(),
                    at: params(rest),
                    unit: unit.to_owned(),
                    samples: Vec::new(),
                    batch: tries.parse().expect("a number of tries"),
                    statistic: match statistic {
                        "median" => Statistic::Median,
                        _ => Statistic::Mean,
                    },
                };
                let rows = &mut tasks.last_mut().expect("a task before its rows").rows;
                rows.push(RecordedRow { series, figures: Vec::new() });
            }
            _ => {
                let rows = tasks.last_mut().map(|task| &mut task.rows);
                let row = rows.and_then(|rows| rows.last_mut()).expect("a row before its figures");
                row.figures.extend(words.iter().map(|word| word.parse::<f64>().expect("a figure")));
            }
        }
    }
    tasks
}

/// The experiments of the recorded run.
pub(super) static SUITE: LazyLock<Suite> = LazyLock::new(|| {
    let mut names: Vec<&str> = TASKS.iter().map(|one| one.task.experiment.as_str()).collect();
    names.dedup();
    let experiments = names.into_iter().map(|name| {
        let tasks = TASKS.iter().filter(|one| one.task.experiment == name);
        let mut variants: Vec<&str> = tasks.map(|one| one.task.variant.as_str()).collect();
        variants.dedup();
        let variants = variants.into_iter().map(|name| Variant { name, summary: "recorded" });
        let experiment = RecordedExperiment { name, variants: variants.collect::<Vec<_>>().leak() };
        &*Box::leak(Box::new(experiment)) as &dyn Experiment
    });
    Suite {
        experiments: experiments.collect::<Vec<_>>().leak(),
        headline: &[],
        mechanisms: Vec::new,
        published: |_, _, _, _| Vec::new(),
        libraries: BTreeMap::new,
        clean_up: || {},
        end_run: || {},
    }
});

/// An experiment with the tasks of the recorded run.
struct RecordedExperiment {
    name: &'static str,
    variants: &'static [Variant],
}

impl Experiment for RecordedExperiment {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        "What was recorded?"
    }

    fn topic(&self) -> Topic {
        Topic::Messages
    }

    fn explanation(&self) -> &'static Explanation {
        &Explanation { about: &[], steps: &[], timing: "", found: "", reading: "", calls: &[] }
    }

    fn variants(&self) -> &'static [Variant] {
        self.variants
    }

    fn params(&self, variant: &str, _: &Topology, _: Size) -> Vec<Params> {
        let is_of = |one: &&RecordedTask| {
            (one.task.experiment.as_str(), one.task.variant.as_str()) == (self.name, variant)
        };
        TASKS.iter().filter(is_of).map(|one| one.task.params.clone()).collect()
    }

    fn run(&self, _: &InvocationTask) -> Result<Observed> {
        Err(MeasureError::skip("it is recorded"))
    }

    fn operations(&self, _: &str, _: Size) -> usize {
        1
    }
}

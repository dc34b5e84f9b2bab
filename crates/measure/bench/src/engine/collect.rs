//! Conversion of replies to rows: [`Collector`].

use std::collections::BTreeMap;

use crate::engine::doubts;
use crate::engine::invoked::{InvocationFigures, InvocationReply, InvocationResult, MetricSummary};
use crate::engine::plan::Plan;
use crate::heap_map::HeapMap;
use crate::observe::{ObservedEvent, limits};
use crate::schema::{Cell, Estimate, Invocation, MapRow, Ratio, Status, TriedRow};
use crate::sequence::distinct;
use crate::stats::interval::{CONFIDENCE, Interval};
use crate::stats::share::{ShareCount, share_interval};
use crate::stats::summary::Summary;
use crate::stats::{mean, order, ratio};
use crate::task::{InvocationTask, Params};

#[derive(Debug)]
pub struct Collector<'a> {
    plan: &'a Plan,
    gathered: Vec<Gathered>,
}

#[derive(Debug)]
pub struct Rows {
    pub cells: Vec<Cell>,
    pub ratios: Vec<Ratio>,
    pub tried: Vec<TriedRow>,
    pub maps: Vec<MapRow>,
}

/// Replies collected for one task.
#[derive(Debug, Default)]
struct Gathered {
    /// Figures by metric and point of the curve, in the order in which the experiment names them.
    metrics: Vec<(MetricSummary, Vec<Invocation>)>,
    ratios: BTreeMap<String, Vec<f64>>,
    tried: Vec<(ObservedEvent, usize)>,
    notes: Vec<Vec<String>>,
    /// States of a heap, from the first invocation that recorded any.
    maps: Vec<HeapMap>,
    skipped: Option<String>,
    failures: Vec<String>,
    repeated: Vec<String>,
}

impl<'a> Collector<'a> {
    pub fn new(plan: &'a Plan) -> Self {
        Self { plan, gathered: plan.tasks.iter().map(|_| Gathered::default()).collect() }
    }

    /// Adds the reply of task number `index` in `block`. If a first attempt failed, `earlier` is
    /// the reason.
    pub fn add(
        &mut self,
        index: usize,
        block: usize,
        earlier: Option<String>,
        reply: InvocationReply,
    ) {
        let gathered = &mut self.gathered[index];
        let attempts = 1 + usize::from(earlier.is_some());
        let InvocationReply { outcome, empty_pair_ns, clock_drift, stolen_ms } = reply;
        match outcome {
            InvocationResult::Skipped(why) => gathered.skipped = Some(why),
            InvocationResult::Failed(why) => {
                let first = earlier.filter(|first| *first != why);
                let first =
                    first.map_or_else(String::new, |first| format!("; before that {first}"));
                gathered.failures.push(why + &first);
            }
            InvocationResult::Measured(measured) => {
                gathered.repeated.extend(earlier);
                let InvocationFigures { figures, ratios, tried, notes, maps } = measured;
                for figure in figures {
                    let summary = figure.summary.clone();
                    let invocation = Invocation {
                        block,
                        attempts,
                        summary,
                        empty_pair_ns,
                        clock_drift,
                        stolen_ms,
                    };
                    gathered.metric(figure).push(invocation);
                }
                for pair in ratios {
                    gathered.ratios.entry(pair.name).or_default().push(pair.value);
                }
                for tried in tried {
                    gathered.was_tried(tried);
                }
                gathered.notes.push(notes);
                if gathered.maps.is_empty() {
                    gathered.maps = maps;
                }
            }
        }
    }

    pub fn finish(self) -> Rows {
        let ratios = self.ratios();
        let tried = self.tried();
        let maps = self.maps();
        let tasks = self.plan.tasks.iter();
        let cells = tasks.zip(self.gathered).flat_map(|(task, one)| one.into_cells(task));
        let published = self.plan.suite.published;
        let cells = cells.map(|cell| Cell {
            published: published(&cell.experiment, &cell.variant, &cell.metric, &cell.params),
            ..cell
        });
        let cells = cells.collect();
        Rows { cells, ratios, tried, maps }
    }

    fn ratios(&self) -> Vec<Ratio> {
        let mut rows = Vec::new();
        for (task, gathered) in self.plan.tasks.iter().zip(&self.gathered) {
            for (name, values) in &gathered.ratios {
                rows.extend(ratio_row(&task.experiment, name, &task.params, values));
            }
        }
        for experiment in self.plan.suite.experiments {
            for (over, under) in experiment.ratios() {
                for (params, values) in self.block_by_block(experiment.name(), over, under) {
                    let name = format!("{over} / {under}");
                    rows.extend(ratio_row(experiment.name(), &name, &params, &values));
                }
            }
        }
        rows
    }

    /// Returns the ratios of two variants for each set of parameters, one per block that contains
    /// both variants. The ratios are those of the first metric, at all its points.
    fn block_by_block(&self, experiment: &str, over: &str, under: &str) -> Vec<(Params, Vec<f64>)> {
        let of = |variant: &str| -> Vec<(Params, &(MetricSummary, Vec<Invocation>))> {
            let tasks = self.plan.tasks.iter().zip(&self.gathered);
            tasks
                .filter(|(task, _)| task.experiment == experiment && task.variant == variant)
                .flat_map(|(task, one)| {
                    let first = one.metrics.first().map(|(figure, _)| &figure.metric);
                    let points = one.metrics.iter();
                    points
                        .filter(move |(figure, _)| Some(&figure.metric) == first)
                        .map(|point| (params_of(task, &point.0), point))
                })
                .collect()
        };
        let unders = of(under);
        let mut found = Vec::new();
        for (params, (figure, overs)) in of(over) {
            let Some((_, (_, unders))) = unders.iter().find(|(other, _)| *other == params) else {
                continue;
            };
            let values = overs.iter().filter_map(|over| {
                let under = unders.iter().find(|under| under.block == over.block)?;
                let [over, under] = [over, under].map(|one| one.summary.figure(figure.statistic));
                Some(over / under)
            });
            found.push((params, values.collect()));
        }
        found
    }

    fn maps(&self) -> Vec<MapRow> {
        let tasks = self.plan.tasks.iter().zip(&self.gathered);
        let row = |task: &InvocationTask, map: &HeapMap| MapRow {
            experiment: task.experiment.clone(),
            variant: task.variant.clone(),
            params: task.params.clone(),
            map: map.clone(),
        };
        tasks.flat_map(|(task, one)| one.maps.iter().map(move |map| row(task, map))).collect()
    }

    fn tried(&self) -> Vec<TriedRow> {
        let mut rows = Vec::new();
        for (task, gathered) in self.plan.tasks.iter().zip(&self.gathered) {
            rows.extend(gathered.answers().into_iter().map(|tried| TriedRow {
                experiment: task.experiment.clone(),
                variant: task.variant.clone(),
                tried,
            }));
        }
        rows
    }
}

impl Gathered {
    fn metric(&mut self, figure: MetricSummary) -> &mut Vec<Invocation> {
        let name = |figure: &MetricSummary| (figure.metric.clone(), figure.at.clone());
        let known = self.metrics.iter().position(|(known, _)| name(known) == name(&figure));
        let at = known.unwrap_or_else(|| {
            self.metrics.push((figure, Vec::new()));
            self.metrics.len() - 1
        });
        &mut self.metrics[at].1
    }

    fn was_tried(&mut self, tried: ObservedEvent) {
        match self.tried.iter_mut().find(|(known, _)| *known == tried) {
            Some((_, count)) => *count += 1,
            None => self.tried.push((tried, 1)),
        }
    }

    /// Returns one answer per event. If invocations gave different answers, lists all answers with
    /// their counts, a wrong answer first.
    fn answers(&self) -> Vec<ObservedEvent> {
        let events = distinct(self.tried.iter().map(|(tried, _)| tried.event.as_str()));
        let answer = |event: &str| {
            let of_it = self.tried.iter().filter(|(tried, _)| tried.event == event);
            let mut given: Vec<&(ObservedEvent, usize)> = of_it.collect();
            given.sort_by_key(|(tried, _)| tried.says == tried.truth);
            let mut tried = given[0].0.clone();
            if given.len() > 1 {
                let each = given.iter().map(|(tried, count)| format!("{} {count}×", tried.says));
                tried.says = each.collect::<Vec<_>>().join(", ");
            }
            tried
        };
        events.into_iter().map(answer).collect()
    }

    fn into_cells(mut self, task: &InvocationTask) -> Vec<Cell> {
        let metrics = std::mem::take(&mut self.metrics);
        if metrics.is_empty() {
            return vec![self.empty_cell(task)];
        }
        metrics
            .into_iter()
            .map(|(figure, invocations)| self.cell(task, figure, invocations))
            .collect()
    }

    fn empty_cell(&self, task: &InvocationTask) -> Cell {
        let reason = self.failures.first().or(self.skipped.as_ref());
        Cell {
            status: if self.failures.is_empty() { Status::Skipped } else { Status::Failed },
            why: Some(reason.map_or_else(|| "the run was stopped earlier".into(), Clone::clone)),
            failures: self.failures.clone(),
            ..blank(task)
        }
    }

    fn cell(
        &self,
        task: &InvocationTask,
        figure: MetricSummary,
        invocations: Vec<Invocation>,
    ) -> Cell {
        let of = |pick: fn(&Summary) -> f64| -> Vec<f64> {
            invocations.iter().map(|invocation| pick(&invocation.summary)).collect()
        };
        let standing: Vec<f64> =
            invocations.iter().map(|one| one.summary.figure(figure.statistic)).collect();
        // A share is that of all tries. With fewer than six invocations the median of another
        // figure has no exact interval, so the mean is shown with Student's interval.
        let limits = limits(&figure.unit);
        let share = (figure.unit == "share").then(|| share_of(&invocations)).flatten();
        let median = order::median_interval(&standing).filter(|_| share.is_none());
        let student = |values: &[f64]| Some(mean::kalibera_jones(values)?.within(limits));
        let shown = share.or(median).or_else(|| student(&standing));
        let mut cell = Cell {
            params: params_of(task, &figure),
            metric: figure.metric,
            unit: figure.unit,
            status: Status::Ok,
            statistic: figure.statistic,
            estimate: shown.map(|shown| shown.estimate).or_else(|| order::median(&standing)),
            low: shown.map(|shown| shown.low),
            high: shown.map(|shown| shown.high),
            achieved: median.map(|median| median.achieved),
            mean: share.or_else(|| student(&of(|summary| summary.mean))).map(estimate),
            ..blank(task)
        };
        if share.is_none() {
            cell.trimmed_mean = student(&of(|summary| summary.trimmed_mean)).map(estimate);
        }
        // For a rate, the smallest sample is the worst, not the floor. The samples of a share are 0
        // and 1.
        if !cell.unit.ends_with("/s") && cell.unit != "share" {
            // With fewer samples, these percentiles would only repeat the largest sample under
            // another name.
            let enough = |least: usize| invocations.iter().all(|one| one.summary.count >= least);
            let tail = |least: usize, pick: fn(&Summary) -> f64| {
                enough(least).then(|| order::median_interval(&of(pick))).flatten().map(estimate)
            };
            cell.p99 = tail(100, |summary| summary.p99);
            cell.p999 = tail(1_000, |summary| summary.p999);
            cell.floor = of(|summary| summary.min).into_iter().reduce(f64::min);
        }
        cell.notes = self.notes_on(&standing, &cell.unit, &invocations);
        cell.failures = self.failures.clone();
        cell.invocations = invocations;
        debug_assert!(cell.impossible().is_empty(), "{:?}: {cell:?}", cell.impossible());
        cell
    }

    /// Returns the remarks that all invocations made, and those of the last one.
    fn said(&self) -> Vec<String> {
        let Some(last) = self.notes.last() else { return Vec::new() };
        let by_all = |note: &String| self.notes.iter().all(|notes| notes.contains(note));
        let say = |note: &String| {
            if by_all(note) { note.clone() } else { format!("last invocation: {note}") }
        };
        last.iter().map(say).collect()
    }

    fn notes_on(&self, standing: &[f64], unit: &str, invocations: &[Invocation]) -> Vec<String> {
        let mut notes = self.said();
        notes.extend(doubts::doubts(standing, unit, invocations));
        if let Some(why) = &self.skipped {
            notes.push(format!("skipped after {} invocations: {why}", invocations.len()));
        }
        notes.extend(doubts::few(standing.len(), unit));
        let (failed, repeated) = (self.failures.len(), self.repeated.len());
        if failed > 0 {
            notes.push(format!("{failed} invocations failed: {}", self.failures[0]));
        }
        if repeated > 0 {
            let why = &self.repeated[0];
            notes.push(format!("{repeated} invocations succeeded only when repeated: {why}"));
        }
        notes
    }
}

/// Returns the parameters of a cell: those of the task and those of the point of the curve.
fn params_of(task: &InvocationTask, figure: &MetricSummary) -> Params {
    task.params.clone().into_iter().chain(figure.at.clone()).collect()
}

fn blank(task: &InvocationTask) -> Cell {
    Cell {
        experiment: task.experiment.clone(),
        variant: task.variant.clone(),
        params: task.params.clone(),
        confidence: CONFIDENCE,
        ..Cell::default()
    }
}

fn ratio_row(experiment: &str, name: &str, params: &Params, values: &[f64]) -> Option<Ratio> {
    let Interval { estimate, low, high, .. } = ratio::paired(values)?;
    Some(Ratio {
        experiment: experiment.into(),
        name: name.into(),
        params: params.clone(),
        estimate,
        low,
        high,
        pairs: values.len(),
    })
}

/// Returns the share of all tries of a cell's invocations.
fn share_of(invocations: &[Invocation]) -> Option<Interval> {
    let counts: Vec<_> = invocations.iter().map(|one| ShareCount::of(&one.summary)).collect();
    share_interval(&counts, CONFIDENCE)
}

fn estimate(interval: Interval) -> Estimate {
    Estimate { value: interval.estimate, low: interval.low, high: interval.high }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::suite::SUITE;
    use crate::observe::Series;
    use crate::size::Size;
    use proptest::prelude::*;

    fn plan() -> Plan {
        let task = InvocationTask::new("liveness-check", "kill-0", Params::new(), Size::Quick);
        Plan::new(&SUITE, vec![task], Size::Quick, 0)
    }

    fn measured(series: &Series) -> InvocationReply {
        let figures = vec![MetricSummary::of(series)];
        let measured = InvocationFigures { figures, ..InvocationFigures::default() };
        InvocationReply::of(InvocationResult::Measured(measured))
    }

    fn reply(figure: f64, says: &str, note: &str) -> InvocationReply {
        let mut reply = measured(&Series::ns("check", vec![figure; 3]));
        let InvocationResult::Measured(measured) = &mut reply.outcome else { panic!("measured") };
        let (event, truth) = ("zombie".into(), "dead".into());
        measured.tried.push(ObservedEvent { event, truth, says: says.into() });
        measured.notes.push(note.to_owned());
        reply
    }

    #[test]
    fn differing_answers_are_counted_rarest_first() {
        let plan = plan();
        let mut collector = Collector::new(&plan);
        for (block, says) in ["dead", "alive", "dead"].into_iter().enumerate() {
            collector.add(0, block, None, reply(1.0, says, ""));
        }
        let tried = collector.finish().tried;
        assert_eq!(tried.len(), 1);
        assert_eq!(tried[0].tried.says, "alive 1×, dead 2×");
    }

    #[test]
    fn points_of_a_curve_are_separate_cells() {
        let plan = plan();
        let mut collector = Collector::new(&plan);
        for block in 0..6 {
            let mut both = reply(1.0, "dead", "");
            let InvocationResult::Measured(measured) = &mut both.outcome else {
                panic!("measured")
            };
            measured.figures[0].at = Params::from([("pause_us".into(), "1".into())]);
            let mut later = measured.figures[0].clone();
            later.at = Params::from([("pause_us".into(), "10".into())]);
            later.summary.median = 16.0;
            measured.figures.push(later);
            collector.add(0, block, None, both);
        }
        let ratios = collector.block_by_block("liveness-check", "kill-0", "kill-0");
        assert_eq!(ratios.len(), 2, "each point with itself");
        assert!(ratios.iter().all(|(_, values)| values == &[1.0; 6]), "{ratios:?}");
        let cells = collector.finish().cells;
        let found: Vec<_> =
            cells.iter().map(|cell| (cell.params["pause_us"].as_str(), cell.estimate)).collect();
        assert_eq!(found, [("1", Some(1.0)), ("10", Some(16.0))]);
    }

    #[test]
    fn late_skip_keeps_its_reason() {
        let plan = plan();
        let mut collector = Collector::new(&plan);
        collector.add(0, 0, None, reply(1.0, "dead", "same"));
        let skip = InvocationReply::of(InvocationResult::Skipped("fork: EAGAIN".into()));
        collector.add(0, 1, None, skip);
        let cells = collector.finish().cells;
        assert_eq!((cells[0].status, cells[0].low), (Status::Ok, None));
        assert!(cells[0].notes.iter().any(|note| note.ends_with("fork: EAGAIN")), "{cells:?}");
    }

    #[test]
    fn few_invocations_use_student_interval_and_note_it() {
        let plan = plan();
        let mut collector = Collector::new(&plan);
        for (block, figure) in [1.0, 2.0, 6.0].into_iter().enumerate() {
            collector.add(0, block, None, reply(figure, "dead", ""));
        }
        let cell = &collector.finish().cells[0];
        assert_eq!(cell.estimate, Some(3.0), "the mean: its interval is the mean's");
        // t(0.975, 2) · s/√n = 4.302653 · √7/√3.
        let half = 4.302_653 * 7.0_f64.sqrt() / 3.0_f64.sqrt();
        assert!((cell.high.expect("an interval") - 3.0 - half).abs() < 1e-4, "{cell:?}");
        assert_eq!(cell.low, Some(0.0), "no time is below zero");
        assert_eq!(cell.achieved, None, "no order statistics have it");
        assert!(
            cell.notes.iter().any(|note| note.starts_with("few invocations: 3")
                && note.contains("Student")
                && note.contains("75 %")),
            "{:?}",
            cell.notes
        );
    }

    /// Regression: 3 of 120 kills were shown as `0 % (0 – 5 %)`, because half of the invocations
    /// had none.
    #[test]
    fn share_of_a_cell_is_that_of_all_tries() {
        let plan = plan();
        let mut collector = Collector::new(&plan);
        for (block, hits) in [0, 2, 0, 1, 0, 0].into_iter().enumerate() {
            let samples = (0..20).map(|at| f64::from(u8::from(at < hits))).collect();
            let series = Series::ns("wedged", samples).in_unit("share").by_mean();
            collector.add(0, block, None, measured(&series));
        }
        let cell = &collector.finish().cells[0];
        assert_eq!(cell.estimate, Some(3.0 / 120.0));
        let (low, high) = cell.low.zip(cell.high).expect("an interval");
        assert!(low > 0.0 && low < 0.01 && high > 0.05 && high < 0.15, "{low} {high}");
        assert_eq!(cell.mean.map(|mean| mean.low), Some(low));
        assert_eq!((cell.achieved, cell.trimmed_mean), (None, None));
    }

    fn sample() -> impl Strategy<Value = f64> {
        prop_oneof![-1e3_f64..1.0, 0.0..1.0, Just(0.0), 0.0..1e9]
    }

    proptest! {
        /// Regression: a full run had ten impossible ends, such as 120 % and −0.138 s.
        #[test]
        fn figures_of_a_cell_are_possible(
            invocations in prop::collection::vec(prop::collection::vec(sample(), 1..9), 1..9),
            unit in prop::sample::select(vec!["ns", "s", "share", "messages/s", "rounds/round"]),
            by_mean in any::<bool>(),
        ) {
            let plan = plan();
            let mut collector = Collector::new(&plan);
            for (block, samples) in invocations.into_iter().enumerate() {
                let mut series = Series::ns("check", samples).in_unit(unit).batched(block + 1);
                if by_mean {
                    series = series.by_mean();
                }
                if series.possible().next().is_some() {
                    collector.add(0, block, None, measured(&series));
                }
            }
            for cell in collector.finish().cells {
                prop_assert!(cell.impossible().is_empty(), "{:?}: {:?}", cell.impossible(), cell);
            }
        }
    }

    #[test]
    fn cell_figures_are_median_and_extremes_of_invocations() {
        let plan = plan();
        let mut collector = Collector::new(&plan);
        for (block, figure) in [3.0, 1.0, 6.0, 2.0, 5.0, 4.0].into_iter().enumerate() {
            collector.add(0, block, None, reply(figure, "dead", if block < 5 { "a" } else { "b" }));
        }
        let cells = collector.finish().cells;
        let cell = &cells[0];
        assert_eq!((cell.low, cell.estimate, cell.high), (Some(1.0), Some(3.5), Some(6.0)));
        assert_eq!(cell.floor, Some(1.0));
        assert!(cell.notes.contains(&"last invocation: b".to_owned()), "{:?}", cell.notes);
    }
}

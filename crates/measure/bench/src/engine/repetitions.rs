//! The number of repetitions of a task that yields an interval of a requested width: [`advise`].
//!
//! A pilot of small invocations provides the two components of the variance, within and between
//! invocations. Two sizes provide the costs of an iteration and of an invocation. From these values
//! the formula of Kalibera and Jones ([`crate::stats::plan`]) computes the repetitions. Iterations
//! are counted in stretches ([`STRETCHES`] per invocation of the pilot), whose means are
//! practically independent.
//!
//! With ten invocations, the component between invocations is accurate to about a quarter. The
//! advice is therefore only a plan, and the run that follows it still prints the interval that it
//! reached.

use serde::Serialize;

use crate::engine::invoked::{MetricSummary, STRETCHES};
use crate::engine::pilot::{Pilot, PilotFailure, PilotRun};
use crate::size::Size;
use crate::stats::order;
use crate::stats::plan::{Components, Costs, RepetitionPlan};
use crate::task::InvocationTask;

/// Number of small invocations in a pilot, for the variance.
const SMALL: usize = 10;
/// Number of larger invocations in a pilot, for the cost of an iteration.
const LARGE: usize = 2;
/// Number of invocations needed for the advice on one task.
pub const TRIALS: usize = SMALL + LARGE;
/// Minimum cost in seconds of starting an invocation, whatever the slope of the line.
const LEAST_INVOCATION_SECONDS: f64 = 1e-3;

/// The advice of a pilot for a task's first metric. If an invocation measures several points of the
/// metric, the advice is for the point that needs the most repetitions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PilotAdvice {
    /// The task that was tried, with the parameters of the point.
    pub task: InvocationTask,
    pub metric: String,
    /// Unit of `mean`.
    pub unit: String,
    pub mean: f64,
    /// Standard deviation of a stretch inside its invocation, as a share of the mean.
    pub within: f64,
    /// Standard deviation between invocations, as a share of the mean; 0 if none was resolved.
    pub between: f64,
    /// Number of operations in a stretch.
    pub stretch: usize,
    /// Cost of one more operation in seconds.
    pub iteration_seconds: f64,
    /// Cost of one more invocation in seconds, without its operations.
    pub invocation_seconds: f64,
    /// Number of operations in each invocation.
    pub iterations: usize,
    /// Number of invocations, or `None` if more than [`crate::stats::plan::MOST_INVOCATIONS`] are
    /// needed.
    pub invocations: Option<usize>,
    pub seconds: Option<f64>,
    /// Half width of the mean's 95 % interval that a run of each size would reach, as a share.
    pub reached: ReachedWidths,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReachedWidths {
    pub quick: f64,
    pub default: f64,
    /// At `--full`, whose invocations are assumed to be as long as the default's.
    pub full: f64,
}

/// Tries `task` and returns the number of repetitions for an interval of the mean that extends by
/// at most `precision`, a share of the mean, to either side.
pub fn advise(
    task: &InvocationTask,
    precision: f64,
    pilot: Pilot<'_>,
) -> Result<PilotAdvice, PilotFailure> {
    let small = pilot.repeat_at(task, Size::Quick, SMALL)?;
    let large = pilot.repeat_at(task, Size::Default, LARGE)?;
    let invocations = |size: Size| {
        let experiment = pilot.suite.find(&task.experiment);
        experiment.map_or(size.invocations(), |one| one.invocations(&task.variant, size))
    };
    judge(task, precision, &invocations, &small, &large)
        .ok_or_else(|| PilotFailure::Unmeasurable("too few samples for a plan".into()))
}

fn judge(
    task: &InvocationTask,
    precision: f64,
    invocations: &dyn Fn(Size) -> usize,
    small: &[PilotRun],
    large: &[PilotRun],
) -> Option<PilotAdvice> {
    let figures = &small.first()?.figures;
    let points = figures.iter().filter(|figure| figure.metric == figures[0].metric);
    let cost = |advice: &PilotAdvice| advice.seconds.unwrap_or(f64::INFINITY);
    points
        .filter_map(|point| judge_at(point, task, precision, invocations, small, large))
        .reduce(|most, next| if cost(&next) > cost(&most) { next } else { most })
}

fn judge_at(
    figure: &MetricSummary,
    task: &InvocationTask,
    precision: f64,
    invocations: &dyn Fn(Size) -> usize,
    small: &[PilotRun],
    large: &[PilotRun],
) -> Option<PilotAdvice> {
    let of = |trial: &PilotRun| -> Option<MetricSummary> {
        let same = |one: &&MetricSummary| one.metric == figure.metric && one.at == figure.at;
        trial.figures.iter().find(same).cloned()
    };
    let stretches: Vec<Vec<f64>> =
        small.iter().filter_map(|trial| Some(of(trial)?.stretches)).collect();
    let components = Components::of(&stretches)?;
    let at_default = operations(&of(large.first()?)?);
    let line = line((operations(figure), middle(small)?), (at_default, middle(large)?));
    let stretch = (operations(figure) / STRETCHES as f64).max(1.0);
    let costs = Costs { iteration: line.iteration * stretch, invocation: line.invocation };
    let plan = RepetitionPlan::new(components, costs, precision * components.mean.abs())?;
    let iterations = plan.iterations as f64 * stretch;
    let each = line.invocation + iterations * line.iteration;
    let share = |variance: f64| variance.sqrt() / components.mean.abs();
    let reached = |size: Size, operations: f64| {
        components
            .half_width(operations / stretch, invocations(size))
            .map_or(f64::NAN, |width| width / components.mean.abs())
    };
    let params = task.params.clone().into_iter().chain(figure.at.clone()).collect();
    Some(PilotAdvice {
        task: InvocationTask { params, ..task.clone() },
        metric: figure.metric.clone(),
        unit: figure.unit.clone(),
        mean: components.mean,
        within: share(components.within),
        between: share(components.between),
        stretch: stretch as usize,
        iteration_seconds: line.iteration,
        invocation_seconds: line.invocation,
        iterations: iterations as usize,
        invocations: plan.invocations,
        seconds: plan.invocations.map(|count| count as f64 * each),
        reached: ReachedWidths {
            quick: reached(Size::Quick, operations(figure)),
            default: reached(Size::Default, at_default),
            full: reached(Size::Full, at_default),
        },
    })
}

/// Returns the number of operations that a figure's samples represent.
fn operations(figure: &MetricSummary) -> f64 {
    (figure.summary.count * figure.summary.batch) as f64
}

fn middle(trials: &[PilotRun]) -> Option<f64> {
    order::median(&trials.iter().map(|trial| trial.seconds).collect::<Vec<_>>())
}

/// Returns the costs from the line through two points of (operations, seconds).
fn line(small: (f64, f64), large: (f64, f64)) -> Costs {
    let steep = (large.1 - small.1) / (large.0 - small.0);
    // If both runs made the same number of operations, or noise makes the line fall, all time is
    // attributed to the operations.
    let iteration = if steep.is_finite() && steep > 0.0 { steep } else { large.1 / large.0 };
    let invocation = (small.1 - iteration * small.0).max(LEAST_INVOCATION_SECONDS);
    Costs { iteration, invocation }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Series;

    fn trial(seconds: f64, samples: usize, level: f64) -> PilotRun {
        // Two alternating values have the same variance in each stretch, whatever the level.
        let stretches = (0..STRETCHES).map(|i| level + (i % 2) as f64).collect();
        let series = Series::ns("one_way", vec![level; samples]);
        let figure = MetricSummary { stretches, ..MetricSummary::of(&series) };
        PilotRun { seconds, figures: vec![figure] }
    }

    fn task() -> InvocationTask {
        InvocationTask::new("round-trip", "pipe", crate::task::Params::new(), Size::Default)
    }

    #[test]
    fn advice_fits_costs_and_rounds_to_whole_stretches() {
        let small: Vec<PilotRun> =
            (0..10).map(|i| trial(0.2, 1_000, 100.0 + f64::from(i))).collect();
        let large = [trial(0.3, 11_000, 100.0), trial(0.3, 11_000, 100.0)];
        let advice =
            judge(&task(), 0.02, &Size::invocations, &small, &large).expect("enough samples");
        assert!((advice.iteration_seconds - 1e-5).abs() < 1e-12, "{advice:?}");
        assert!((advice.invocation_seconds - 0.19).abs() < 1e-9, "{advice:?}");
        assert_eq!(advice.stretch, 100);
        // √(0.19/0.001 · 0.278/9.14) = 2.4, rounded up to 3 stretches.
        assert_eq!(advice.iterations, 300, "{advice:?}");
        assert!(advice.invocations.is_some_and(|count| (10..20).contains(&count)), "{advice:?}");
        assert!(advice.reached.full < advice.reached.default);
    }

    #[test]
    fn point_requiring_the_most_repetitions_is_named() {
        let at = |point: &str, level: f64| {
            let mut trial = trial(0.2, 1_000, level);
            trial.figures[0].at.insert("pause_us".into(), point.into());
            trial.figures.remove(0)
        };
        let both = |i: i32| PilotRun {
            seconds: 0.2,
            figures: vec![at("1", 100.0 + f64::from(i) / 10.0), at("10", 100.0 + f64::from(i))],
        };
        let small: Vec<PilotRun> = (0..10).map(both).collect();
        let large = [both(0), both(0)];
        let advice =
            judge(&task(), 0.02, &Size::invocations, &small, &large).expect("enough samples");
        assert_eq!(advice.task.params.get("pause_us").map(String::as_str), Some("10"));
    }

    #[test]
    fn equal_times_leave_only_the_minimum_invocation_cost() {
        let costs = line((100.0, 2.0), (100.0, 2.0));
        assert_eq!((costs.iteration, costs.invocation), (0.02, LEAST_INVOCATION_SECONDS));
    }

    #[test]
    fn advice_judge_returns_none_for_too_few_samples() {
        let mut bare = trial(0.1, 5, 1.0);
        bare.figures[0].stretches.clear();
        assert_eq!(
            judge(&task(), 0.02, &Size::invocations, &[bare.clone(), bare.clone()], &[bare]),
            None
        );
    }
}

//! The expected counts: [`expected`], [`broken`], and the [`rows`] of the page.

use crate::simulate::SampleModel;

use super::trial::{CoverageTrial, Method, RUNS};

/// Minimum share of runs in which an interval whose assumptions hold contains the true value. With
/// 2,000 runs, the share at a true 95 % has a standard deviation of 0.5 percentage points, so the
/// limit is three deviations below.
pub(super) const LIMIT: f64 = 0.935;
/// Maximum width of the median's interval ÷ width of Student's interval, on independent samples.
pub(super) const WIDEST: f64 = 1.3;

/// The expected coverage of a method on a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CoverageClaim {
    /// The assumptions hold, and the coverage is at least [`LIMIT`].
    Holds,
    /// The assumptions do not hold, and the interval may or may not fail. The coverage is printed,
    /// but nothing is promised.
    Unpromised,
    /// The assumptions are violated such that the interval must fail, and the coverage is below
    /// [`LIMIT`].
    Fails,
}

pub(super) fn expected(model: SampleModel, method: Method) -> CoverageClaim {
    match (method, model) {
        (Method::Paired, _) => CoverageClaim::Holds,
        (_, SampleModel::Drift) => CoverageClaim::Fails,
        (
            Method::Naive,
            SampleModel::Normal | SampleModel::ModesWithin | SampleModel::PeriodTwo,
        ) => CoverageClaim::Holds,
        (Method::Naive, _) => CoverageClaim::Fails,
        (Method::Mean, SampleModel::Spikes) => CoverageClaim::Unpromised,
        (Method::Mean | Method::Trimmed, SampleModel::ModesBetween) => CoverageClaim::Unpromised,
        // The position of the fences determines whether the rarer mode is trimmed as an outlier;
        // see docs/evidence/coverage.md.
        (Method::Trimmed, SampleModel::ModesWithin) => CoverageClaim::Unpromised,
        _ => CoverageClaim::Holds,
    }
}

/// Returns the statements of docs/evidence/coverage.md that these trials contradict.
pub(super) fn broken(trials: &[CoverageTrial]) -> Vec<String> {
    let mut broken = Vec::new();
    for trial in trials {
        for method in Method::ALL {
            let share = trial.share(method);
            let kept = match expected(trial.model, method) {
                CoverageClaim::Holds => share >= LIMIT,
                CoverageClaim::Unpromised => true,
                CoverageClaim::Fails => share < LIMIT,
            };
            if !kept {
                broken.push(format!(
                    "{}, {} invocations, {method:?}: {:.1} %, expected {:?}",
                    trial.model.name(),
                    trial.invocations,
                    share * 100.0,
                    expected(trial.model, method),
                ));
            }
        }
        // The page says that the width misses its target with 10 invocations only.
        let wide = trial.width > WIDEST;
        if trial.model == SampleModel::Normal && wide != (trial.invocations == 10) {
            broken
                .push(format!("width with {} invocations: {:.2}", trial.invocations, trial.width));
        }
    }
    broken
}

/// Returns the rows of a trial in the tables of docs/evidence/coverage.md.
pub(super) fn rows(trial: &CoverageTrial) -> Vec<String> {
    let CoverageTrial { truth, invocations, .. } = trial;
    let (name, flagged) = (trial.model.name(), trial.flagged as f64 * 100.0 / RUNS as f64);
    let cells = Method::ALL.map(|method| {
        let percent = trial.share(method) * 100.0;
        match expected(trial.model, method) {
            CoverageClaim::Holds => format!("{percent:.1}"),
            CoverageClaim::Unpromised => format!("*{percent:.1}*"),
            CoverageClaim::Fails => format!("**{percent:.1}**"),
        }
    });
    let truth = format!("{:.2}, {:.2}, {:.2}", truth.median, truth.mean, truth.trimmed);
    let cells = cells.join(" | ");
    let mut rows = vec![format!("| {name} | {invocations} | {truth} | {cells} | {flagged:.1} |")];
    if trial.model == SampleModel::Normal {
        let (width, alike) = (trial.width, trial.width_alike);
        rows.push(format!("| {invocations} | {width:.2} | {alike:.2} |"));
    }
    rows
}

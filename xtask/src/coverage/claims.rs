//! What the counts have to be: [`expected`], [`broken`].

use tontine_bench::stats::simulate::Model;

use super::trial::{Method, Trial};

/// An interval whose assumptions hold has to hold the truth this often. 2,000 runs at a true 95 %
/// vary by ± 0.5 percentage points, so this is three deviations below.
pub(super) const LIMIT: f64 = 0.935;
/// The widest that the median's interval should be, beside Student's, on independent samples.
pub(super) const WIDEST: f64 = 1.3;

/// What a method promises on a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// Its assumptions hold: at least [`LIMIT`].
    Holds,
    /// They do not, in a way that may or may not show: printed, not promised.
    Unpromised,
    /// They are broken so that it has to show: below [`LIMIT`].
    Fails,
}

/// What is expected of a method on a model.
pub(super) fn expected(model: Model, method: Method) -> Expected {
    match (method, model) {
        (Method::Paired, _) => Expected::Holds,
        (_, Model::Drift) => Expected::Fails,
        (Method::Naive, Model::Normal | Model::ModesWithin | Model::PeriodTwo) => Expected::Holds,
        (Method::Naive, _) => Expected::Fails,
        (Method::Mean, Model::Spikes) => Expected::Unpromised,
        (Method::Mean | Method::Trimmed, Model::ModesBetween) => Expected::Unpromised,
        // Where the fences fall decides whether the rarer mode is an outlier: the page explains.
        (Method::Trimmed, Model::ModesWithin) => Expected::Unpromised,
        _ => Expected::Holds,
    }
}

/// The statements of the page that these trials contradict.
pub(super) fn broken(trials: &[Trial]) -> Vec<String> {
    let mut broken = Vec::new();
    for trial in trials {
        for method in Method::ALL {
            let share = trial.share(method);
            let kept = match expected(trial.model, method) {
                Expected::Holds => share >= LIMIT,
                Expected::Unpromised => true,
                Expected::Fails => share < LIMIT,
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
        // The page says that the width misses its target with 10 invocations and only there.
        let wide = trial.width > WIDEST;
        if trial.model == Model::Normal && wide != (trial.invocations == 10) {
            broken
                .push(format!("width with {} invocations: {:.2}", trial.invocations, trial.width));
        }
    }
    broken
}

//! Remarks on what makes the figures of a row doubtful: [`doubts`], [`few`].

use std::collections::BTreeMap;

use crate::format;
use crate::schema::Invocation;
use crate::stats::diagnose;

/// Minimum number of invocations whose smallest and largest figures enclose the median with a
/// confidence of at least 95 %.
const FEWEST_FOR_ORDER: usize = 6;

/// Change of a tick's length during an invocation, as a share, above which figures are doubtful.
const CLOCK_DRIFT: f64 = 0.001;

/// Returns remarks on the invocations of a row, whose figures are `standing`: what the diagnosis
/// finds between and within them, and how the machine disturbed them.
pub(super) fn doubts(standing: &[f64], unit: &str, invocations: &[Invocation]) -> Vec<String> {
    let between = diagnose::invocations(standing, |value| format::single(unit, value)).into_iter();
    let mut notes: Vec<String> = between.map(|reason| format!("unstable: {reason}")).collect();
    let mut within: BTreeMap<&str, usize> = BTreeMap::new();
    for invocation in invocations {
        for reason in &invocation.summary.unstable {
            *within.entry(reason.split(':').next().unwrap_or(reason)).or_default() += 1;
        }
    }
    let all = invocations.len();
    for (reason, count) in within {
        // The interval accounts for one odd invocation. If most invocations are odd, that is a
        // property of the figure.
        if 2 * count > all {
            notes.push(format!("unstable: {reason} within {count} of {all} invocations"));
        }
    }
    notes.extend(spoilt(invocations));
    notes
}

/// Returns a remark if a figure has too few invocations for an interval without an assumption.
pub(super) fn few(invocations: usize, unit: &str) -> Option<String> {
    match invocations {
        1 if unit == "share" => {
            Some("few invocations: 1; the interval takes its tries as independent".into())
        }
        0 | 1 => Some("no interval: 1 invocation".into()),
        2..FEWEST_FOR_ORDER if unit != "share" => {
            // All figures are on one side of the median with probability 2 · ½ⁿ.
            let held = 100.0 * (1.0 - 0.5_f64.powi(invocations as i32 - 1));
            Some(format!(
                "few invocations: {invocations}; mean with Student's interval, which assumes a \
                 normal distribution (from the smallest to the largest: {held:.0} % for the median)"
            ))
        }
        _ => None,
    }
}

/// Returns remarks if the machine disturbed most of the invocations.
fn spoilt(invocations: &[Invocation]) -> Vec<String> {
    let all = invocations.len();
    let most = |count: usize| 2 * count > all;
    let stolen = invocations.iter().filter(|one| one.stolen_ms > 0.0).count();
    let drifted = invocations.iter().filter(|one| one.clock_drift.abs() > CLOCK_DRIFT).count();
    let mut notes = Vec::new();
    if most(stolen) {
        notes
            .push(format!("unstable: the hypervisor took time from {stolen} of {all} invocations"));
    }
    if most(drifted) {
        notes.push(format!("unstable: the clock's tick changed in {drifted} of {all} invocations"));
    }
    notes
}

//! An estimate of a run's duration on this machine: [`seconds`].
//!
//! A pilot runs every task at growing sizes. If an invocation of the run is short, the pilot makes
//! one such invocation, and no model is needed. If it is long, the model assumes that the time
//! grows linearly with the number of operations, and two smaller sizes determine the line.

use crate::engine::pilot::{Pilot, PilotFailure};
use crate::engine::plan::Plan;
use crate::size::Size;
use crate::suite::Suite;
use crate::task::InvocationTask;

/// Limit in seconds below which the pilot makes an invocation as it is. Longer invocations are
/// extrapolated. The limit exceeds the time budgets of experiments: if an invocation ends when its
/// samples are complete, long before its budget, its duration does not grow linearly.
const SHORT_SECONDS: f64 = 20.0;

/// Time of a run in seconds outside its invocations: reading the machine's facts and writing the
/// files.
const AROUND_SECONDS: f64 = 1.0;

/// Estimates the duration of `plan` in seconds. Returns `None` if the pilot was stopped.
///
/// Tasks that are skipped or fail in the pilot count as zero, because the run leaves them out.
pub fn seconds(plan: &Plan, pilot: Pilot<'_>) -> Option<f64> {
    let mut total = AROUND_SECONDS;
    for (index, task) in plan.tasks.iter().enumerate() {
        match invocation(task, plan.size, pilot) {
            Ok(seconds) => total += seconds * plan.invocations(index) as f64,
            Err(PilotFailure::Unmeasurable(_)) => {}
            Err(PilotFailure::Stopped) => return None,
        }
    }
    Some(total)
}

/// Returns the seconds of one invocation at `size`.
fn invocation(task: &InvocationTask, size: Size, pilot: Pilot<'_>) -> Result<f64, PilotFailure> {
    let at = |size| Ok((operations(pilot.suite, task, size), pilot.try_at(task, size)?.seconds));
    let (small, large) = (at(Size::Quick)?, at(Size::Default)?);
    let expected = extrapolate(small, large, operations(pilot.suite, task, size));
    if expected < SHORT_SECONDS { at(size).map(|(_, seconds)| seconds) } else { Ok(expected) }
}

fn operations(suite: &Suite, task: &InvocationTask, size: Size) -> f64 {
    let experiment = suite.find(&task.experiment);
    experiment.map_or(0, |experiment| experiment.operations(&task.variant, size)) as f64
}

/// Evaluates the line through two points at `operations`. If noise makes the line fall, returns at
/// least the larger point.
fn extrapolate(small: (f64, f64), large: (f64, f64), operations: f64) -> f64 {
    if large.0 <= small.0 {
        return large.1;
    }
    let each = ((large.1 - small.1) / (large.0 - small.0)).max(0.0);
    (large.1 + each * (operations - large.0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_extrapolates_line_through_both_points() {
        let (small, large) = ((100.0, 1.5), (300.0, 2.5));
        assert_eq!(extrapolate(small, large, 100.0), 1.5);
        assert_eq!(extrapolate(small, large, 1_100.0), 6.5);
        assert_eq!(extrapolate(small, (100.0, 1.4), 1_100.0), 1.4, "as many operations: no slope");
        assert_eq!(extrapolate((100.0, 3.0), large, 1_100.0), 2.5, "noise gives no negative cost");
    }
}

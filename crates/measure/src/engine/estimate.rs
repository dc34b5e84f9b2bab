//! How long a run will take on this machine: [`seconds`].
//!
//! A pilot runs every task once at the two smaller sizes. Time grows linearly with the number of
//! operations, so two points give each task's fixed cost and its cost an operation, and with them
//! its cost at any size.

use std::time::Instant;

use crate::engine::invoked::{Order, Outcome};
use crate::engine::launch::{Ended, Launcher};
use crate::engine::plan::Plan;
use crate::engine::stop::Stop;
use crate::experiment::{self, Task};
use crate::size::Size;

/// Predicts the seconds that `plan` will take. `None` where the pilot was stopped.
///
/// Tasks that are skipped or fail in the pilot count as nothing: the run will leave them out.
pub fn seconds(plan: &Plan, launcher: &Launcher, stop: &Stop) -> Option<f64> {
    let mut total = 0.0;
    for task in &plan.tasks {
        let (Some(small), Some(large)) =
            (cost(task, Size::Quick, launcher, stop)?, cost(task, Size::Default, launcher, stop)?)
        else {
            continue;
        };
        total += extrapolate(small, large, operations(task, plan.size)) * plan.blocks as f64;
    }
    Some(total)
}

/// Operations and seconds of one invocation at `size`; the outer `None` where the run was stopped,
/// the inner one where the task cannot be measured here.
#[allow(clippy::option_option)]
fn cost(task: &Task, size: Size, by: &Launcher, stop: &Stop) -> Option<Option<(f64, f64)>> {
    let task = Task { size, ..task.clone() };
    let operations = operations(&task, size);
    let began = Instant::now();
    match by.launch(&Order { task, block: 0, samples: None }, stop) {
        Ended::Stopped => None,
        Ended::Broken(_) => Some(None),
        Ended::Replied(reply) => Some(match reply.outcome {
            Outcome::Measured(_) => Some((operations, began.elapsed().as_secs_f64())),
            Outcome::Skipped(_) | Outcome::Failed(_) => None,
        }),
    }
}

fn operations(task: &Task, size: Size) -> f64 {
    let experiment = experiment::find(&task.experiment);
    experiment.map_or(0, |experiment| experiment.operations(&task.variant, size)) as f64
}

/// The line through two points, at `operations`; never less than the larger point where noise makes
/// the line fall.
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
    fn the_line_goes_through_both_points_and_beyond() {
        let (small, large) = ((100.0, 1.5), (300.0, 2.5));
        assert_eq!(extrapolate(small, large, 100.0), 1.5);
        assert_eq!(extrapolate(small, large, 1_100.0), 6.5);
        assert_eq!(extrapolate(small, (100.0, 1.4), 1_100.0), 1.4, "as many operations: no slope");
        assert_eq!(extrapolate((100.0, 3.0), large, 1_100.0), 2.5, "noise gives no negative cost");
    }
}

//! Trial of a task before the run itself: [`Pilot`] makes single invocations and measures the
//! duration of each.

use std::time::Instant;

use crate::engine::invoked::{Figure, InvocationRequest, InvocationResult};
use crate::engine::launch::{LaunchResult, Launcher};
use crate::engine::stop::Stop;
use crate::size::Size;
use crate::suite::Suite;
use crate::task::Task;

/// Makes invocations whose figures do not enter any result.
#[derive(Debug, Clone, Copy)]
pub struct Pilot<'a> {
    /// The suite that contains the tasks' experiments.
    pub suite: &'static Suite,
    /// Launcher of the invocations.
    pub launcher: &'a Launcher,
    /// The request to stop.
    pub stop: &'a Stop,
}

/// One invocation that a pilot made.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Duration from the start to the end.
    pub seconds: f64,
    /// Figures of the invocation: never empty.
    pub figures: Vec<Figure>,
}

/// Reason for which a pilot has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Without {
    /// The run was stopped.
    Stopped,
    /// The task cannot be measured on this machine, for this reason.
    Unmeasurable(String),
}

impl Pilot<'_> {
    /// Makes one invocation of `task` at `size`.
    ///
    /// # Errors
    /// [`Without`]: stopped, or nothing was measured.
    pub fn try_at(&self, task: &Task, size: Size) -> Result<Trial, Without> {
        let task = Task { size, ..task.clone() };
        let began = Instant::now();
        match self
            .launcher
            .launch(&InvocationRequest { task, block: 0, samples: None, plant: None }, self.stop)
        {
            LaunchResult::Stopped => Err(Without::Stopped),
            LaunchResult::Broken(why) => Err(Without::Unmeasurable(why)),
            LaunchResult::Replied(reply) => match reply.outcome {
                InvocationResult::Measured(measured) => {
                    let seconds = began.elapsed().as_secs_f64();
                    Ok(Trial { seconds, figures: measured.figures })
                }
                InvocationResult::Skipped(why) | InvocationResult::Failed(why) => {
                    Err(Without::Unmeasurable(why))
                }
            },
        }
    }

    /// Makes `count` invocations, one after another.
    ///
    /// # Errors
    /// Like [`Pilot::try_at`], for the first that fails.
    pub fn repeat_at(&self, task: &Task, size: Size, count: usize) -> Result<Vec<Trial>, Without> {
        (0..count).map(|_| self.try_at(task, size)).collect()
    }
}

//! Trials of a task before the run itself. [`Pilot`] makes single invocations and measures the
//! duration of each.

use std::time::Instant;

use crate::engine::invoked::{InvocationRequest, InvocationResult, MetricSummary};
use crate::engine::launch::{LaunchResult, Launcher};
use crate::engine::stop::StopRequest;
use crate::size::Size;
use crate::suite::Suite;
use crate::task::InvocationTask;

/// A maker of invocations whose figures do not enter any result.
#[derive(Debug, Clone, Copy)]
pub struct Pilot<'a> {
    /// The suite that contains the tasks' experiments.
    pub suite: &'static Suite,
    /// The launcher of the invocations.
    pub launcher: &'a Launcher,
    /// The request to stop.
    pub stop: &'a StopRequest,
}

/// One invocation that a pilot made.
#[derive(Debug, Clone)]
pub struct PilotRun {
    /// Duration from the start to the end.
    pub seconds: f64,
    /// Figures of the invocation, never empty.
    pub figures: Vec<MetricSummary>,
}

/// The reason why a pilot has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PilotFailure {
    /// The run was stopped.
    Stopped,
    /// The task cannot be measured on this machine, for the contained reason.
    Unmeasurable(String),
}

impl Pilot<'_> {
    /// Makes one invocation of `task` at `size`.
    ///
    /// # Errors
    /// Returns a [`PilotFailure`]: the pilot was stopped, or nothing was measured.
    pub fn try_at(&self, task: &InvocationTask, size: Size) -> Result<PilotRun, PilotFailure> {
        let task = InvocationTask { size, ..task.clone() };
        let began = Instant::now();
        match self.launcher.launch(&InvocationRequest { task, block: 0, samples: None }, self.stop)
        {
            LaunchResult::Stopped => Err(PilotFailure::Stopped),
            LaunchResult::Broken(why) => Err(PilotFailure::Unmeasurable(why)),
            LaunchResult::Replied(reply) => match reply.outcome {
                InvocationResult::Measured(measured) => {
                    let seconds = began.elapsed().as_secs_f64();
                    Ok(PilotRun { seconds, figures: measured.figures })
                }
                InvocationResult::Skipped(why) | InvocationResult::Failed(why) => {
                    Err(PilotFailure::Unmeasurable(why))
                }
            },
        }
    }

    /// Makes `count` invocations, one after another.
    ///
    /// # Errors
    /// Returns the errors of [`Pilot::try_at`], for the first invocation that fails.
    pub fn repeat_at(
        &self,
        task: &InvocationTask,
        size: Size,
        count: usize,
    ) -> Result<Vec<PilotRun>, PilotFailure> {
        (0..count).map(|_| self.try_at(task, size)).collect()
    }
}

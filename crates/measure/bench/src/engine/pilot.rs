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
    pub suite: &'static Suite,
    pub launcher: &'a Launcher,
    pub stop: &'a StopRequest,
}

#[derive(Debug, Clone)]
pub struct PilotRun {
    pub seconds: f64,
    /// Figures of the invocation, never empty.
    pub figures: Vec<MetricSummary>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PilotFailure {
    Stopped,
    /// The task cannot be measured on this machine, for the contained reason.
    Unmeasurable(String),
}

impl Pilot<'_> {
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
    pub fn repeat_at(
        &self,
        task: &InvocationTask,
        size: Size,
        count: usize,
    ) -> Result<Vec<PilotRun>, PilotFailure> {
        (0..count).map(|_| self.try_at(task, size)).collect()
    }
}

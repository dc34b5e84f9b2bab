//! The two sides of a comparison: [`FigureSource`], and [`Arm`], a program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::names::earlier;
use crate::engine::invoked::{InvocationRequest, InvocationResult, MetricSummary};
use crate::engine::launch::{LaunchResult, Launcher};
use crate::engine::stop::StopRequest;
use crate::task::InvocationTask;

/// A side of a comparison, which the second stage asks for figures. Usually it is an [`Arm`];
/// trials of the comparison itself draw from recorded figures.
pub trait FigureSource {
    /// Runs one invocation of `task` and returns its figures, which are never empty.
    fn figures(
        &self,
        task: &InvocationTask,
        stop: &StopRequest,
    ) -> Result<Vec<MetricSummary>, Missing>;

    /// Returns the name of the side, such as the path of its program.
    fn name(&self) -> String;
}

/// A program whose invocations are compared.
#[derive(Debug, Clone)]
pub struct Arm {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Arm {
    /// Returns the arm for the program at `path`, which serves an invocation when called with
    /// `arguments`.
    pub fn new(path: &Path, arguments: Vec<OsString>) -> Self {
        Self { program: path.to_owned(), arguments }
    }
}

/// The reason why an invocation has no figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    Stopped,
    Skipped(String),
    Failed(String),
}

impl FigureSource for Arm {
    fn figures(
        &self,
        task: &InvocationTask,
        stop: &StopRequest,
    ) -> Result<Vec<MetricSummary>, Missing> {
        let figures = self.launch(task, stop);
        match (figures, earlier(task)) {
            // An old program may have the task by its earlier name.
            (Err(Missing::Failed(why)), Some((old, present))) => {
                let figures = self.launch(&old, stop);
                let figures = figures.map(|all| all.into_iter().map(present).collect());
                figures.map_err(|missing| match missing {
                    Missing::Stopped => Missing::Stopped,
                    _ => Missing::Failed(why),
                })
            }
            (figures, _) => figures,
        }
    }

    fn name(&self) -> String {
        self.program.display().to_string()
    }
}

impl Arm {
    fn launch(
        &self,
        task: &InvocationTask,
        stop: &StopRequest,
    ) -> Result<Vec<MetricSummary>, Missing> {
        let request = InvocationRequest { task: task.clone(), block: 0, samples: None };
        let launcher = Launcher {
            program: self.program.clone(),
            arguments: self.arguments.clone(),
            deadline: task.size.deadline(),
        };
        match launcher.launch(&request, stop) {
            LaunchResult::Stopped => Err(Missing::Stopped),
            LaunchResult::Broken(why) => Err(Missing::Failed(why)),
            LaunchResult::Replied(reply) => match reply.outcome {
                InvocationResult::Measured(measured) => Ok(measured.figures),
                InvocationResult::Skipped(why) => Err(Missing::Skipped(why)),
                InvocationResult::Failed(why) => Err(Missing::Failed(why)),
            },
        }
    }
}

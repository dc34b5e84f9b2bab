//! The two sides of a comparison: [`FigureSource`], and [`Arm`], a program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::engine::invoked::{InvocationRequest, InvocationResult, MetricSummary};
use crate::engine::launch::{LaunchResult, Launcher};
use crate::engine::stop::StopRequest;
use crate::task::InvocationTask;

/// One side of a comparison, which the second stage asks for figures. Usually it is an [`Arm`];
/// trials of the comparison itself draw from recorded figures.
pub trait FigureSource {
    /// Runs one invocation of `task` and returns its figures, which are never empty.
    ///
    /// # Errors
    /// Returns a [`Missing`]: the invocation was stopped or returned no figures.
    fn figures(
        &self,
        task: &InvocationTask,
        stop: &StopRequest,
    ) -> Result<Vec<MetricSummary>, Missing>;

    /// Returns the name of the side, such as the path of its program.
    fn name(&self) -> String;
}

/// One of the two programs.
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
    /// The invocation was stopped.
    Stopped,
    /// The machine lacks a requirement.
    Skipped(String),
    /// The measurement failed.
    Failed(String),
}

impl FigureSource for Arm {
    fn figures(
        &self,
        task: &InvocationTask,
        stop: &StopRequest,
    ) -> Result<Vec<MetricSummary>, Missing> {
        let order = InvocationRequest { task: task.clone(), block: 0, samples: None };
        let launcher = Launcher {
            program: self.program.clone(),
            arguments: self.arguments.clone(),
            deadline: task.size.deadline(),
        };
        match launcher.launch(&order, stop) {
            LaunchResult::Stopped => Err(Missing::Stopped),
            LaunchResult::Broken(why) => Err(Missing::Failed(why)),
            LaunchResult::Replied(reply) => match reply.outcome {
                InvocationResult::Measured(measured) => Ok(measured.figures),
                InvocationResult::Skipped(why) => Err(Missing::Skipped(why)),
                InvocationResult::Failed(why) => Err(Missing::Failed(why)),
            },
        }
    }

    fn name(&self) -> String {
        self.program.display().to_string()
    }
}

//! The points of a reproduction, each measured in a fresh process: [`SourcePoints`],
//! [`FreshProcesses`].
//!
//! No point depends on the memory, threads and processes that an earlier point left behind: a fork,
//! for example, takes several times as long in a process that has run a virtual Unix.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tontine_bench::engine;
use tontine_bench::engine::invoked::{InvocationFigures, InvocationRequest, InvocationResult};
use tontine_bench::engine::launch::Launcher;
use tontine_bench::engine::stop::StopRequest;
use tontine_bench::observe::Observed;
use tontine_bench::size::Size;
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::error::{MeasureError, Result};

/// Measures a task and returns its figures.
pub type MeasurePoint<'a> = dyn FnMut(&InvocationTask) -> Result<InvocationFigures> + 'a;

/// The means to measure each point in a fresh process, by [`engine::invoke`].
#[derive(Debug, Clone, Copy)]
pub struct FreshProcesses<'a> {
    /// The launcher of a process that serves an invocation by [`super::measure_here`].
    pub launcher: &'a Launcher,
    /// The request to stop.
    pub stop: &'a StopRequest,
}

impl FreshProcesses<'_> {
    /// Measures a task; calls `done` with the result.
    ///
    /// # Errors
    /// Returns the error of the fresh process, or `Failed` if the run was stopped.
    pub fn measure(
        &self,
        task: &InvocationTask,
        done: impl FnOnce(&InvocationResult),
    ) -> Result<InvocationFigures> {
        let order = InvocationRequest { task: task.clone(), block: 0, samples: None };
        let Some((reply, _)) = engine::invoke(self.launcher, &order, self.stop) else {
            return Err(MeasureError::fail("stopped"));
        };
        done(&reply.outcome);
        match reply.outcome {
            InvocationResult::Measured(figures) => Ok(figures),
            InvocationResult::Skipped(why) => Err(MeasureError::skip(why)),
            InvocationResult::Failed(why) => Err(MeasureError::fail(why)),
        }
    }
}

/// The points of one reproduction.
pub(crate) struct SourcePoints<'a, 'm> {
    pub(super) source: &'static str,
    pub(super) quick: bool,
    pub(super) measure: &'a mut MeasurePoint<'m>,
}

impl SourcePoints<'_, '_> {
    /// Returns `true` if the reproduction is reduced.
    pub(crate) fn quick(&self) -> bool {
        self.quick
    }

    /// Returns the size of the source's own points.
    pub(crate) fn size(&self) -> Size {
        if self.quick { Size::Quick } else { Size::Full }
    }

    /// Measures a cell of an experiment.
    pub(crate) fn cell(&mut self, task: &InvocationTask) -> Result<InvocationFigures> {
        (self.measure)(task)
    }

    /// Measures a point that only the source has, and returns what the source's own function
    /// returned in the fresh process.
    pub(crate) fn own<T: DeserializeOwned>(&mut self, name: &str, params: Params) -> Result<T> {
        let task = InvocationTask {
            experiment: own_experiment(self.source),
            variant: name.to_owned(),
            params,
            size: self.size(),
        };
        let figures = (self.measure)(&task)?;
        let reply = figures.notes.first().map_or("", String::as_str);
        serde_json::from_str(reply)
            .map_err(|error| MeasureError::fail(format!("{task}: {error}, in `{reply}`")))
    }
}

/// Returns the name by which a task denotes a source's own point.
pub(super) fn own_experiment(source: &str) -> String {
    format!("source-{source}")
}

/// Returns the observation by which a fresh process replies with the result of a source's own
/// point.
pub(super) fn reply(result: &impl Serialize) -> Result<Observed> {
    let reply = serde_json::to_string(result);
    let reply = reply.map_err(|error| MeasureError::fail(error.to_string()))?;
    Ok(Observed { notes: vec![reply], ..Observed::default() })
}

/// Runs a reduced reproduction whose points are measured in this process.
#[cfg(test)]
pub(super) fn in_this_process<T>(
    source: &'static str,
    run: impl FnOnce(&mut SourcePoints<'_, '_>) -> T,
) -> T {
    let mut measure = |task: &InvocationTask| super::measure_here(task).map(InvocationFigures::of);
    run(&mut SourcePoints { source, quick: true, measure: &mut measure })
}

//! A [`Reproduction`]: its output, and its points, each measured in a fresh process
//! ([`FreshProcesses`]).
//!
//! No point depends on the memory, threads and processes that an earlier point left behind: a fork,
//! for example, takes several times as long in a process that has run a virtual Unix.

use std::fmt::Arguments;
use std::io::Write;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tontine_bench::engine;
use tontine_bench::engine::invoked::{
    InvocationFigures, InvocationRequest, InvocationResult, MetricSummary,
};
use tontine_bench::engine::launch::Launcher;
use tontine_bench::engine::stop::StopRequest;

use crate::prelude::*;

const COLUMNS: usize = 80;

pub type MeasurePoint<'a> = dyn FnMut(&InvocationTask) -> Result<InvocationFigures> + 'a;

/// The means to measure each point in a fresh process, by [`engine::invoke`].
#[derive(Debug, Clone, Copy)]
pub struct FreshProcesses<'a> {
    pub launcher: &'a Launcher,
    pub stop: &'a StopRequest,
}

impl FreshProcesses<'_> {
    /// Measures a task; calls `done` with the result.
    pub fn measure(
        &self,
        task: &InvocationTask,
        done: impl FnOnce(&InvocationResult),
    ) -> Result<InvocationFigures> {
        let request = InvocationRequest { task: task.clone(), block: 0, samples: None };
        let Some((reply, _)) = engine::invoke(self.launcher, &request, self.stop) else {
            bail!("stopped");
        };
        done(&reply.outcome);
        match reply.outcome {
            InvocationResult::Measured(figures) => Ok(figures),
            InvocationResult::Skipped(why) => Err(MeasureError::skip(why)),
            InvocationResult::Failed(why) => Err(MeasureError::fail(why)),
        }
    }
}

pub(super) struct Reproduction<'a, 'm> {
    source: &'static str,
    pub(super) quick: bool,
    measure: &'a mut MeasurePoint<'m>,
    out: &'a mut dyn Write,
    failed: Result<()>,
}

impl<'a, 'm> Reproduction<'a, 'm> {
    pub(super) fn new(
        source: &'static str,
        quick: bool,
        measure: &'a mut MeasurePoint<'m>,
        out: &'a mut dyn Write,
    ) -> Self {
        Self { source, quick, measure, out, failed: Ok(()) }
    }

    pub(super) fn size(&self) -> Size {
        if self.quick { Size::Quick } else { Size::Full }
    }

    pub(super) fn cell(&mut self, task: &InvocationTask) -> Result<InvocationFigures> {
        (self.measure)(task)
    }

    /// Measures a cell and returns one of its series.
    pub(super) fn metric(&mut self, task: &InvocationTask, metric: &str) -> Result<MetricSummary> {
        metric_of(self.cell(task)?, metric)
    }

    /// Measures a point that only the source has, and returns what the source's own function
    /// returned in the fresh process.
    pub(super) fn own<T: DeserializeOwned>(&mut self, name: &str, params: Params) -> Result<T> {
        let experiment = own_experiment(self.source);
        let task = InvocationTask::new(&experiment, name, params, self.size());
        let figures = (self.measure)(&task)?;
        let reply = figures.notes.first().map_or("", String::as_str);
        serde_json::from_str(reply)
            .map_err(|error| MeasureError::fail(format!("{task}: {error}, in `{reply}`")))
    }

    pub(super) fn say(&mut self, line: Arguments<'_>) {
        if self.failed.is_ok() {
            self.failed = writeln!(self.out, "{line}").during("writing the reproduction");
        }
    }

    /// Writes `title` with a text for the result, or with the reason for its absence.
    pub(super) fn say_result<T>(
        &mut self,
        title: &str,
        found: Result<T>,
        text: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        let text = found.as_ref().map_or_else(ToString::to_string, text);
        self.say(format_args!("{title}{text}"));
        found.ok()
    }

    pub(super) fn wrap(&mut self, text: &str) {
        self.say(format_args!("{}", textwrap::fill(text, COLUMNS)));
    }

    pub(super) fn end(self) -> Result<()> {
        self.failed
    }
}

pub(super) fn metric_of(figures: InvocationFigures, metric: &str) -> Result<MetricSummary> {
    let lack = || MeasureError::fail(format!("the experiment yielded no series {metric}"));
    figures.figures.into_iter().find(|figure| figure.metric == metric).ok_or_else(lack)
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

#[cfg(test)]
pub(super) fn with_points<T>(
    source: &'static str,
    measure: &mut MeasurePoint<'_>,
    run: impl FnOnce(&mut Reproduction<'_, '_>) -> T,
) -> (T, String) {
    let mut out = Vec::new();
    let result = run(&mut Reproduction::new(source, true, measure, &mut out));
    (result, String::from_utf8(out).expect("UTF-8"))
}

/// Runs a reduced reproduction whose points are measured in this process.
#[cfg(test)]
pub(super) fn in_this_process<T>(
    source: &'static str,
    run: impl FnOnce(&mut Reproduction<'_, '_>) -> T,
) -> (T, String) {
    let mut measure = |task: &InvocationTask| super::measure_here(task).map(InvocationFigures::of);
    with_points(source, &mut measure, run)
}

//! Runs a scenario on a [`Virtual`](tontine_unix_sim::Virtual) system: [`run`].
//!
//! The programs of a scenario run on any [`Sys`](tontine_unix::Sys) (`program.rs`); only this file
//! and `runner.rs` depend on the virtual system.

use tontine_unix_sim::{BuildError, Builder, RunReport};

use super::ast::Scenario;
use super::runner::ScenarioRunner;
use super::timeline::Timeline;
use super::verdict::ScenarioVerdict;

/// The result of [`run`].
#[derive(Debug, Clone)]
pub struct ScenarioRun {
    /// The events of the run.
    pub timeline: Timeline,
    /// The verdict on the expectations. A run that did not end counts as a failed run.
    pub verdict: ScenarioVerdict,
    /// The report of the system.
    pub report: RunReport,
}

/// Runs a scenario on the system that `builder` describes, with its processes registered as
/// programs under their names.
///
/// Stops a run that logs more events than a [`MemoryLog`](super::MemoryLog) keeps.
pub fn run(scenario: &Scenario, builder: Builder) -> Result<ScenarioRun, BuildError> {
    let stage = ScenarioRunner::new(scenario, &builder.its_stopper());
    let report = stage.set(builder).build()?.run(stage.root());
    let (timeline, verdict) = stage.judge(&report);
    Ok(ScenarioRun { timeline, verdict, report })
}

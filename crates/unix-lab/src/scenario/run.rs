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
/// ```
/// use tontine_unix_lab::scenario::{Scenario, run};
/// use tontine_unix_sim::{Executor, Virtual};
///
/// let scenario: Scenario = "\
/// process main
///   raise USR1
///
/// expect main killed USR1
/// "
/// .parse()?;
/// let builder = Virtual::builder().executor(Executor::Simulated { seed: 1 });
/// let observed = run(&scenario, builder)?;
/// assert!(observed.verdict.holds(), "{}\n{}", observed.verdict, observed.timeline);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Stops a run that logs more events than a [`MemoryLog`](super::MemoryLog) keeps.
///
/// # Errors
/// The error of [`Builder::build`] if a setting is out of range, or two settings contradict each
/// other.
///
/// # Panics
/// If `scenario` was not parsed, and has no process or uses an undefined name.
pub fn run(scenario: &Scenario, builder: Builder) -> Result<ScenarioRun, BuildError> {
    let stage = ScenarioRunner::new(scenario, &builder.its_stopper());
    let report = stage.set(builder).build()?.run(stage.root());
    let (timeline, verdict) = stage.judge(&report);
    Ok(ScenarioRun { timeline, verdict, report })
}

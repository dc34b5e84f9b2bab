//! Runs a scenario on a [`Virtual`](tontine_unix_sim::Virtual) system: [`run`].
//!
//! The programs of a scenario are ordinary ones over [`Sys`](tontine_unix::Sys) (`program.rs`);
//! this file and `stage.rs` alone know the virtual system that they run on here.

use tontine_unix_sim::{BuildError, Builder, RunReport};

use super::ast::Scenario;
use super::stage::Stage;
use super::timeline::Timeline;
use super::verdict::ScenarioVerdict;

/// The result of [`run`].
#[derive(Debug, Clone)]
pub struct ScenarioRun {
    /// The events of the run.
    pub timeline: Timeline,
    /// The verdict on the expectations; a run that did not end is a failure too.
    pub verdict: ScenarioVerdict,
    /// The report of the system.
    pub report: RunReport,
}

/// Runs a scenario on the system that `builder` describes; its processes are registered as programs
/// under their names.
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
/// A run that observes more than a [`MemoryLog`](super::MemoryLog) takes is stopped.
///
/// # Errors
/// The settings of the builder are out of range, or contradict each other.
///
/// # Panics
/// If `scenario` was not parsed and has no process, or a name that nothing defines.
pub fn run(scenario: &Scenario, builder: Builder) -> Result<ScenarioRun, BuildError> {
    let stage = Stage::new(scenario, &builder.its_stopper());
    let report = stage.set(builder).build()?.run(stage.root());
    let (timeline, verdict) = stage.judge(&report);
    Ok(ScenarioRun { timeline, verdict, report })
}

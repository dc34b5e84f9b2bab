//! Runs a scenario on a [`Virtual`](crate::Virtual) system: [`run`].
//!
//! The programs of a scenario are ordinary ones over [`Sys`](crate::Sys) (`program.rs`); this file
//! alone knows the virtual system that they run on here.

use super::ast::{BlockKind, Scenario};
use super::log::Memory;
use super::program::{executed, root};
use super::timeline::Timeline;
use super::verdict::{Failure, Verdict};
use crate::machine::{BuildError, Builder, Ending, Report};

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Observed {
    /// What happened.
    pub timeline: Timeline,
    /// Whether that was expected; a run that came to no end is a failure too.
    pub verdict: Verdict,
    /// What the system says.
    pub report: Report,
}

/// Runs a scenario on the system that `builder` describes; its processes are registered as programs
/// under their names.
///
/// ```
/// use tontine_unix::scenario::{Scenario, run};
/// use tontine_unix::{Executor, Virtual};
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
/// A run that observes more than a [`Memory`] takes is stopped.
///
/// # Errors
/// What the builder was asked for does not go together.
///
/// # Panics
/// If `scenario` was not parsed and has no process, or a name that nothing defines.
pub fn run(scenario: &Scenario, builder: Builder) -> Result<Observed, BuildError> {
    let stopper = builder.its_stopper();
    let log = Memory::new(&stopper);
    let processes = scenario.blocks.iter().filter(|block| block.kind == BlockKind::Process);
    let builder = processes.fold(builder, |builder, block| {
        builder.program(&block.name, executed(scenario, &block.name, log.clone()))
    });
    let report = builder.build()?.run(root(scenario, log.clone()));
    let timeline = Timeline { records: log.records() };
    let mut verdict = Verdict::new(scenario, &timeline);
    let found = match report.ending {
        Ending::Finished => None,
        Ending::Stalled => Some("that everybody waits for ever"),
        Ending::Stopped => Some(stopper.why().unwrap_or("that it was stopped")),
    };
    verdict.failures.extend(found.map(|found| Failure {
        line: 0,
        process: None,
        what: "the run".into(),
        expected: "an end".into(),
        found: found.into(),
    }));
    Ok(Observed { timeline, verdict, report })
}

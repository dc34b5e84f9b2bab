//! A scenario with its log, to be run any number of times: [`ScenarioRunner`].

use std::sync::Arc;

use tontine_unix::Program;
use tontine_unix_sim::{Builder, EndReason, RunReport, Stopper};

use super::ast::{BlockKind, Scenario};
use super::context::RunContext;
use super::log::MemoryLog;
use super::program::{executed_in, root_of};
use super::timeline::Timeline;
use super::verdict::{FailedExpectation, ScenarioVerdict};

/// The state that the runs of a scenario share.
pub(crate) struct ScenarioRunner {
    run: Arc<RunContext>,
    log: MemoryLog,
    stopper: Stopper,
}

impl ScenarioRunner {
    /// Creates a runner that keeps all observations, and stops a run with too many observations.
    pub(crate) fn new(scenario: &Scenario, stopper: &Stopper) -> Self {
        Self::with_log(scenario, stopper, MemoryLog::new(stopper))
    }

    /// Creates a runner that keeps only the observations that a verdict needs.
    pub(crate) fn sparse(scenario: &Scenario) -> Self {
        let stopper = Stopper::new();
        Self::with_log(scenario, &stopper, MemoryLog::sparse(&stopper))
    }

    fn with_log(scenario: &Scenario, stopper: &Stopper, log: MemoryLog) -> Self {
        let run = Arc::new(RunContext::new(scenario, Arc::new(log.clone())));
        Self { run, log, stopper: stopper.clone() }
    }

    /// Registers the scenario's processes as programs under their names.
    pub(crate) fn set(&self, builder: Builder) -> Builder {
        let blocks = self.run.scenario.blocks.iter();
        let processes = blocks.filter(|block| block.kind == BlockKind::Process);
        processes.fold(builder.stopper(&self.stopper), |builder, block| {
            builder.program(&block.name, executed_in(Arc::clone(&self.run), &block.name))
        })
    }

    /// Returns the program that begins a run.
    pub(crate) fn root(&self) -> Program {
        root_of(&self.run)
    }

    /// Returns the observations of the run that has ended, and the verdict on them.
    pub(crate) fn judge(&self, report: &RunReport) -> (Timeline, ScenarioVerdict) {
        let timeline = Timeline { records: self.log.take() };
        let mut verdict = ScenarioVerdict::new(&self.run.scenario, &timeline);
        let found = match report.ending {
            EndReason::Finished => None,
            EndReason::Deadlocked => Some("all threads blocked".to_owned()),
            EndReason::Stopped => Some(match self.stopper.reason() {
                Some(why) => why.to_owned(),
                None => format!("none within {} steps (the limit)", report.steps),
            }),
        };
        verdict.failures.extend(found.map(|found| FailedExpectation {
            line: 0,
            process: None,
            thread: None,
            what: "the run".into(),
            expected: "an end".into(),
            found,
        }));
        (timeline, verdict)
    }
}

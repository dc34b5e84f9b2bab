//! The explored program or scenario, [`ExplorationSubject`], and the verdict on one run of it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tontine_unix::{Program, WaitStatus};
use tontine_unix_sim::{Builder, EndReason, RunReport, Virtual};

use crate::scenario::ScenarioRunner;

/// The program or scenario that runs repeatedly.
pub(super) enum ExplorationSubject {
    /// A program, which is created for each run. A run holds if its exit status is 0.
    Program(Box<dyn Fn() -> Program>),
    /// A scenario. A run holds if its verdict holds.
    Scenario(Box<ScenarioRunner>),
}

/// The result of a run.
pub(super) struct RunVerdict {
    /// Description of the failure, if the run failed.
    pub(super) wrong: Option<String>,
    /// The processes, by number, with their names.
    pub(super) names: Vec<(i32, String)>,
}

impl ExplorationSubject {
    /// Returns the system on which the subject runs.
    pub(super) fn system(&self, builder: Builder) -> Virtual {
        let builder = match self {
            Self::Program(_) => builder,
            Self::Scenario(stage) => stage.set(builder),
        };
        builder.build().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs the subject once, on a system that [`ExplorationSubject::system`] has built.
    pub(super) fn run(&self, system: &Virtual) -> RunVerdict {
        let run = || match self {
            Self::Program(make) => {
                let report = system.run(make());
                let wrong = wrong(&report, |status| status == WaitStatus::Exited(0));
                RunVerdict { wrong, names: Vec::new() }
            }
            Self::Scenario(stage) => {
                let report = system.run(stage.root());
                let (timeline, verdict) = stage.judge(&report);
                let failed = (!verdict.holds()).then(|| format!("{verdict}\n{}", left(&report)));
                let names = if failed.is_some() { timeline.names() } else { Vec::new() };
                RunVerdict { wrong: failed.or_else(|| wrong(&report, |_| true)), names }
            }
        };
        catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|panic| RunVerdict { wrong: Some(words(&*panic)), names: Vec::new() })
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a check failed: {}", text.unwrap_or("no message"))
}

/// Returns the failure of a run, if it failed; `held` judges the program's exit status.
fn wrong(report: &RunReport, held: impl Fn(WaitStatus) -> bool) -> Option<String> {
    let RunReport { status, ending, panicked, abandoned, .. } = report;
    let ended = match ending {
        EndReason::Finished => None,
        EndReason::Deadlocked => Some("all threads are blocked".to_owned()),
        EndReason::Stopped => {
            Some(format!("the run did not end within {} steps (the limit)", report.steps))
        }
    };
    let panicked = || (!panicked.is_empty()).then(|| format!("a program panicked: {panicked:?}"));
    let abandoned = || (*abandoned > 0).then(|| format!("{abandoned} stacks were abandoned"));
    let status = || match status {
        Some(status) if held(*status) => None,
        Some(status) => Some(format!("the program failed: {status}")),
        None => Some("the program did not end".to_owned()),
    };
    let wrong = ended.or_else(panicked).or_else(abandoned).or_else(status)?;
    let left = left(report);
    let break_line = if left.is_empty() { "" } else { "\n" };
    Some(format!("{wrong}{break_line}{left}"))
}

/// Describes the final state of a run. If the run reached the step limit, also names the running
/// threads and the option that raises the limit.
fn left(report: &RunReport) -> String {
    let Some(state) = &report.state else { return String::new() };
    let limit = (report.ending == EndReason::Stopped).then(|| {
        let running = state.running();
        format!(
            "running: {running}\n\
             if the run needs more steps, raise the limit: --steps N, or Exploration::max_steps\n"
        )
    });
    format!("{}{}", limit.unwrap_or_default(), state.brief())
}

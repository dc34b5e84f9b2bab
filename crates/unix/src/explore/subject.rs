//! What is explored: [`Subject`], a program or a scenario, and how one run of it is judged.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::machine::{Builder, Ending, Report};
use crate::process::Program;
use crate::scenario::{self, Scenario};
use crate::wait::Status;

/// What is run again and again.
pub(super) enum Subject {
    /// A program, made anew for each run: it held if its exit status is 0.
    Program(Box<dyn Fn() -> Program>),
    /// A scenario: it held if its verdict does.
    Scenario(Box<Scenario>),
}

/// What a run came to.
pub(super) struct Seen {
    /// What was wrong, if anything.
    pub(super) wrong: Option<String>,
    /// Processes and their names.
    pub(super) names: Vec<(i32, String)>,
}

impl Subject {
    /// Runs it once.
    pub(super) fn run(&self, builder: Builder) -> Seen {
        let run = || match self {
            Self::Program(make) => {
                let unix = builder.build().unwrap_or_else(|error| panic!("{error}"));
                let report = unix.run(make());
                Seen {
                    wrong: wrong(&report, |status| status == Status::Exited(0)),
                    names: Vec::new(),
                }
            }
            Self::Scenario(scenario) => {
                let observed =
                    scenario::run(scenario, builder).unwrap_or_else(|error| panic!("{error}"));
                let failed = (!observed.verdict.holds()).then(|| {
                    let state = observed.report.state.as_ref().map(ToString::to_string);
                    format!("{}\n{}", observed.verdict, state.unwrap_or_default())
                });
                let names = if failed.is_none() { Vec::new() } else { observed.timeline.names() };
                Seen { wrong: failed.or_else(|| wrong(&observed.report, |_| true)), names }
            }
        };
        catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|panic| Seen { wrong: Some(words(&*panic)), names: Vec::new() })
    }
}

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a check failed: {}", text.unwrap_or("without a word"))
}

/// What is wrong with a run of which `held` is asked what its status says.
fn wrong(report: &Report, held: impl Fn(Status) -> bool) -> Option<String> {
    let Report { status, ending, panicked, abandoned, state, .. } = report;
    let ended = match ending {
        Ending::Finished => None,
        Ending::Stalled => Some("everybody waits for ever".to_owned()),
        Ending::Stopped => Some("it came to no end".to_owned()),
    };
    let panicked = || (!panicked.is_empty()).then(|| format!("a program panicked: {panicked:?}"));
    let abandoned = || (*abandoned > 0).then(|| format!("{abandoned} stacks were given up"));
    let status = || match status {
        Some(status) if held(*status) => None,
        Some(status) => Some(format!("the program ended so: {status}")),
        None => Some("the program did not end".to_owned()),
    };
    let wrong = ended.or_else(panicked).or_else(abandoned).or_else(status)?;
    let state = state.as_ref().map(|state| format!("\n{state}")).unwrap_or_default();
    Some(format!("{wrong}{state}"))
}

//! Which scenarios can be compared: [`unfit`] says why one cannot.

use crate::scenario::{Call, OnValue, Path, Plain, Scenario, Statement, Step};

/// Why a scenario cannot be compared, with the line of the call that it is about.
pub(super) fn unfit(scenario: &Scenario) -> Option<(u32, &'static str)> {
    scenario.blocks.iter().find_map(|block| in_body(&block.body))
}

fn in_body(body: &[Statement]) -> Option<(u32, &'static str)> {
    body.iter().find_map(|statement| match &statement.step {
        Step::Call(step) => why_not(&step.call).map(|why| (statement.place.line, why)),
        Step::Handler(step) => in_body(&step.body),
        Step::Repeat(_, body) | Step::While(_, body) => in_body(body),
        Step::Note(_) | Step::Set(..) | Step::Check(_) => None,
    })
}

fn why_not(call: &Call) -> Option<&'static str> {
    match call {
        Call::Value(OnValue::Profil | OnValue::Mark | OnValue::Counts, _) => {
            Some("Linux has no `profil`")
        }
        Call::Compute(_) | Call::Plain(Plain::Getrusage | Plain::Now | Plain::Processor) => {
            Some("time that passes is not the same on both")
        }
        Call::Place(_) => Some("processors are not the same on both"),
        Call::Exec(Path::Process(_)) => {
            Some("a process of the scenario cannot be executed on Linux")
        }
        Call::Spawn(spawning) if matches!(spawning.path, Path::Process(_)) => {
            Some("a process of the scenario cannot be executed on Linux")
        }
        _ => None,
    }
}

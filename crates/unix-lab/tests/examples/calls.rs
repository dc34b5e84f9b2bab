//! Which calls a scenario makes: [`has`].

use tontine_unix_lab::scenario::{Call, Path, Scenario, Statement, Step};

/// Whether some statement makes a call that `is` describes.
pub(crate) fn has(scenario: &Scenario, is: fn(&Call) -> bool) -> bool {
    scenario.blocks.iter().any(|block| in_body(&block.body, is))
}

fn in_body(body: &[Statement], is: fn(&Call) -> bool) -> bool {
    body.iter().any(|statement| match &statement.step {
        Step::Call(step) => is(&step.call),
        Step::Handler(step) => in_body(&step.body, is),
        Step::Repeat(_, body) | Step::While(_, body) => in_body(body, is),
        _ => false,
    })
}

/// It runs a process of the scenario as a program.
pub(crate) fn executes(call: &Call) -> bool {
    match call {
        Call::Exec(path) => matches!(path, Path::Process(_)),
        Call::Spawn(spawning) => matches!(spawning.path, Path::Process(_)),
        _ => false,
    }
}

//! The calls of a scenario: [`has`].

use tontine_unix_lab::scenario::{ExecTarget, Scenario, Statement, StatementKind, SystemCall};

/// Returns `true` if a statement of `scenario` makes a call that satisfies `is`.
pub(crate) fn has(scenario: &Scenario, is: fn(&SystemCall) -> bool) -> bool {
    scenario.blocks.iter().any(|block| in_body(&block.body, is))
}

fn in_body(body: &[Statement], is: fn(&SystemCall) -> bool) -> bool {
    body.iter().any(|statement| match &statement.kind {
        StatementKind::Call(step) => is(&step.call),
        StatementKind::Handler(step) => in_body(&step.body, is),
        StatementKind::Repeat(_, body) | StatementKind::While(_, body) => in_body(body, is),
        _ => false,
    })
}

/// Returns `true` for calls that run a process of the scenario as a program.
pub(crate) fn executes(call: &SystemCall) -> bool {
    match call {
        SystemCall::Exec(path) => matches!(path, ExecTarget::Process(_)),
        SystemCall::Spawn(spawning) => matches!(spawning.path, ExecTarget::Process(_)),
        _ => false,
    }
}

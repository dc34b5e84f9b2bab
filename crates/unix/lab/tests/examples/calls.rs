//! The calls of a scenario: [`has`].

use tontine_unix_lab::scenario::{Scenario, Statement, StatementKind, SystemCall};

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

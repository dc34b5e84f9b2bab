//! Checks whether a scenario can be compared: [`unfit`] and, outside of a namespace, also
//! [`reaches_out`].

use super::image;
use crate::scenario::{
    Argument, CallName, Expression, Scenario, Statement, StatementKind, SystemCall, TargetKind,
    Term,
};

/// The reason given if a scenario's processes cannot call exec or spawn.
const NOT_EXECUTED: &str = "this program cannot be executed as a process of the scenario";

/// Returns why a scenario cannot be compared, with the line of the call.
pub(super) fn unfit(scenario: &Scenario) -> Option<(u32, &'static str)> {
    first(scenario, |step| match step {
        StatementKind::Call(step) => why_not(&step.call),
        _ => None,
    })
}

/// Returns why a scenario might reach processes that it did not create, with the line.
///
/// A scenario refers to the processes that it creates by handles. A number that it writes or
/// computes may belong to any process.
pub(super) fn reaches_out(scenario: &Scenario) -> Option<(u32, &'static str)> {
    first(scenario, |step| match step {
        StatementKind::Call(step) if is_at_large(&step.call) => {
            Some("it could reach other processes, and no PID namespace is available")
        }
        StatementKind::Set(_, Expression::Sum(..) | Expression::Difference(..)) => Some(
            "the computed number could name another process, and no PID namespace is available",
        ),
        _ => None,
    })
}

/// Returns the first statement, including statements of bodies, for which `why` returns a reason.
fn first(
    scenario: &Scenario,
    why: impl Fn(&StatementKind) -> Option<&'static str>,
) -> Option<(u32, &'static str)> {
    scenario.blocks.iter().find_map(|block| in_body(&block.body, &why))
}

fn in_body(
    body: &[Statement],
    why: &impl Fn(&StatementKind) -> Option<&'static str>,
) -> Option<(u32, &'static str)> {
    body.iter().find_map(|statement| {
        let here = why(&statement.kind).map(|why| (statement.source.line, why));
        here.or_else(|| match &statement.kind {
            StatementKind::Handler(step) => in_body(&step.body, why),
            StatementKind::Repeat(_, body) | StatementKind::While(_, body) => in_body(body, why),
            StatementKind::Call(_)
            | StatementKind::Note(_)
            | StatementKind::Set(..)
            | StatementKind::Check(_) => None,
        })
    })
}

/// Returns `true` if a call names a process in any way except by the result of the call that
/// created it.
fn is_at_large(call: &SystemCall) -> bool {
    // 0 denotes the caller or its group.
    let is_number = |term: &Term| matches!(term, Term::Number(number) if *number != 0);
    let is_bare = |term: &Term| is_number(term) || matches!(term, Term::Info(_));
    match (call.name, &call.arguments[..]) {
        (_, [Argument::Target(TargetKind::Everyone | TargetKind::User, _), ..]) => true,
        (CallName::Kill | CallName::Setpriority, [Argument::Target(_, Some(term)), ..])
        | (CallName::Killpg | CallName::Tgkill | CallName::Sigqueue, [Argument::Value(term), ..])
        | (_, [Argument::Request(_, Some(term), _)]) => is_bare(term),
        (CallName::Setpgid, [Argument::Value(process), Argument::Value(group)]) => {
            is_bare(process) || is_bare(group)
        }
        _ => false,
    }
}

fn why_not(call: &SystemCall) -> Option<&'static str> {
    match call.name {
        CallName::Profil | CallName::Mark | CallName::Counts => Some("Linux has no `profil`"),
        CallName::Compute | CallName::Getrusage | CallName::Now | CallName::Processor => {
            Some("time differs between the two systems")
        }
        CallName::Place => Some("processors differ between the two systems"),
        _ if call.executes() && !image::is_possible() => Some(NOT_EXECUTED),
        _ => None,
    }
}

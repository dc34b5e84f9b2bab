//! Which scenarios can be compared: [`unfit`] says why one cannot, [`reaches_out`] why one cannot
//! outside of a namespace.

use super::image;
use crate::scenario::{
    Aim, Call, Expression, OnValue, OnValues, Owner, Path, Plain, Scenario, Spawning, Statement,
    Step, Term, Tracing,
};

/// Why a process of a scenario cannot be executed.
const NOT_EXECUTED: &str = "this program cannot be executed as a process of the scenario";

/// Why a scenario cannot be compared, with the line of the call that it is about.
pub(super) fn unfit(scenario: &Scenario) -> Option<(u32, &'static str)> {
    first(scenario, |step| match step {
        Step::Call(step) => why_not(&step.call),
        _ => None,
    })
}

/// Why a scenario might reach processes that are not its own, with the line.
///
/// A process that it made it knows by a handle. A number that it writes or computes may be
/// anybody's.
pub(super) fn reaches_out(scenario: &Scenario) -> Option<(u32, &'static str)> {
    first(scenario, |step| match step {
        Step::Call(step) if is_at_large(&step.call) => {
            Some("it could reach other processes, and there is no PID namespace to be had")
        }
        Step::Set(_, Expression::Sum(..) | Expression::Difference(..)) => {
            Some("what it computes could be another process, and there is no PID namespace")
        }
        _ => None,
    })
}

/// The first statement of which `why` says something, those in bodies too.
fn first(
    scenario: &Scenario,
    why: impl Fn(&Step) -> Option<&'static str>,
) -> Option<(u32, &'static str)> {
    scenario.blocks.iter().find_map(|block| in_body(&block.body, &why))
}

fn in_body(
    body: &[Statement],
    why: &impl Fn(&Step) -> Option<&'static str>,
) -> Option<(u32, &'static str)> {
    body.iter().find_map(|statement| {
        let here = why(&statement.step).map(|why| (statement.place.line, why));
        here.or_else(|| match &statement.step {
            Step::Handler(step) => in_body(&step.body, why),
            Step::Repeat(_, body) | Step::While(_, body) => in_body(body, why),
            Step::Call(_) | Step::Note(_) | Step::Set(..) | Step::Check(_) => None,
        })
    })
}

/// Whether a call names processes otherwise than by what made them.
fn is_at_large(call: &Call) -> bool {
    // 0 is the caller, or its group.
    let is_number = |term: &Term| matches!(term, Term::Number(number) if *number != 0);
    let is_bare = |term: &Term| is_number(term) || matches!(term, Term::Info(_));
    match call {
        Call::Kill(Aim::Everyone, _) | Call::Getpriority(Owner::User(_)) => true,
        Call::Setpriority(Owner::User(_), _) => true,
        Call::Kill(Aim::One(term) | Aim::Group(term), _)
        | Call::Killpg(term, _)
        | Call::Tgkill(term, ..)
        | Call::Sigqueue(term, ..)
        | Call::Setpriority(Owner::Process(term) | Owner::Group(term), _)
        | Call::Ptrace(
            Tracing::Attach(term)
            | Tracing::Continue(term, _)
            | Tracing::Kill(term)
            | Tracing::Detach(term, _),
        ) => is_bare(term),
        Call::Values(OnValues::Setpgid, process, group) => is_bare(process) || is_bare(group),
        _ => false,
    }
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
        Call::Exec(Path::Process(_)) if !image::is_possible() => Some(NOT_EXECUTED),
        Call::Spawn(Spawning { path: Path::Process(_), .. }) if !image::is_possible() => {
            Some(NOT_EXECUTED)
        }
        _ => None,
    }
}

//! Access of experiments to the registry of mechanisms: its rows as variants ([`rows_of`]), and the
//! facts that a run records ([`facts`]).

use tontine_bench::about::{Idling, KillFacts, MechanismFacts};
use tontine_mechanisms::about::{Between, Death, Mechanism, RowKind, Twin};
use tontine_mechanisms::registry;

use crate::prelude::*;

/// Returns an experiment's facts with the rows of the registry, in its order, as variants, and with
/// the system calls of the rows that the card does not name.
pub(crate) fn rows_of(card: Facts, kind: RowKind) -> Facts {
    let rows = || registry::rows(kind);
    let variants: Vec<_> =
        rows().map(|(mechanism, row)| Variant::new(mechanism.name, row.says)).collect();
    let named = rows().filter(|(_, row)| !row.calls.is_empty());
    let named: Vec<_> = named.map(|(mechanism, row)| (mechanism.name, row.calls)).collect();
    let calls = [card.explanation.calls, &named].concat().leak();
    let explanation = Box::leak(Box::new(Explanation { calls, ..*card.explanation }));
    Facts { explanation, variants: variants.leak(), ..card }
}

/// Omits the cells of a row that only a full run measures.
pub(crate) fn in_brief(
    mut cells: Vec<Params>,
    name: &str,
    kind: RowKind,
    size: Size,
) -> Vec<Params> {
    let row = registry::find(name).and_then(|mechanism| mechanism.row(kind));
    if size != Size::Full && row.is_some_and(|row| row.brief) {
        cells.truncate(1);
    }
    cells
}

/// Returns `true` if both ends of a mechanism spin.
pub(crate) fn spins(name: &str) -> bool {
    registry::find(name).is_some_and(|mechanism| mechanism.idle == Idling::Spins)
}

/// Returns `true` if both ends of a mechanism poll for a moment before they sleep.
pub(crate) fn spins_then_sleeps(name: &str) -> bool {
    registry::find(name).is_some_and(|mechanism| mechanism.idle == Idling::SpinsThenSleeps)
}

pub(crate) fn facts() -> Vec<MechanismFacts> {
    registry::ALL.iter().map(of_one).collect()
}

fn of_one(mechanism: &Mechanism) -> MechanismFacts {
    MechanismFacts {
        name: mechanism.name.into(),
        receiver: mechanism.idle,
        between_threads: mechanism.between == Between::Threads,
        kill: match mechanism.death {
            Death::TakesBoth => KillFacts::TakesBoth,
            Death::LeavesOne { row, .. } => KillFacts::Row { row: row.into() },
            Death::As { other, why } => KillFacts::StandsFor { row: other.into(), why: why.into() },
        },
        sleeping: match mechanism.twin {
            Some(Twin::Sleeping(twin)) => Some(twin.into()),
            _ => None,
        },
        between_processes: match mechanism.twin {
            Some(Twin::BetweenProcesses(twin)) => Some(twin.into()),
            _ => None,
        },
    }
}

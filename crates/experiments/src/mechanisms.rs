//! Access of experiments to the registry of mechanisms: [`variants`], the system calls of the
//! mechanisms that an experiment's own text does not name ([`explained`]), and the facts that a run
//! records ([`facts`]).

use tontine_bench::about::{Explanation, Idling, KillFacts, MechanismFacts};
use tontine_bench::size::Size;
use tontine_bench::suite::Variant;
use tontine_bench::task::Params;
use tontine_mechanisms::about::{Asked, Between, Death, Idle, Mechanism, Twin};
use tontine_mechanisms::registry;

/// Returns the rows of an experiment, in the order of the registry.
pub(crate) fn variants(asked: Asked) -> Vec<Variant> {
    let rows = registry::rows(asked);
    rows.map(|(mechanism, row)| Variant { name: mechanism.name, summary: row.says }).collect()
}

/// Returns an experiment's description with the system calls of all its mechanisms.
pub(crate) fn explained(own: Explanation, asked: Asked) -> Explanation {
    let mut calls = own.calls.to_vec();
    let named = registry::rows(asked).filter(|(_, row)| !row.calls.is_empty());
    calls.extend(named.map(|(mechanism, row)| (mechanism.name, row.calls)));
    Explanation { calls: calls.leak(), ..own }
}

/// Omits the cells of a row that only a full run measures.
pub(crate) fn in_brief(
    mut cells: Vec<Params>,
    name: &str,
    asked: Asked,
    size: Size,
) -> Vec<Params> {
    let row = registry::find(name).and_then(|mechanism| mechanism.row(asked));
    if size != Size::Full && row.is_some_and(|row| row.brief) {
        cells.truncate(1);
    }
    cells
}

/// Returns `true` if both ends of a mechanism spin.
pub(crate) fn spins(name: &str) -> bool {
    registry::find(name).is_some_and(|mechanism| mechanism.idle == Idle::Spins)
}

/// Returns `true` if both ends of a mechanism poll for a moment before they sleep.
pub(crate) fn spins_then_sleeps(name: &str) -> bool {
    registry::find(name).is_some_and(|mechanism| mechanism.idle == Idle::SpinsThenSleeps)
}

/// Returns the facts about all mechanisms, as they appear in results.json.
pub(crate) fn facts() -> Vec<MechanismFacts> {
    registry::ALL.iter().map(of_one).collect()
}

fn of_one(mechanism: &Mechanism) -> MechanismFacts {
    MechanismFacts {
        name: mechanism.name.into(),
        receiver: match mechanism.idle {
            Idle::Spins => Idling::Spins,
            Idle::SpinsThenSleeps => Idling::SpinsThenSleeps,
            Idle::Sleeps => Idling::Sleeps,
            Idle::Mediated => Idling::Mediated,
        },
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

//! What experiments take from the registry of mechanisms: [`variants`], and the system calls of
//! those that an experiment's own text does not name ([`explained`]).

use tontine_bench::about::Explanation;
use tontine_bench::suite::Variant;
use tontine_mechanisms::about::{Asked, Idle};
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

/// Returns `true` if both ends of a mechanism spin.
pub(crate) fn spins(name: &str) -> bool {
    registry::find(name).is_some_and(|mechanism| mechanism.idle == Idle::Spins)
}

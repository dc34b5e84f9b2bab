//! The latency ladder: [`rungs`], one per measured mechanism, with the effect of a kill.
//!
//! The first rung is one load, the cost of a memory access. The others are the mechanisms of
//! [`mechanisms`], fastest first. Neighbour: `html::ladder` draws them.

use tontine_bench::about::Idling;
use tontine_bench::schema::{Cell, Results, Status};

use super::Cells;
use super::survivors::{Fate, mechanisms, never};

/// Maximum number of rungs if some of them are between threads of one process.
const MAX_RUNGS: usize = 18;

/// The effect of a kill of one end on the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillEffect {
    /// The other end was always notified, and no message was torn or lost.
    Survives,
    /// The other end was always notified, but messages were lost.
    MessagesLost,
    /// The other end received a torn message.
    MessagesTorn,
    /// The other end was not notified and waited indefinitely.
    Hangs,
    /// The run killed neither end.
    NotKilled,
    /// The rung is not a mechanism and has no other end.
    NoOtherEnd,
}

impl KillEffect {
    /// Returns the effect in one or two words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Survives => "survives",
            Self::MessagesLost => "messages lost",
            Self::MessagesTorn => "messages torn",
            Self::Hangs => "hangs",
            Self::NotKilled => "not tested",
            Self::NoOtherEnd => "for scale",
        }
    }

    fn of(fate: &Fate<'_>) -> Self {
        match fate {
            Fate::Killed { .. } if fate.keeps_all() => Self::Survives,
            Fate::Killed { .. } if fate.notifies() => Self::MessagesLost,
            Fate::Killed { wedged, .. } if never(wedged) => Self::MessagesTorn,
            Fate::Killed { .. } => Self::Hangs,
            Fate::OneProcess | Fate::NotMeasured(_) | Fate::As(..) => Self::NotKilled,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Rung<'a> {
    pub cell: &'a Cell,
    /// The way in which the receiver waits, in a few words; empty if the run does not record it.
    pub waiting: &'static str,
    pub effect: KillEffect,
    pub because: String,
}

/// Returns the rungs, lowest latency first; none if no mechanism was measured.
pub fn rungs(results: &Results) -> Vec<Rung<'_>> {
    let mut rungs: Vec<(Rung<'_>, bool)> = mechanisms(results)
        .into_iter()
        .filter_map(|row| {
            let cell = row.one_way?;
            let receiver = results.mechanism(row.name).map(|mechanism| mechanism.receiver);
            let waiting = match receiver {
                Some(Idling::Spins) => "spins",
                Some(Idling::SpinsThenSleeps) => "spins, then sleeps",
                Some(Idling::Sleeps) => "sleeps",
                Some(Idling::Mediated) => "library or network",
                None => "",
            };
            let between_threads = matches!(row.fate, Fate::OneProcess);
            let (effect, (_, because)) = (KillEffect::of(&row.fate), row.fate.words());
            Some((Rung { cell, waiting, effect, because }, between_threads))
        })
        .collect();
    // Most mechanisms between threads have a counterpart between processes.
    if rungs.len() > MAX_RUNGS && rungs.iter().any(|(_, between_threads)| !between_threads) {
        rungs.retain(|(_, between_threads)| !between_threads);
    }
    let load = Cells::of(results, "liveness-check", "check").named("load");
    let load = load.filter(|_| !rungs.is_empty()).map(|cell| Rung {
        cell,
        waiting: "",
        effect: KillEffect::NoOtherEnd,
        because: "one load, for scale".into(),
    });
    load.into_iter().chain(rungs.into_iter().map(|(rung, _)| rung)).collect()
}

/// Returns the mechanisms without a latency, with the reasons.
pub fn missing_rungs(results: &Results) -> Vec<(&str, &str)> {
    let mut missing: Vec<(&str, &str)> = Vec::new();
    let trips = results.cells.iter().filter(|cell| cell.experiment == "round-trip");
    for cell in trips.clone().filter(|cell| cell.status != Status::Ok) {
        let name = cell.variant.as_str();
        let measured = trips.clone().any(|c| c.variant == name && c.status == Status::Ok);
        if !measured && !missing.iter().any(|(known, _)| *known == name) {
            missing.push((name, cell.why.as_deref().unwrap_or_default()));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn ladder_starts_with_load_and_ascends() {
        let results = fixture::run();
        let rungs = rungs(&results);
        assert_eq!(rungs[0].cell.variant, "load");
        assert_eq!(rungs[0].effect, KillEffect::NoOtherEnd);
        let figures: Vec<f64> = rungs[1..].iter().filter_map(|rung| rung.cell.estimate).collect();
        assert!(figures.is_sorted() && figures.len() == rungs.len() - 1, "{figures:?}");
        let effect = |name: &str| {
            rungs.iter().find(|rung| rung.cell.variant == name).map(|rung| rung.effect)
        };
        assert_eq!(effect("futex"), Some(KillEffect::Hangs));
        assert_eq!(effect("pipe"), Some(KillEffect::MessagesLost));
        assert_eq!(effect("mailbox-sleep"), Some(KillEffect::Survives));
        assert_eq!(effect("flag-one-line"), Some(KillEffect::NotKilled));
        let params = &rungs[1].cell.params;
        assert!(rungs[1..].iter().all(|rung| rung.cell.params == *params));
    }

    #[test]
    fn long_ladder_omits_mechanisms_between_threads() {
        let mut results = fixture::run();
        let has = |results: &Results| {
            rungs(results).iter().any(|rung| rung.cell.variant == "spinlock-tas")
        };
        assert!(has(&results));
        let model = results.cells[0].clone();
        for number in 0..MAX_RUNGS {
            results.cells.push(Cell { variant: format!("m{number}"), ..model.clone() });
        }
        assert!(!has(&results));
        assert_eq!(missing_rungs(&results)[0], ("container-tcp", "no Docker engine answers"));
    }

    #[test]
    fn run_without_round_trips_has_no_ladder() {
        let mut results = fixture::run();
        results.cells.retain(|cell| cell.experiment == "liveness-check");
        assert!(rungs(&results).is_empty());
    }
}

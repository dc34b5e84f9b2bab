//! The effect of a kill on the users of a mechanism: [`mechanisms`], one row per mechanism, with
//! its one-way latency.
//!
//! The rows are computed from the cells of `round-trip` and `survival`; a mechanism without kills
//! is marked as such.

use tontine_bench::about::KillFacts;
use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::schema::{Cell, Results, Status};

use super::Cells;

/// A mechanism, its price, and the effect of a kill.
#[derive(Debug, Clone)]
pub struct Rated<'a> {
    /// Name in `round-trip`, or in `survival` if it makes no round trips.
    pub name: &'a str,
    /// The one-way latency; `None` if it was not measured.
    pub one_way: Option<&'a Cell>,
    pub fate: Fate<'a>,
}

/// The effect of a kill of one end.
#[derive(Debug, Clone, Copy)]
pub enum Fate<'a> {
    /// Both ends belong to one process, and die together.
    OneProcess,
    /// No process was killed. Contains the reason, if the run states one.
    NotMeasured(Option<&'a str>),
    /// No process was killed. Contains the reason, and the row that shows the expected effect.
    As(&'a str, &'a str),
    /// The kills, and the shares of kills with a bad result.
    Killed {
        kills: usize,
        /// The survivor never noticed.
        wedged: &'a Cell,
        /// A message arrived with contents that were never sent.
        torn: Option<&'a Cell>,
        /// A sent message was lost.
        lost: Option<&'a Cell>,
    },
}

impl Fate<'_> {
    /// Returns `true` if the survivor was always notified and never received a torn message.
    pub fn notifies(&self) -> bool {
        match self {
            Self::Killed { wedged, torn, .. } => never(wedged) && torn.is_none_or(never),
            Self::OneProcess | Self::NotMeasured(_) | Self::As(..) => false,
        }
    }

    /// Returns `true` if the survivor was always notified, no message was torn, and none was lost.
    pub fn keeps_all(&self) -> bool {
        let keeps = matches!(self, Self::Killed { lost: Some(lost), .. } if never(lost));
        self.notifies() && keeps
    }

    /// Returns the answer to "survives?" in a few words, with the evidence.
    pub fn words(&self) -> (&'static str, String) {
        match self {
            Self::OneProcess => ("no", "two threads: a kill ends both".into()),
            Self::NotMeasured(None) => ("not measured", String::new()),
            Self::NotMeasured(Some(why)) => ("not measured", (*why).into()),
            Self::As(why, other) => ("not measured", format!("{why} {other}")),
            Self::Killed { kills, wedged, torn, lost } => {
                let named = [("wedged", Some(*wedged)), ("torn", *torn), ("messages lost", *lost)];
                let shares: Vec<String> = named
                    .into_iter()
                    .filter_map(|(name, cell)| {
                        Some(format!("{name} {}", FormattedFigure::of_cell(cell?)?.in_line()))
                    })
                    .collect();
                let answer = match (self.keeps_all(), self.notifies()) {
                    (true, _) => "yes",
                    (false, true) => "notified, messages lost",
                    (false, false) if never(wedged) => "no: torn",
                    (false, false) => "no: wedges",
                };
                let kills = format::tick("", *kills as f64);
                (answer, format!("{kills} kills: {}", shares.join(", ")))
            }
        }
    }
}

/// Returns every mechanism that made a round trip or was killed, cheapest first.
pub fn mechanisms(results: &Results) -> Vec<Rated<'_>> {
    let trips = Cells::of(results, "round-trip", "one_way").commonest_params();
    let mut rows: Vec<Rated<'_>> = trips
        .0
        .iter()
        .map(|cell| {
            let fate = fate(results, &cell.variant);
            Rated { name: &cell.variant, one_way: Some(*cell), fate }
        })
        .collect();
    for cell in &Cells::of(results, "survival", "wedged").0 {
        let name = cell.variant.as_str();
        if !rows.iter().any(|row| row.name == name || killed_as(results, row.name) == name) {
            rows.push(Rated { name, one_way: None, fate: fate(results, name) });
        }
    }
    let cost = |row: &Rated<'_>| row.one_way.and_then(|c| c.estimate).unwrap_or(f64::MAX);
    rows.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    rows
}

/// Returns `true` if both ends of the mechanism are threads of one process.
pub(super) fn is_between_threads(results: &Results, variant: &str) -> bool {
    results.mechanism(variant).is_some_and(|mechanism| mechanism.between_threads)
}

/// Returns the effect of a kill on the named mechanism.
pub(super) fn fate<'a>(results: &'a Results, variant: &str) -> Fate<'a> {
    if is_between_threads(results, variant) {
        return Fate::OneProcess;
    }
    let wedged = Cells::of(results, "survival", "wedged");
    let name = killed_as(results, variant);
    let cell = |metric: &str| Cells::of(results, "survival", metric).named(name);
    match (wedged.named(name), results.mechanism(variant).map(|mechanism| &mechanism.kill)) {
        (Some(wedged), _) => Fate::Killed {
            kills: wedged.invocations.iter().map(|one| one.summary.count).sum(),
            wedged,
            torn: cell("torn"),
            lost: cell("lost"),
        },
        (None, Some(KillFacts::StandsFor { row, why })) if wedged.named(row).is_some() => {
            Fate::As(why, row)
        }
        (None, _) => Fate::NotMeasured(results.cells.iter().find_map(|cell| {
            let of_it = cell.experiment == "survival" && cell.variant == name;
            (of_it && cell.status != Status::Ok).then_some(cell.why.as_deref()).flatten()
        })),
    }
}

/// Returns the name of the mechanism's row in `survival`.
fn killed_as<'a>(results: &'a Results, variant: &'a str) -> &'a str {
    match results.mechanism(variant).map(|mechanism| &mechanism.kill) {
        Some(KillFacts::Row { row }) => row,
        _ => variant,
    }
}

/// Returns `true` if the event happened in no invocation.
pub(super) fn never(cell: &Cell) -> bool {
    cell.invocations.iter().all(|one| one.summary.max == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn answer(results: &Results, name: &str) -> String {
        mechanisms(results).iter().find(|row| row.name == name).unwrap().fate.words().0.into()
    }

    #[test]
    fn mechanism_is_judged_by_own_kills() {
        let results = fixture::run();
        assert_eq!(answer(&results, "futex"), "no: wedges");
        assert_eq!(answer(&results, "pipe"), "notified, messages lost");
        assert_eq!(answer(&results, "mailbox-sleep"), "yes");
        assert_eq!(answer(&results, "spinlock-tas"), "no");
        assert_eq!(answer(&results, "flag-one-line"), "not measured");
    }

    #[test]
    fn unkilled_mechanism_gives_reason_and_existing_row() {
        let mut results = fixture::run();
        let mut boxed = results.cells[0].clone();
        boxed.variant = "container-tcp".into();
        results.cells.push(boxed);
        let because = |results: &Results, name: &str| {
            let all = mechanisms(results);
            all.iter().find(|row| row.name == name).unwrap().fate.words().1
        };
        assert!(
            because(&results, "flag-one-line").ends_with("spins on, as in spinlock-tas-process")
        );
        assert!(because(&results, "container-tcp").ends_with("that of tcp-loopback"));
        results.cells.retain(|cell| cell.experiment != "survival" || cell.variant == "pipe");
        assert_eq!(because(&results, "container-tcp"), "");
    }

    #[test]
    fn share_of_zero_or_one_shows_number_of_kills() {
        let results = fixture::run();
        let all = mechanisms(&results);
        let words = |name: &str| all.iter().find(|row| row.name == name).unwrap().fate.words().1;
        let futex = words("futex");
        assert!(
            futex.starts_with("500 kills: wedged 500 of 500 (at least 99.26 %), torn 0 of 500 ("),
            "{futex}"
        );
        assert!(words("pipe").contains("messages lost 9"), "{}", words("pipe"));
    }

    #[test]
    fn single_torn_message_makes_answer_no() {
        let mut results = fixture::run();
        let torn = |cell: &&mut Cell| cell.metric == "torn" && cell.variant == "mailbox";
        let cell = results.cells.iter_mut().find(torn).unwrap();
        cell.invocations[3].summary.max = 1.0;
        assert_eq!(answer(&results, "mailbox-sleep"), "no: torn");
    }

    #[test]
    fn skipped_kill_states_reason() {
        let mut results = fixture::run();
        results.cells.retain(|c| c.experiment != "survival" || c.variant != "tcp-loopback");
        let mut skipped = fixture::small().cells[2].clone();
        (skipped.experiment, skipped.variant) = ("survival".into(), "tcp-loopback".into());
        skipped.why = Some("no loopback".into());
        results.cells.push(skipped);
        let fate = mechanisms(&results).into_iter().find(|row| row.name == "tcp-loopback");
        assert_eq!(fate.unwrap().fate.words(), ("not measured", "no loopback".into()));
    }
}

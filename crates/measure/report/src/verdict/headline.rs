//! The figures that a reader sees first: [`headlines`], at most six, each with one plain phrase.

use tontine_bench::about::Idling;
use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::schema::{Cell, Results};

use super::compared::CellQuotient;
use super::sentence::{Sentence, SentenceSlot};
use super::survivors::is_between_threads;
use super::{Cells, SleepingMechanisms, decide};

/// A figure with its meaning.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// The meaning in at most 24 characters, for a terminal.
    pub label: &'static str,
    /// The figure with its interval.
    pub figure: FormattedFigure,
    /// Both ends of the interval, for a bar.
    pub extent: Extent,
    /// A figure to compare with, for a terminal; empty if there is none.
    pub reference: String,
    /// The meaning, as a phrase that follows the figure.
    pub phrase: Sentence,
}

/// The ends of an interval, and the quantity that they measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extent {
    /// A time in ns.
    Time(f64, f64),
    /// A share from 0 to 1.
    Share(f64, f64),
    Ratio(f64, f64),
}

impl Headline {
    fn time(
        label: &'static str,
        cell: &Cell,
        reference: Option<&Cell>,
        phrase: Sentence,
    ) -> Option<Self> {
        let reference = reference.and_then(|other| {
            Some(format!("{} {}", other.variant, FormattedFigure::of_cell(other)?.value))
        });
        Some(Self {
            label,
            figure: FormattedFigure::of_cell(cell)?,
            extent: Extent::Time(cell.low?, cell.high?),
            reference: reference.unwrap_or_default(),
            phrase,
        })
    }

    fn ratio(
        label: &'static str,
        times: CellQuotient,
        reference: String,
        phrase: Sentence,
    ) -> Self {
        let (low, high) = times.ends();
        Self { label, figure: times.shown(), extent: Extent::Ratio(low, high), reference, phrase }
    }
}

/// Returns the figures that the run has, in a fixed order.
pub fn headlines(results: &Results) -> Vec<Headline> {
    let all = [spinning, sleeping, check, hung, process, false_sharing];
    all.into_iter().filter_map(|one| one(results)).collect()
}

fn say(words: &str, parts: &[&dyn SentenceSlot]) -> Sentence {
    Sentence::default().say(words, parts)
}

fn spinning(results: &Results) -> Option<Headline> {
    let trips = Cells::of(results, "round-trip", "one_way").commonest_params();
    let spins = |cell: &&&Cell| {
        let mechanism = results.mechanism(&cell.variant);
        mechanism.is_some_and(|one| one.receiver == Idling::Spins && !one.between_threads)
    };
    let cheapest = || Cells(trips.0.iter().filter(spins).copied().collect()).cheapest_of_all();
    let cell = trips.named("mailbox-spin").or_else(cheapest)?;
    let phrase = say("for one message between two processes that both spin ({})", &[cell]);
    // Each end of a mailbox writes only its own memory, so its floor has a line for each.
    let floors = ["flag-two-lines", "flag-one-line"].into_iter();
    let mut floors = floors.filter(|floor| *floor != cell.variant);
    let floor = floors.find_map(|floor| trips.named(floor));
    Headline::time("message, both spin", cell, floor, phrase)
}

fn sleeping(results: &Results) -> Option<Headline> {
    let trips = Cells::of(results, "round-trip", "one_way").commonest_params();
    let best = || SleepingMechanisms::of(&trips, results).map(|all| all.best);
    let cell = trips.named("mailbox-sleep").or_else(best)?;
    let between = if is_between_threads(results, &cell.variant) { "threads" } else { "processes" };
    let words = format!("for one message between {between} if the receiver sleeps ({{}})");
    let phrase = say(&words, &[cell]);
    Headline::time("message, receiver sleeps", cell, None, phrase)
}

fn check(results: &Results) -> Option<Headline> {
    let checks = Cells::of(results, "liveness-check", "check").commonest_params();
    let cell = ["life-word", "futex-word"].iter().find_map(|name| checks.named(name))?;
    let phrase = say("to check whether another process lives ({})", &[cell]);
    let kill = checks.named("kill-0").and_then(FormattedFigure::of_cell);
    let phrase = match kill {
        Some(kill) => phrase.say(&format!("; {{}} takes {}", kill.value), &[&"kill-0"]),
        None => phrase,
    };
    Headline::time("liveness check", cell, checks.named("kill-0"), phrase)
}

/// Returns the kills after which the other end of a mailbox hung, next to those of the worst peer.
/// Of equally bad peers, a library comes first, because it is the closest alternative.
fn hung(results: &Results) -> Option<Headline> {
    let wedged = Cells::of(results, "survival", "wedged");
    let mailbox = wedged.named("mailbox")?;
    let peers = wedged.0.iter().copied().filter(|cell| cell.variant != mailbox.variant);
    let is_library = |cell: &Cell| {
        results.mechanism(&cell.variant).is_some_and(|one| one.receiver == Idling::Mediated)
            || ["cloudtoid", "iceoryx2"].contains(&cell.variant.as_str())
    };
    let share = |cell: &Cell| cell.estimate.unwrap_or_default();
    let worst = peers.reduce(|worst, cell| {
        let is_worse = share(cell) > share(worst)
            || share(cell) == share(worst) && is_library(cell) && !is_library(worst);
        if is_worse { cell } else { worst }
    });
    let phrase = say("kills of one end made the other end of a mailbox hang", &[]);
    let phrase = match worst.and_then(|cell| Some((cell, FormattedFigure::of_cell(cell)?))) {
        Some((cell, shown)) => phrase.say(&format!("; with {{}}, {}", shown.value), &[cell]),
        None => phrase,
    };
    let reference = worst.and_then(|cell| {
        Some(format!("{} {}", cell.variant, format::tick("share", cell.estimate?)))
    });
    let (low, high) = format::ends(mailbox)?;
    Some(Headline {
        label: "kills that hang the peer",
        figure: FormattedFigure::of_cell(mailbox)?,
        extent: Extent::Share(low, high),
        reference: reference.unwrap_or_default(),
        phrase,
    })
}

fn process(results: &Results) -> Option<Headline> {
    let (thread, process) = decide::made(results)?;
    let times = CellQuotient::of(process, thread, results)?;
    let value = |cell| FormattedFigure::of_cell(cell).map(|shown| shown.value);
    let reference = value(process).zip(value(thread));
    let reference = reference.map_or_else(String::new, |(one, other)| format!("{one} : {other}"));
    let phrase = say("as long to create and end a process ({}) as a thread", &[process]);
    Some(Headline::ratio("process : thread, create", times, reference, phrase))
}

fn false_sharing(results: &Results) -> Option<Headline> {
    let (near, far) = decide::distances(results)?;
    let times = CellQuotient::of(near, far, results)?;
    let [near, far] = [near, far].map(|cell| &cell.params["distance"]);
    let words = "as long if two threads count";
    let words = format!("{words} {near} bytes apart, in one cache line, instead of {far}");
    let phrase = say(&words, &[]);
    Some(Headline::ratio("false sharing", times, String::new(), phrase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn phrases(results: &Results) -> Vec<String> {
        let all = headlines(results).into_iter();
        all.map(|one| format!("{} {}", one.figure.value, one.phrase.plain())).collect()
    }

    #[test]
    fn headlines_use_the_figures_of_the_run() {
        let mut results = fixture::run();
        let all = phrases(&results);
        let has = |all: &[String], words: &str| all.iter().any(|phrase| phrase.contains(words));
        assert!(has(&all, "two processes that both spin (mailbox-spin)"), "{all:?}");
        assert!(has(&all, "if the receiver sleeps (mailbox-sleep)"), "{all:?}");
        assert!(has(&all, "lives (futex-word); kill-0 takes 95.97 ns"), "{all:?}");
        assert!(has(&all, "0 of 500 kills of one end"), "{all:?}");
        assert!(headlines(&results).iter().all(|one| !one.figure.interval.is_empty()));
        results.cells.retain(|cell| cell.experiment == "survival" && cell.variant != "mailbox");
        assert!(headlines(&results).is_empty());
    }
}

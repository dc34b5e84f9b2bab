//! The mechanisms whose receiver sleeps, and the fastest of them: [`SleepingMechanisms`].

use tontine_bench::about::Idling;
use tontine_bench::format::FormattedFigure;
use tontine_bench::schema::{Cell, Results};

use super::compared::{CellQuotient, has_two_modes};
use super::sentence::Sentence;
use super::{Cells, survivors};

/// The mechanisms whose receiver sleeps and whose figure is reliable: mechanisms between processes
/// if any exist, except mechanisms whose figure has two modes.
pub(super) struct SleepingMechanisms<'a> {
    pub(super) best: &'a Cell,
    /// Other mechanisms whose intervals overlap the best one's.
    level: Vec<&'a Cell>,
    /// The mechanisms that are not considered, because their figure has two modes.
    two_modes: Vec<&'a Cell>,
}

impl<'a> SleepingMechanisms<'a> {
    pub(super) fn of(trips: &Cells<'a>, results: &Results) -> Option<Self> {
        let mut two_modes = Vec::new();
        for between_threads in [false, true] {
            let (doubtful, steady): (Vec<&Cell>, Vec<&Cell>) =
                sleepers(trips, results, between_threads).partition(|cell| has_two_modes(cell));
            two_modes.extend(doubtful);
            let all = Cells(steady);
            let Some(best) = all.cheapest_of_all() else { continue };
            let level = all.0.into_iter().filter(|cell| {
                cell.variant != best.variant && cell.low.zip(best.high).is_some_and(|(l, h)| l <= h)
            });
            return Some(Self { best, level: level.collect(), two_modes });
        }
        None
    }

    pub(super) fn fastest(&self, trips: &Cells, results: &Results) -> Option<Sentence> {
        let between_threads = survivors::is_between_threads(results, &self.best.variant);
        let between = if between_threads { "threads" } else { "processes" };
        let among = format!("Among the mechanisms between {between} that let the receiver sleep, ");
        let mut sentence = Sentence::default().words(&among);
        sentence = if self.level.is_empty() {
            let words = "{} is the fastest with a steady figure: {} one way";
            sentence.say(words, &[self.best, &FormattedFigure::of_cell(self.best)?])
        } else {
            let mut all = self.level.clone();
            all.push(self.best);
            all.sort_by(|a, b| f64::total_cmp(&figure(a), &figure(b)));
            let (low, high) = (all.first().map(|c| figure(c))?, all.last().map(|c| figure(c))?);
            let range = FormattedFigure::new(&self.best.unit, high, Some((low, high))).interval;
            let range = FormattedFigure { value: range, interval: String::new() };
            let words = "no single one is the fastest: about {} one way for any of ";
            let sentence = sentence.say(words, &[&range]);
            sentence.names(all.iter().map(|cell| cell.variant.as_str()))
        };
        let floor = trips
            .named("flag-one-line")
            .and_then(|flag| CellQuotient::of(self.best, flag, results));
        if let Some(floor) = floor {
            sentence = match self.level.is_empty() {
                true => sentence.words(", "),
                false => sentence.say("; {} takes ", &[self.best]),
            };
            sentence = sentence.say("{} as long as the floor", &[&floor.shown()]);
        }
        Some(without_two_modes(sentence, &self.two_modes).words("."))
    }
}

/// Returns the cells of the mechanisms whose receiver sleeps.
fn sleepers<'a>(
    trips: &Cells<'a>,
    results: &Results,
    between_threads: bool,
) -> impl Iterator<Item = &'a Cell> {
    trips.0.iter().copied().filter(move |cell| {
        results.mechanism(&cell.variant).is_some_and(|mechanism| {
            mechanism.receiver == Idling::Sleeps && mechanism.between_threads == between_threads
        })
    })
}

/// Names the mechanisms whose receiver sleeps if the figures of all of them have two modes.
pub(super) fn none_steady(trips: &Cells, results: &Results) -> Option<Sentence> {
    let all: Vec<&Cell> =
        [false, true].into_iter().flat_map(|threads| sleepers(trips, results, threads)).collect();
    let sentence =
        Sentence::default().words("No mechanism that lets the receiver sleep has a steady figure");
    (!all.is_empty()).then(|| without_two_modes(sentence, &all).words("."))
}

/// Appends the mechanisms that are not considered because their figures have two modes, with these
/// figures, the lowest first.
fn without_two_modes(sentence: Sentence, cells: &[&Cell]) -> Sentence {
    let mut cells = cells.to_vec();
    cells.sort_by(|a, b| f64::total_cmp(&figure(a), &figure(b)));
    let shown = cells.iter().filter_map(|cell| Some((cell, FormattedFigure::of_cell(cell)?)));
    shown.enumerate().fold(sentence, |sentence, (at, (cell, shown))| {
        let before = if at == 0 { "; not considered, because of two modes: " } else { ", " };
        sentence.words(before).say("{} {}", &[*cell, &shown])
    })
}

/// Returns the estimate, as a sort key.
fn figure(cell: &Cell) -> f64 {
    cell.estimate.unwrap_or(f64::MAX)
}

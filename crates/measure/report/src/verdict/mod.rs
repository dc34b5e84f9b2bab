//! The verdict of a run in words: [`verdict`], computed from the run's own figures only.
//!
//! Each [`Sentence`] carries its figures with their intervals; it omits what was not measured and
//! guesses nothing. The run records which mechanisms block and which checks need no system call;
//! its figures determine which of them is fastest. The verdict has more parts: [`decisions`] are
//! questions with the figures behind each answer, and [`mechanisms`] shows the effect of a kill on
//! each mechanism; [`rungs`] and [`headlines`] select the figures that a page shows first.
//! Neighbours: [`super::markdown`] and [`super::html`] print them.

mod answer;
mod compared;
mod decide;
mod headline;
mod ladder;
mod sentence;
mod sleeping;
mod survivors;

use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::schema::{Cell, Results, Status};
use tontine_bench::size::Size;
use tontine_bench::task::Params;

pub use answer::CheckVerdict;
use answer::Score;
use compared::CellQuotient;
pub use decide::{Evidence, VerdictAnswer, decisions};
pub use headline::{Extent, Headline, headlines};
pub use ladder::{KillEffect, Rung, missing_rungs, rungs};
use sentence::SentenceSlot;
pub use sentence::{Sentence, SentencePart};
use sleeping::{SleepingMechanisms, none_steady};
pub use survivors::{Fate, Rated, mechanisms};

/// Returns one line about the run: start, size, number of cells, duration, order seed.
pub fn run_line(results: &Results) -> String {
    let size = match results.size {
        Size::Quick => "quick",
        Size::Default => "default",
        Size::Full => "full",
    };
    format!(
        "{}, size {size}, {} cells, {}, order seed {}",
        results.started,
        results.cells.len(),
        duration(results.seconds),
        results.order_seed
    )
}

/// Returns the statements that the run supports, the most basic first.
pub fn verdict(results: &Results) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    if results.mechanisms.is_empty() && !results.cells.is_empty() {
        sentences.push(Sentence::default().words(
            "This file is from an older build, which did not record the properties of its \
             mechanisms: sentences that need them are left out.",
        ));
    }
    let trips = Cells::of(results, "round-trip", "one_way").commonest_params();
    sentences.extend(floor(&trips));
    let sleeping = SleepingMechanisms::of(&trips, results);
    sentences.extend(match &sleeping {
        Some(all) => all.fastest(&trips, results),
        None => none_steady(&trips, results),
    });
    sentences.extend(sleeping.as_ref().and_then(|all| zmq_over(all.best, &trips, results)));
    let checks = Cells::of(results, "liveness-check", "check").commonest_params();
    sentences.extend(cheapest_check(&checks, results));
    sentences.extend(outlived(&Cells::of(results, "signal-delivery", "parent_after")));
    sentences.extend(survivors(&Cells::of(results, "survival", "wedged"), results));
    sentences
}

fn floor(trips: &Cells) -> Option<Sentence> {
    let flag = trips.named("flag-one-line")?;
    let words = "One word in shared memory, polled by a spinning receiver, is the floor: {} one \
                 way{}.";
    Some(Sentence::default().say(words, &[&FormattedFigure::of_cell(flag)?, &flag.params]))
}

fn zmq_over(blocking: &Cell, trips: &Cells, results: &Results) -> Option<Sentence> {
    let zmq = trips.named("zmq-ipc").or_else(|| trips.named("zmq-inproc"))?;
    let between =
        if survivors::is_between_threads(results, &zmq.variant) { ", between threads" } else { "" };
    let times = CellQuotient::of(zmq, blocking, results)?;
    let words =
        format!("ZeroMQ ({{}}{between}) takes {{}}: {{}} as long as {{}}, {}.", times.how());
    let shown = FormattedFigure::of_cell(zmq)?;
    Some(Sentence::default().say(&words, &[zmq, &shown, &times.shown(), blocking]))
}

fn cheapest_check(checks: &Cells, results: &Results) -> Option<Sentence> {
    // A check that was never tried has a price, but no answers.
    let tried = |variant: &&str| Score::of(results, variant).tried() > 0;
    let tried: Vec<&str> = without_calls(results).filter(tried).collect();
    let cell = checks.cheapest(&tried)?;
    let right = cheapest_without_error(checks, results);
    // If no difference is resolved, prefer the check that never errs.
    let level = right.filter(|right| right.low.zip(cell.high).is_some_and(|(l, h)| l <= h));
    let cell = level.unwrap_or(cell);
    let words = "The cheapest liveness check without a system call is {}: {} per check";
    let mut sentence = Sentence::default().say(words, &[cell, &FormattedFigure::of_cell(cell)?]);
    sentence = overlapping(sentence, cell, checks, &tried);
    let score = Score::of(results, &cell.variant);
    let wrong = FormattedFigure {
        value: format!("{} of {}", score.wrong.len(), score.tried()),
        interval: String::new(),
    };
    sentence = sentence.say("; it was wrong after {} events tried", &[&wrong]);
    sentence = if score.wrong.is_empty() {
        sentence.words(".")
    } else {
        sentence.words(&format!(" ({}).", score.wrong.join(", ")))
    };
    Some(match right {
        Some(right) if right.variant != cell.variant => {
            let words = " The cheapest that was never wrong is {}: {}.";
            sentence.say(words, &[right, &FormattedFigure::of_cell(right)?])
        }
        _ => sentence,
    })
}

/// Returns the liveness checks that read memory and never enter the kernel.
fn without_calls(results: &Results) -> impl Iterator<Item = &str> {
    let about = results.about("liveness-check");
    about.into_iter().flat_map(|about| about.without_calls.iter().map(String::as_str))
}

/// Returns the cheapest check that makes no system call, was tried and was always right.
fn cheapest_without_error<'a>(checks: &Cells<'a>, results: &Results) -> Option<&'a Cell> {
    let faultless = without_calls(results).filter(|variant| {
        let score = Score::of(results, variant);
        score.tried() > 0 && score.wrong.is_empty()
    });
    checks.cheapest(&faultless.collect::<Vec<_>>())
}

/// Returns one sentence for the published protocol and one for the protocol that needs a single
/// clock.
fn outlived(cells: &Cells) -> Vec<Sentence> {
    ["as-published", "one-clock"]
        .iter()
        .filter_map(|variant| {
            let cell = cells.named(variant)?;
            let words = "Signals whose child still ran when {} had returned ({}){}: {}";
            let shown = FormattedFigure::of_rest(cell)?;
            let parts: [&dyn SentenceSlot; 4] = [&"kill", cell, &cell.params, &shown];
            let sentence = Sentence::default().say(words, &parts);
            Some(within_the_band(sentence, cell).words("."))
        })
        .collect()
}

/// Appends the share for each end of the band that contains the clocks' offset. Both are computed
/// from a note of the last invocation, which states the opposite shares.
fn within_the_band(sentence: Sentence, cell: &Cell) -> Sentence {
    let ends = cell.notes.iter().find_map(|note| {
        let (_, notified) =
            note.split_once("offset band: ")?.1.split_once("parent_after would be ")?;
        let (lower, upper) = notified.split_once(" at the lower end and ")?;
        let end = |text: &str| Some(1.0 - text.split(' ').next()?.parse::<f64>().ok()?);
        Some((end(lower)?, end(upper)?))
    });
    match ends {
        Some((lower, upper)) => sentence.words(&format!(
            "; with the clocks' offset at either end of its band, {} and {} in the last invocation",
            format::tick("share", lower),
            format::tick("share", upper)
        )),
        None => sentence,
    }
}

/// Names the mechanisms that always notify the survivor, the fastest of them, and the mechanisms
/// that leave the survivor wedged.
fn survivors(wedged: &Cells, results: &Results) -> Option<Sentence> {
    let never = |cell: &&Cell| cell.invocations.iter().all(|one| one.summary.max == 0.0);
    let (notified, left): (Vec<&Cell>, Vec<&Cell>) = wedged.0.iter().copied().partition(never);
    let notices = Cells::of(results, "survival", "notice");
    let notified_names: Vec<&str> = notified.iter().map(|cell| cell.variant.as_str()).collect();
    let soonest = notices.cheapest(&notified_names);
    let names = |sentence: Sentence, cells: &[&Cell]| {
        sentence.names(cells.iter().map(|cell| cell.variant.as_str()))
    };
    let mut sentence = Sentence::default().words("After random kills of either end ");
    sentence = match (notified.is_empty(), soonest) {
        (true, _) => sentence.words("every mechanism left survivors wedged"),
        (false, soonest) => {
            sentence = names(sentence.words("the survivor was always notified by "), &notified);
            match soonest.and_then(|cell| Some((cell, FormattedFigure::of_cell(cell)?))) {
                Some((cell, shown)) => {
                    let among = if notified.len() > 1 { "soonest by" } else { "by" };
                    sentence.say(&format!(" ({among} {{}}: {{}})"), &[cell, &shown])
                }
                None => sentence,
            }
        }
    };
    match (wedged.0.is_empty(), left.is_empty()) {
        (true, _) => None,
        (false, true) => Some(sentence.words(".")),
        (false, false) => Some(names(sentence.words("; wedged with "), &left).words(".")),
    }
}

/// Appends the rivals whose intervals overlap the winner's.
fn overlapping(sentence: Sentence, winner: &Cell, cells: &Cells, names: &[&str]) -> Sentence {
    let Some(high) = winner.high else {
        return sentence;
    };
    let rivals: Vec<&str> = cells
        .0
        .iter()
        .filter(|cell| cell.variant != winner.variant && names.contains(&cell.variant.as_str()))
        .filter(|cell| cell.low.is_some_and(|low| low <= high))
        .map(|cell| cell.variant.as_str())
        .collect();
    if rivals.is_empty() {
        sentence
    } else {
        sentence.words(&format!(" (no difference resolved from {})", rivals.join(", ")))
    }
}

/// The cells of one experiment and metric that have a figure.
struct Cells<'a>(Vec<&'a Cell>);

impl<'a> Cells<'a> {
    fn of(results: &'a Results, experiment: &str, metric: &str) -> Self {
        let found = results.cells.iter().filter(|cell| {
            cell.status == Status::Ok
                && cell.estimate.is_some_and(f64::is_finite)
                && cell.experiment == experiment
                && cell.metric == metric
        });
        Self(found.collect())
    }

    /// Keeps the cells of the most frequent set of parameters; if several sets are equally
    /// frequent, the cells of the first.
    fn commonest_params(self) -> Self {
        let count = |params: &Params| self.0.iter().filter(|cell| &cell.params == params).count();
        let mut best: Option<(&Params, usize)> = None;
        for cell in &self.0 {
            let cells = count(&cell.params);
            if best.is_none_or(|(_, most)| cells > most) {
                best = Some((&cell.params, cells));
            }
        }
        let params = best.map(|(params, _)| params);
        Self(self.0.iter().copied().filter(|cell| Some(&cell.params) == params).collect())
    }

    fn named(&self, variant: &str) -> Option<&'a Cell> {
        self.0.iter().copied().find(|cell| cell.variant == variant)
    }

    fn cheapest(&self, names: &[&str]) -> Option<&'a Cell> {
        let named = |cell: &&Cell| names.contains(&cell.variant.as_str());
        Self(self.0.iter().copied().filter(named).collect()).cheapest_of_all()
    }

    /// Returns the cheapest cell by the upper ends of the intervals, so that a mechanism that is
    /// fast in one run and slow in the next is not recommended.
    fn cheapest_of_all(&self) -> Option<&'a Cell> {
        let upper = |cell: &Cell| cell.high.or(cell.estimate).unwrap_or(f64::MAX);
        self.0.iter().copied().min_by(|a, b| f64::total_cmp(&upper(a), &upper(b)))
    }
}

fn duration(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.1} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn sentences(results: &Results) -> Vec<String> {
        verdict(results).iter().map(Sentence::plain).collect()
    }

    #[test]
    fn verdict_follows_from_figures() {
        let mut results = fixture::run();
        let all = sentences(&results).join("\n");
        assert!(all.contains("futex is the fastest with a steady figure"), "{all}");
        assert!(all.contains("ZeroMQ (zmq-ipc)") && all.contains("by 10 pairs"), "{all}");
        assert!(all.contains("wrong after 2 of 4 events tried (exec, zombie)"), "{all}");
        for cell in &mut results.cells {
            if cell.variant == "pipe" {
                (cell.estimate, cell.low, cell.high) = (Some(800.0), Some(790.0), Some(820.0));
            }
        }
        let all = sentences(&results).join("\n");
        assert!(all.contains("pipe is the fastest with a steady figure"), "{all}");
        assert!(all.contains("by the ends of both intervals"), "{all}");
    }

    /// Regression: with 23 µs `futex` was the fastest, but its figure had two modes, and the
    /// sentence did not mention it.
    #[test]
    fn mechanism_with_two_modes_is_named_with_its_figure() {
        let mut results = fixture::run();
        for cell in &mut results.cells {
            if cell.experiment == "round-trip" && cell.variant == "futex" {
                cell.notes = vec!["unstable: two modes between invocations: 4 and 6".into()];
            }
        }
        let all = sentences(&results).join("\n");
        assert!(!all.contains("futex is the fastest"), "{all}");
        let futex = results.cells.iter().find(|cell| cell.variant == "futex").expect("futex");
        let shown = FormattedFigure::of_cell(futex).expect("a figure").in_line();
        let said = format!("not considered, because of two modes: futex {shown}");
        assert!(all.contains(&said), "{said}: {all}");
        for cell in &mut results.cells {
            cell.notes = vec!["unstable: two modes between invocations: 4 and 6".into()];
        }
        let all = sentences(&results).join("\n");
        assert!(all.contains("sleep has a steady figure; not considered, because of"), "{all}");
    }

    /// Regression: `load`, the baseline of the other checks, was named as the cheapest check.
    #[test]
    fn untried_check_is_not_named_cheapest() {
        let mut results = fixture::run();
        let all = sentences(&results).join("\n");
        assert!(all.contains("without a system call is polling-thread: "), "{all}");
        assert!(all.contains("The cheapest that was never wrong is futex-word: "), "{all}");
        let best = decisions(&results)[2].answer.plain();
        assert!(best.starts_with("futex-word: right after all"), "{best}");
        // If no difference is resolved, the check that never errs is the cheapest.
        for cell in &mut results.cells {
            (cell.estimate, cell.low, cell.high) = match cell.variant.as_str() {
                "polling-thread" => (Some(0.28), Some(0.27), Some(0.32)),
                "futex-word" => (Some(0.33), Some(0.31), Some(0.34)),
                _ => continue,
            };
        }
        let all = sentences(&results).join("\n");
        assert!(all.contains("without a system call is futex-word: "), "{all}");
        assert!(all.contains("no difference resolved from polling-thread"), "{all}");
        assert!(
            all.contains("wrong after 0 of 4 events tried.") && !all.contains("never"),
            "{all}"
        );
        results.tried.retain(|row| row.variant == "futex-word");
        let all = sentences(&results).join("\n");
        assert!(all.contains("without a system call is futex-word: "), "{all}");
        assert!(!all.contains("polling-thread") && !all.contains("load"), "{all}");
        results.tried.clear();
        assert!(!sentences(&results).join("\n").contains("liveness check"));
    }

    /// Regression: a semaphore between threads with two modes, 0.5 µs and 29 µs, was called the
    /// fastest.
    #[test]
    fn bimodal_or_threads_only_mechanism_is_not_fastest() {
        let mut results = fixture::run();
        let mut quick = |variant: &str, note: Option<&str>| {
            let first = results.cells.iter_mut().find(|cell| cell.variant == variant);
            let cell = first.expect("in the fixture");
            (cell.estimate, cell.low, cell.high) = (Some(500.0), Some(490.0), Some(510.0));
            cell.notes.extend(note.map(String::from));
        };
        quick("semaphore", None);
        quick("eventfd", Some("unstable: two modes between invocations: 2 near 1, 8 near 2"));
        let all = sentences(&results).join("\n");
        assert!(all.contains("between processes that let the receiver sleep, futex is"), "{all}");
        for cell in &mut results.cells {
            if cell.variant != "flag-one-line" && cell.variant != "semaphore" {
                cell.notes.push("unstable: two modes within 9 of 10 invocations".into());
            }
        }
        let all = sentences(&results).join("\n");
        assert!(all.contains("between threads that let the receiver sleep, semaphore"), "{all}");
    }

    #[test]
    fn share_of_children_after_parent_states_offset_band() {
        let mut results = fixture::run();
        let first = |cell: &&mut Cell| cell.metric == "parent_after";
        let cell = results.cells.iter_mut().find(first).unwrap();
        cell.notes.push(
            "last invocation: offset band: the receiver's counter is -156 to 156 ticks ahead of \
             the sender's; parent_after would be 0.9900 at the lower end and 1.0000 at the upper"
                .into(),
        );
        for one in &mut cell.invocations {
            (one.summary.mean, one.summary.count) = (1.0, 1_000);
        }
        (cell.estimate, cell.low, cell.high) = (Some(1.0), Some(0.9997), Some(1.0));
        let all = sentences(&results).join("\n");
        assert!(all.contains("]: 0 of 10,000 (at most 0.03 %); with the"), "{all}");
        assert!(all.contains("end of its band, 1 % and 0 % in the last invocation"), "{all}");
    }

    #[test]
    fn file_without_mechanisms_reports_omitted_sentences() {
        let mut results = fixture::run();
        assert!(!sentences(&results).join("\n").contains("older build"));
        results.mechanisms.clear();
        let all = sentences(&results);
        assert!(all[0].contains("from an older build"), "{all:?}");
        assert!(!all.join("\n").contains("is the fastest"), "{all:?}");
    }

    #[test]
    fn unmeasured_statements_are_omitted() {
        let mut results = fixture::run();
        results.cells.retain(|cell| cell.experiment == "signal-delivery");
        let all = sentences(&results);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all.iter().all(|s| s.contains("still ran when kill had returned")), "{all:?}");
        results.cells.clear();
        assert!(sentences(&results).is_empty());
    }

    #[test]
    fn verdict_names_wedging_and_notifying_mechanisms() {
        let mut results = fixture::run();
        results.cells.retain(|cell| cell.experiment == "signal-delivery");
        let mut template = results.cells.swap_remove(0);
        template.experiment = "survival".into();
        let mut add = |variant: &str, metric: &str, figure: f64| {
            let mut cell = template.clone();
            (cell.variant, cell.metric) = (variant.into(), metric.into());
            (cell.estimate, cell.low, cell.high) = (Some(figure), Some(figure), Some(figure));
            cell.unit = if metric == "notice" { "ns" } else { "share" }.into();
            for one in &mut cell.invocations {
                one.summary.max = figure;
            }
            results.cells.push(cell);
        };
        add("futex", "wedged", 1.0);
        add("pipe", "wedged", 0.0);
        add("pipe", "notice", 100_000.0);
        let all = sentences(&results).join("\n");
        assert!(all.contains("always notified by pipe (by pipe: 100 µs"), "{all}");
        assert!(all.contains("; wedged with futex."), "{all}");
        results.cells.retain(|cell| cell.variant != "pipe");
        let all = sentences(&results).join("\n");
        assert!(all.contains("every mechanism left survivors wedged; wedged with futex."), "{all}");
    }

    #[test]
    fn equally_fast_mechanisms_are_named_together() {
        let mut results = fixture::run();
        for cell in &mut results.cells {
            if ["pipe", "futex"].contains(&cell.variant.as_str()) {
                let ns = if cell.variant == "pipe" { 820.0 } else { 800.0 };
                (cell.estimate, cell.low, cell.high) = (Some(ns), Some(700.0), Some(900.0));
            }
        }
        let all = sentences(&results).join("\n");
        assert!(all.contains("no single one is the fastest: about 800 – 820 ns"), "{all}");
        assert!(all.contains("for any of futex, pipe; "), "{all}");
    }

    #[test]
    fn answer_is_judged_right_wrong_or_untried() {
        assert_eq!(CheckVerdict::of("dead", "dead"), CheckVerdict::Right);
        assert_eq!(CheckVerdict::of("dead", "dead (EOWNERDEAD)"), CheckVerdict::Right);
        assert_eq!(CheckVerdict::of("dead", "alive"), CheckVerdict::Wrong);
        assert_eq!(CheckVerdict::of("dead", "no /proc here"), CheckVerdict::Untried);
    }
}

//! What a run says in words: [`verdict`], computed from the run's own figures and nothing else.
//!
//! Each [`Sentence`] carries its figures with their intervals; what was not measured is left out,
//! never guessed. Which mechanisms block, and which checks need no system call, is a property of
//! the mechanism and stands here; which of them wins is found in the run. Beside the sentences:
//! [`decisions`], questions with the figures behind each answer, and [`mechanisms`], what a kill
//! does to each. Neighbours: [`super::markdown`] and [`super::html`] print them.

mod answer;
mod decide;
mod sentence;
mod survivors;

use super::format::{self, Shown};
use super::schema::{Cell, Results, Status};
use crate::experiment::Params;
use crate::size::Size;
use answer::Score;

pub use answer::Answer;
pub use decide::{Decision, Evidence, decisions};
pub use sentence::{Part, Sentence};
pub use survivors::{Fate, Mechanism, mechanisms};

/// Mechanisms of the kernel or the C library whose receiver sleeps until it is woken.
const BLOCKING: [&str; 12] = [
    "condvar",
    "eventfd",
    "futex",
    "mailbox-sleep",
    "pipe",
    "posix-mq",
    "semaphore",
    "semaphore-process",
    "signal",
    "tcp-loopback",
    "unix-seqpacket",
    "unix-stream",
];

/// Liveness checks that read memory and never enter the kernel.
const NO_SYSTEM_CALL: [&str; 7] = [
    "futex-word",
    "life-word",
    "load",
    "lock-cmpxchg",
    "mutex-trylock",
    "own-robust-list",
    "polling-thread",
];

/// One line about the run: when, how much, which schema.
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

/// The statements that the run supports, the most basic first.
pub fn verdict(results: &Results) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let trips = Cells::of(results, "round-trip", "one_way").commonest_params();
    sentences.extend(floor(&trips));
    let blocking = trips.cheapest(&BLOCKING);
    sentences.extend(blocking.map(|cell| fastest_that_blocks(cell, &trips)));
    sentences.extend(blocking.and_then(|cell| zmq_over(cell, &trips, results)));
    let checks = Cells::of(results, "liveness-check", "check").commonest_params();
    sentences.extend(cheapest_check(&checks, results));
    sentences.extend(outlived(&Cells::of(results, "signal-delivery", "parent_after")));
    sentences.extend(survivors(&Cells::of(results, "survival", "wedged"), results));
    sentences
}

fn floor(trips: &Cells) -> Option<Sentence> {
    let flag = trips.named("flag")?;
    Some(
        Sentence::default()
            .words("One word in shared memory, watched by a spinning reader, is the floor: ")
            .figure(&Shown::of_cell(flag)?)
            .words(" one way")
            .where_measured(&flag.params)
            .words("."),
    )
}

fn fastest_that_blocks(cell: &Cell, trips: &Cells) -> Sentence {
    let mut sentence = Sentence::default()
        .words("Of the mechanisms that let the receiver sleep, ")
        .name(&cell.variant)
        .words(" is the fastest that can be relied on: ");
    if let Some(shown) = Shown::of_cell(cell) {
        sentence = sentence.figure(&shown).words(" one way");
    }
    if let Some(times) = trips.named("flag").and_then(|flag| quotient(cell, flag)) {
        sentence = sentence.words(", ").figure(&times).words(" the floor");
    }
    not_told_apart(sentence, cell, trips, &BLOCKING).words(".")
}

fn zmq_over(blocking: &Cell, trips: &Cells, results: &Results) -> Option<Sentence> {
    let zmq = trips.named("zmq-ipc").or_else(|| trips.named("zmq-inproc"))?;
    let paired = results.ratios.iter().find(|ratio| {
        ratio.experiment == zmq.experiment
            && ratio.params == zmq.params
            && format::numerator(&ratio.name) == zmq.variant
            && format::denominator(&ratio.name) == blocking.variant
    });
    let (times, how) = match paired {
        Some(ratio) => {
            let times = format::times(ratio.estimate, ratio.low, ratio.high);
            (times, format!(", by {} pairs", ratio.pairs))
        }
        None => (quotient(zmq, blocking)?, ", by the ends of both intervals".into()),
    };
    Some(
        Sentence::default()
            .words("ZeroMQ (")
            .name(&zmq.variant)
            .words(") takes ")
            .figure(&Shown::of_cell(zmq)?)
            .words(": ")
            .figure(&times)
            .words(" what ")
            .name(&blocking.variant)
            .words(&format!(" takes{how}.")),
    )
}

fn cheapest_check(checks: &Cells, results: &Results) -> Option<Sentence> {
    let cell = checks.cheapest(&NO_SYSTEM_CALL)?;
    let mut sentence = Sentence::default()
        .words("The cheapest liveness check without a system call is ")
        .name(&cell.variant)
        .words(": ")
        .figure(&Shown::of_cell(cell)?)
        .words(" a check");
    sentence = not_told_apart(sentence, cell, checks, &NO_SYSTEM_CALL);
    let score = Score::of(results, &cell.variant);
    if score.asked() == 0 {
        return Some(sentence.words("; what it says of deaths was not tried."));
    }
    let wrong = Shown {
        value: format!("{} of {}", score.wrong.len(), score.asked()),
        interval: String::new(),
    };
    sentence = sentence.words("; it answered wrongly to ").figure(&wrong).words(" events tried");
    sentence = if score.wrong.is_empty() {
        sentence.words(".")
    } else {
        sentence.words(&format!(" ({}).", score.wrong.join(", ")))
    };
    Some(match cheapest_without_error(checks, results) {
        Some(right) if right.variant != cell.variant => sentence
            .words(" The cheapest that never did is ")
            .name(&right.variant)
            .words(": ")
            .figure(&Shown::of_cell(right)?)
            .words("."),
        _ => sentence,
    })
}

/// Of the checks without a system call, the cheapest that was tried and always right.
fn cheapest_without_error<'a>(checks: &Cells<'a>, results: &Results) -> Option<&'a Cell> {
    let faultless = NO_SYSTEM_CALL.into_iter().filter(|variant| {
        let score = Score::of(results, variant);
        score.asked() > 0 && score.wrong.is_empty()
    });
    checks.cheapest(&faultless.collect::<Vec<_>>())
}

/// One sentence for the published protocol, one for the protocol that needs a single clock.
fn outlived(cells: &Cells) -> Vec<Sentence> {
    ["as-published", "one-clock"]
        .iter()
        .filter_map(|variant| {
            let cell = cells.named(variant)?;
            let (low, high) = (cell.low?, cell.high?);
            let share = Shown::new("share", 1.0 - cell.estimate?, Some((1.0 - high, 1.0 - low)));
            Some(
                Sentence::default()
                    .words("In ")
                    .figure(&share)
                    .words(" of the signals the child still ran when ")
                    .name("kill")
                    .words(" had returned (")
                    .name(variant)
                    .words(")")
                    .where_measured(&cell.params)
                    .words("."),
            )
        })
        .collect()
}

/// Which mechanisms let go of a survivor, how soon, and which leave it wedged.
fn survivors(wedged: &Cells, results: &Results) -> Option<Sentence> {
    let never = |cell: &&Cell| cell.invocations.iter().all(|one| one.summary.max == 0.0);
    let (told, left): (Vec<&Cell>, Vec<&Cell>) = wedged.0.iter().copied().partition(never);
    let notices = Cells::of(results, "survival", "notice");
    let told_names: Vec<&str> = told.iter().map(|cell| cell.variant.as_str()).collect();
    let soonest = notices.cheapest(&told_names);
    let names = |mut sentence: Sentence, cells: &[&Cell]| {
        for (at, cell) in cells.iter().enumerate() {
            sentence = if at > 0 { sentence.words(", ") } else { sentence };
            sentence = sentence.name(&cell.variant);
        }
        sentence
    };
    let mut sentence = Sentence::default().words("After random kills of either end ");
    sentence = match (told.is_empty(), soonest) {
        (true, _) => sentence.words("every mechanism left survivors wedged"),
        (false, soonest) => {
            sentence = names(sentence.words("the survivor was always told by "), &told);
            match soonest.and_then(|cell| Some((cell, Shown::of_cell(cell)?))) {
                Some((cell, shown)) => {
                    let among = if told.len() > 1 { " (soonest by " } else { " (by " };
                    sentence.words(among).name(&cell.variant).words(": ").figure(&shown).words(")")
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

/// Names the rivals whose intervals overlap the winner's.
fn not_told_apart(sentence: Sentence, winner: &Cell, cells: &Cells, names: &[&str]) -> Sentence {
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

/// The quotient of two cells, its ends from the far ends of both intervals.
fn quotient(above: &Cell, below: &Cell) -> Option<Shown> {
    let (low, high) = (below.low?, below.high?);
    if low <= 0.0 {
        return None;
    }
    Some(format::times(above.estimate? / below.estimate?, above.low? / high, above.high? / low))
}

/// Cells that have a figure, of one experiment and metric.
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

    /// Only the cells of one set of parameters: the set that most cells have, the first of equals.
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

    /// By the upper end of the interval: what is fast in one run and slow in the next is no advice.
    fn cheapest(&self, names: &[&str]) -> Option<&'a Cell> {
        let upper = |cell: &Cell| cell.high.or(cell.estimate).unwrap_or(f64::MAX);
        self.0
            .iter()
            .copied()
            .filter(|cell| names.contains(&cell.variant.as_str()))
            .min_by(|a, b| f64::total_cmp(&upper(a), &upper(b)))
    }
}

fn duration(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.1} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    fn sentences(results: &Results) -> Vec<String> {
        verdict(results).iter().map(Sentence::plain).collect()
    }

    #[test]
    fn the_verdict_follows_the_figures() {
        let mut results = fixture::run();
        let all = sentences(&results).join("\n");
        assert!(all.contains("futex is the fastest that can be relied on"), "{all}");
        assert!(all.contains("ZeroMQ (zmq-ipc)") && all.contains("by 10 pairs"), "{all}");
        assert!(all.contains("wrongly to 2 of 4 events tried (killed, zombie)"), "{all}");
        for cell in &mut results.cells {
            if cell.variant == "pipe" {
                (cell.estimate, cell.low, cell.high) = (Some(800.0), Some(790.0), Some(820.0));
            }
        }
        let all = sentences(&results).join("\n");
        assert!(all.contains("pipe is the fastest that can be relied on"), "{all}");
        assert!(all.contains("by the ends of both intervals"), "{all}");
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let mut results = fixture::run();
        results.cells.retain(|cell| cell.experiment == "signal-delivery");
        let all = sentences(&results);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all.iter().all(|s| s.contains("still ran when kill had returned")), "{all:?}");
        results.cells.clear();
        assert!(sentences(&results).is_empty());
    }

    #[test]
    fn who_wedges_and_who_is_told_is_said() {
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
        assert!(all.contains("always told by pipe (by pipe: 100 µs"), "{all}");
        assert!(all.contains("; wedged with futex."), "{all}");
        results.cells.retain(|cell| cell.variant != "pipe");
        let all = sentences(&results).join("\n");
        assert!(all.contains("every mechanism left survivors wedged; wedged with futex."), "{all}");
    }

    #[test]
    fn rivals_within_the_interval_are_named() {
        let mut results = fixture::run();
        for cell in &mut results.cells {
            if ["pipe", "futex"].contains(&cell.variant.as_str()) {
                (cell.estimate, cell.low, cell.high) = (Some(800.0), Some(700.0), Some(900.0));
            }
        }
        let all = sentences(&results).join("\n");
        assert!(all.contains("no difference resolved from pipe"), "{all}");
    }

    #[test]
    fn an_answer_is_right_wrong_or_was_not_given() {
        assert_eq!(Answer::of("dead", "dead"), Answer::Right);
        assert_eq!(Answer::of("dead", "dead (EOWNERDEAD)"), Answer::Right);
        assert_eq!(Answer::of("dead", "alive"), Answer::Wrong);
        assert_eq!(Answer::of("dead", "no /proc here"), Answer::Untried);
    }
}

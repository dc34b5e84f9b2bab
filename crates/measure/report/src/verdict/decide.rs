//! Recommendations for this machine: [`decisions`], each computed from the run's own figures.
//!
//! A [`VerdictAnswer`] names every figure behind its answer and every figure that is missing;
//! nothing is guessed from other machines. The run records which mechanisms spin and which sleep;
//! its figures determine which of them to choose.

use tontine_bench::about::Idling;
use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::schema::{Cell, Results, Status};

use super::answer::Score;
use super::compared::{CellQuotient, Separation, doubt};
use super::sentence::{Sentence, SentenceSlot};
use super::survivors::{Fate, Rated, fate, mechanisms};
use super::{Cells, SleepingMechanisms};

/// Ways to create an independent process. vfork is not one of them, because its child borrows the
/// parent's memory.
const PROCESSES: [&str; 2] = ["fork", "posix-spawn"];

/// A question, its answer, and the evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct VerdictAnswer {
    pub question: &'static str,
    /// The answer, or a statement that the run supports none.
    pub answer: Sentence,
    /// The answer in one line, without intervals; `None` if the run supports none.
    pub brief: Option<String>,
    /// The figures behind the answer, with their cells.
    pub figures: Vec<Evidence>,
    /// Relevant figures that were not measured.
    pub missing: Vec<String>,
}

/// A figure behind an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Cell and metric: `round-trip/futex one_way [placement cross-core]`.
    pub name: String,
    pub shown: FormattedFigure,
}

/// Returns the recommendations that this run supports. The first four questions are always present.
pub fn decisions(results: &Results) -> Vec<VerdictAnswer> {
    let mut all = vec![
        spin_or_sleep(results),
        thread_or_process(results),
        which_check(results),
        which_survives(results),
    ];
    all.extend(padding(results));
    all.extend(allocator(results));
    all
}

impl VerdictAnswer {
    fn on(question: &'static str) -> Self {
        let answer = Sentence::default().words("Not decided.");
        Self { question, answer, brief: None, figures: Vec::new(), missing: Vec::new() }
    }

    fn resting_on<'a>(mut self, cells: impl IntoIterator<Item = &'a Cell>) -> Self {
        for cell in cells {
            let found = evidence(cell).filter(|one| !self.figures.contains(one));
            self.figures.extend(found);
        }
        self
    }

    /// Records a missing row, with the reason if the run gives one.
    fn without(mut self, results: &Results, experiment: &str, variant: &str) -> Self {
        let row = results.cells.iter().find(|cell| {
            cell.experiment == experiment
                && cell.status != Status::Ok
                && (variant.is_empty() || cell.variant == variant)
        });
        let name =
            if variant.is_empty() { experiment.into() } else { format!("{experiment}/{variant}") };
        let why = row.and_then(|row| row.why.as_ref()).map(|why| format!(" ({why})"));
        self.missing.push(format!("{name}{}", why.unwrap_or_default()));
        self
    }

    fn answered(mut self, answer: Sentence, brief: String) -> Self {
        (self.answer, self.brief) = (answer, Some(brief));
        self
    }
}

fn evidence(cell: &Cell) -> Option<Evidence> {
    let params = format::params(&cell.params);
    let params = if params.is_empty() { params } else { format!(" [{params}]") };
    let name = format!("{}/{} {}{params}", cell.experiment, cell.variant, cell.metric);
    Some(Evidence { name, shown: FormattedFigure::of_cell(cell)? })
}

fn spin_or_sleep(results: &Results) -> VerdictAnswer {
    let decision = VerdictAnswer::on("Spin or sleep?");
    let trips = Cells::of(results, "round-trip", "one_way").commonest_params();
    let of_one_kind = results.mechanisms.iter().find_map(|mechanism| {
        trips.named(&mechanism.name).zip(trips.named(mechanism.sleeping.as_ref()?))
    });
    let (spin, sleep) = match of_one_kind {
        Some((spin, sleep)) => (Some(spin), Some(sleep)),
        None => (
            trips.named("flag-one-line"),
            SleepingMechanisms::of(&trips, results).map(|all| all.best),
        ),
    };
    let (spin, sleep) = match (spin, sleep) {
        (Some(spin), Some(sleep)) => (spin, sleep),
        (None, Some(sleep)) => {
            return decision.resting_on([sleep]).without(results, "round-trip", "flag-one-line");
        }
        (Some(spin), None) => {
            return decision.resting_on([spin]).without(results, "round-trip", "futex");
        }
        (None, None) => return decision.without(results, "round-trip", ""),
    };
    let mut decision = decision.resting_on([spin, sleep]);
    let pauses = pauses(sleep, results);
    match pauses {
        Some((shortest, longest)) => decision = decision.resting_on([shortest, longest]),
        None => decision = decision.without(results, "wake-up", &sleep.variant),
    }
    let (Some(shown_spin), Some(shown_sleep)) =
        (FormattedFigure::of_cell(spin), FormattedFigure::of_cell(sleep))
    else {
        return decision;
    };
    let apart = CellQuotient::of(sleep, spin, results).map(|times| times.apart());
    let brief = match apart {
        Some(Separation::Above) => {
            format!("Spin for up to {}, then sleep.", shown_sleep.value)
        }
        Some(Separation::Below) => "Sleep: it is even faster here.".into(),
        Some(Separation::Unresolved) | None => "Sleep: no difference resolved.".into(),
    };
    let answer = match apart {
        Some(Separation::Above) => {
            let words = "Spin for about {}, then sleep: spinning for longer than a wake-up takes \
                         loses more than it saves. {} takes {}, {} {} and a processor of its own.";
            let about =
                FormattedFigure { value: shown_sleep.value.clone(), interval: String::new() };
            let parts: [&dyn SentenceSlot; 5] = [&about, sleep, &shown_sleep, spin, &shown_spin];
            Sentence::default().say(words, &parts)
        }
        Some(Separation::Below) => {
            let words = "Sleep: here it is even faster ({} {}, {} {}).";
            Sentence::default().say(words, &[sleep, &shown_sleep, spin, &shown_spin])
        }
        Some(Separation::Unresolved) | None => Sentence::default()
            .words("Sleep: no difference resolved, and a sleeper costs no processor."),
    };
    let answer =
        match pauses.and_then(|(_, longest)| Some((longest, FormattedFigure::of_cell(longest)?))) {
            Some((longest, shown)) => {
                let words = format!(" After {} asleep, a wake-up takes {{}}.", asleep(longest));
                answer.say(&words, &[&shown])
            }
            None => answer,
        };
    decision.answered(answer, brief)
}

/// Returns the cells of the mechanism's wake-up after the shortest and after the longest sleep,
/// both at the same placement.
fn pauses<'a>(sleep: &Cell, results: &'a Results) -> Option<(&'a Cell, &'a Cell)> {
    let place = |cell: &Cell| cell.params.get("placement").cloned();
    let all = Cells::of(results, "wake-up", "one_way").0;
    let mut cells: Vec<(f64, &Cell)> = all
        .into_iter()
        .filter(|cell| cell.variant == sleep.variant && place(cell) == place(sleep))
        .filter_map(|cell| Some((cell.params.get("pause_us")?.parse().ok()?, cell)))
        .collect();
    cells.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some((cells.first()?.1, cells.last()?.1))
}

/// Returns how long the receiver had slept before a wake-up.
fn asleep(cell: &Cell) -> String {
    let us: f64 = cell.params.get("pause_us").and_then(|us| us.parse().ok()).unwrap_or(f64::NAN);
    format::tick("ns", us * 1e3)
}

fn thread_or_process(results: &Results) -> VerdictAnswer {
    let mut decision = VerdictAnswer::on("Thread or process?");
    let trips = Cells::of(results, "round-trip", "one_way").commonest_params();
    // Prefer a pair without doubts, then a pair whose ends sleep.
    let message = results
        .mechanisms
        .iter()
        .filter_map(|thread| {
            let process = trips.named(thread.between_processes.as_ref()?)?;
            Some((trips.named(&thread.name)?, process, thread.receiver == Idling::Spins))
        })
        .min_by_key(|(thread, process, spins)| (doubt(thread) + doubt(process), *spins))
        .map(|(thread, process, _)| (thread, process));
    let made = made(results);
    match message {
        Some((thread, process)) => decision = decision.resting_on([thread, process]),
        None => decision = decision.without(results, "round-trip", "semaphore-process"),
    }
    match made {
        Some((thread, process)) => decision = decision.resting_on([thread, process]),
        None => decision = decision.without(results, "thread-vs-process", ""),
    }
    if message.or(made).is_none() {
        return decision;
    }
    let mut answer = Sentence::default();
    let mut brief = Vec::new();
    if let Some((thread, process)) = message
        && let Some(times) = CellQuotient::of(process, thread, results)
    {
        brief.push(format!("a message takes {}", times.shown().value));
        let words = match times.apart() {
            Separation::Above if times.is_worth_it() => {
                "Thread, if messages matter: one between processes takes "
            }
            Separation::Above => "Messages hardly matter: one between processes takes ",
            Separation::Below => "Process, if messages matter: one between processes takes ",
            Separation::Unresolved => {
                "Messages do not decide: no difference is resolved, one between processes takes "
            }
        };
        let words = format!("{words}{{}} as long as between threads ({{}}). ");
        answer = answer.say(&words, &[&times.shown(), thread]);
    }
    if let Some((thread, process)) = made
        && let Some(times) = CellQuotient::of(process, thread, results)
    {
        brief.push(format!("creation {}", times.shown().value));
        let (before, after) = match times.apart() {
            Separation::Above => {
                (") takes ", " as long as a thread: reuse it if you need it often. ")
            }
            Separation::Below => (") takes ", " as long as a thread. "),
            Separation::Unresolved => (") and a thread: no difference is resolved, ", " as long. "),
        };
        let words = format!("Creating and ending a process ({{}}{before}{{}}{after}");
        answer = answer.say(&words, &[process, &times.shown()]);
    }
    let brief = format!("A process survives; {}.", brief.join(", "));
    decision.answered(answer.words("Only a process outlives the other's end."), brief)
}

/// Returns the cells for creating and ending a thread and the cheapest process, both with the same
/// parent and at the same placement.
pub(super) fn made(results: &Results) -> Option<(&Cell, &Cell)> {
    let all = Cells::of(results, "thread-vs-process", "create_join").0;
    let threads = all.iter().copied().filter(|cell| cell.variant == "thread");
    let pairs = threads.filter_map(|thread| {
        let alike = all.iter().copied().filter(|cell| cell.params == thread.params);
        Some((thread, Cells(alike.collect()).cheapest(&PROCESSES)?))
    });
    // Take the first pair with the fewest doubts.
    pairs.min_by_key(|(thread, process)| doubt(thread) + doubt(process))
}

fn which_check(results: &Results) -> VerdictAnswer {
    let decision = VerdictAnswer::on("Which liveness check?");
    let checks = Cells::of(results, "liveness-check", "check").commonest_params();
    if checks.0.is_empty() {
        return decision.without(results, "liveness-check", "");
    }
    let references = [checks.named("load"), checks.named("kill-0")];
    // Take the tried checks with the fewest errors, and the cheapest of these.
    let tried: Vec<(&str, Score)> = checks
        .0
        .iter()
        .map(|cell| (cell.variant.as_str(), Score::of(results, &cell.variant)))
        .filter(|(_, score)| score.tried() > 0)
        .collect();
    let fewest = tried.iter().map(|(_, score)| score.wrong.len()).min();
    let least = tried.iter().filter(|(_, score)| Some(score.wrong.len()) == fewest);
    let Some(best) = checks.cheapest(&least.map(|(name, _)| *name).collect::<Vec<_>>()) else {
        let missing = vec!["the answers of the checks after a death".into()];
        return VerdictAnswer { missing, ..decision.resting_on(references.into_iter().flatten()) };
    };
    let decision = decision.resting_on([best]).resting_on(references.into_iter().flatten());
    let Some(shown) = FormattedFigure::of_cell(best) else {
        return decision;
    };
    let score = Score::of(results, &best.variant);
    let right = match score.wrong.len() {
        0 => format!(
            ": right after all {} events tried, and the cheapest such check, ",
            score.tried()
        ),
        wrong => format!(
            ": wrong least often, after {wrong} of {} events tried ({}), and the cheapest such \
             check, ",
            score.tried(),
            score.wrong.join(", ")
        ),
    };
    let words = format!("{{}}{right}{{}} per check");
    let mut answer = Sentence::default().say(&words, &[best, &shown]);
    let mut brief = brief_check(best, &shown, &score);
    let names: Vec<&str> = tried.iter().map(|(name, _)| *name).collect();
    if let Some(cheapest) = checks.cheapest(&names).filter(|cell| cell.variant != best.variant)
        && let Some(shown) = FormattedFigure::of_cell(cheapest)
    {
        let score = Score::of(results, &cheapest.variant);
        brief = format!("{brief}; {}", brief_check(cheapest, &shown, &score));
    }
    let kill = checks.named("kill-0").filter(|kill| kill.variant != best.variant);
    let times = kill.and_then(|kill| Some((kill, CellQuotient::of(kill, best, results)?)));
    if let Some((kill, times)) = times {
        answer = answer.say("; {} takes {} as long", &[kill, &times.shown()]);
        let wrong = Score::of(results, &kill.variant).wrong;
        if !wrong.is_empty() {
            answer = answer.words(&format!(" and is wrong ({})", wrong.join(", ")));
        }
    }
    decision.answered(answer.words("."), format!("{brief}."))
}

/// Returns the name of a check, its cost, and how often its answer was wrong.
fn brief_check(cell: &Cell, shown: &FormattedFigure, score: &Score) -> String {
    let wrong = match score.wrong.len() {
        0 => "never wrong".into(),
        wrong => format!("wrong after {wrong} of {} events", score.tried()),
    };
    format!("{} {}, {wrong}", cell.variant, shown.value)
}

fn which_survives(results: &Results) -> VerdictAnswer {
    let decision = VerdictAnswer::on("Which mechanism survives a kill?");
    let all = mechanisms(results);
    let killed = |row: &&Rated<'_>| matches!(row.fate, Fate::Killed { .. });
    if !all.iter().any(|row| killed(&row)) {
        return decision.without(results, "survival", "");
    }
    let keeps = all.iter().filter(|row| row.fate.keeps_all());
    let notifying: Vec<&Rated<'_>> = all.iter().filter(|row| row.fate.notifies()).collect();
    let listed = |rows: &[&Rated<'_>]| {
        rows.iter().enumerate().fold(Sentence::default(), |sentence, (at, row)| {
            let sentence = if at > 0 { sentence.words(", ") } else { sentence };
            let sentence = sentence.name(row.name);
            match row.one_way.and_then(FormattedFigure::of_cell) {
                Some(shown) => sentence.words(" ").figure(&shown),
                None => sentence,
            }
        })
    };
    let keeps: Vec<&Rated<'_>> = keeps.collect();
    let rows: &[&Rated<'_>] = if keeps.is_empty() { &notifying } else { &keeps };
    let answer = match (keeps.is_empty(), notifying.is_empty()) {
        (false, _) => listed(rows).words(": always notified, nothing torn, nothing lost."),
        (true, false) => {
            listed(rows).words(": always notified, nothing torn; but unread messages were lost.")
        }
        (true, true) => Sentence::default().words("None of the tested mechanisms."),
    };
    let cells = rows.iter().flat_map(|row| match row.fate {
        Fate::Killed { wedged, torn, lost, .. } => [row.one_way, Some(wedged), torn, lost],
        _ => [row.one_way, None, None, None],
    });
    let names = |rows: &[&Rated<'_>]| -> String {
        rows.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
    };
    let hang: Vec<&Rated<'_>> =
        all.iter().filter(|row| killed(row) && !row.fate.notifies()).collect();
    let mut brief = match (keeps.is_empty(), notifying.is_empty()) {
        (false, _) => names(&keeps),
        (true, false) => format!("{}, but messages are lost", names(&notifying)),
        (true, true) => "None of the tested mechanisms".into(),
    };
    if !hang.is_empty() {
        brief = format!("{brief}. Hang or tear: {}", names(&hang));
    }
    let mut decision = decision.resting_on(cells.flatten()).answered(answer, format!("{brief}."));
    for row in rows.iter().filter(|row| row.one_way.is_none()) {
        decision = decision.without(results, "round-trip", row.name);
    }
    let trips = Cells::of(results, "round-trip", "one_way").commonest_params();
    if let Some(sleepers) = SleepingMechanisms::of(&trips, results)
        && let Fate::NotMeasured(_) = fate(results, &sleepers.best.variant)
    {
        decision = decision.without(results, "survival", &sleepers.best.variant);
    }
    decision
}

/// Decides whether padding between words that two threads write is worth it; `None` if the run did
/// not measure that.
fn padding(results: &Results) -> Option<VerdictAnswer> {
    let decision = VerdictAnswer::on("Is padding against false sharing worth it?");
    let (near, far) = distances(results)?;
    let times = CellQuotient::of(near, far, results)?;
    let verdict = match times.apart() {
        Separation::Above if times.is_worth_it() => "Yes",
        Separation::Unresolved => "Not resolved",
        _ => "No",
    };
    let (near_bytes, far_bytes) = (&near.params["distance"], &far.params["distance"]);
    let words = format!(
        "{verdict}: words {near_bytes} bytes apart take {{}} as long as {far_bytes} bytes apart."
    );
    let answer = Sentence::default().say(&words, &[&times.shown()]);
    let times = times.shown().value;
    let brief = format!("{verdict}: {times} as long {near_bytes} bytes apart as {far_bytes}.");
    Some(decision.resting_on([near, far]).answered(answer, brief))
}

/// Returns the cells of the shortest and the longest distance between two words that two threads
/// write; `None` if the run measured fewer than two distances.
pub(super) fn distances(results: &Results) -> Option<(&Cell, &Cell)> {
    let distance = |cell: &&Cell| cell.params.get("distance").and_then(|d| d.parse::<u64>().ok());
    let all = Cells::of(results, "false-sharing", "both").0.into_iter();
    let cells: Vec<&Cell> = all.filter(|cell| distance(cell).is_some()).collect();
    let near = *cells.iter().min_by_key(|cell| distance(cell))?;
    let far = *cells.iter().max_by_key(|cell| distance(cell))?;
    (near.params != far.params).then_some((near, far))
}

/// Recommends the cheapest allocator at the highest number of threads; `None` if the run did not
/// measure that.
fn allocator(results: &Results) -> Option<VerdictAnswer> {
    let decision = VerdictAnswer::on("Which allocator?");
    let timed = Cells::of(results, "allocators", "pair").0;
    let threads = |cell: &Cell| cell.params.get("threads").and_then(|n| n.parse::<u64>().ok());
    let most = timed.iter().filter_map(|cell| threads(cell)).max()?;
    // A heap for several processes is not an alternative to `malloc`.
    let rivals =
        timed.iter().filter(|cell| threads(cell) == Some(most) && cell.variant != "shared");
    let rivals = Cells(rivals.copied().collect()).commonest_params();
    let names: Vec<&str> = rivals.0.iter().map(|cell| cell.variant.as_str()).collect();
    let best = rivals.cheapest(&names)?;
    let others = rivals.0.iter().copied().filter(|cell| cell.variant != best.variant);
    let level: Vec<&str> = others
        .clone()
        .filter(|cell| {
            let times = CellQuotient::of(cell, best, results);
            times.is_none_or(|times| times.apart() == Separation::Unresolved)
        })
        .map(|cell| cell.variant.as_str())
        .collect();
    let words = format!("{{}}, with {most} threads: {{}} for a free and a malloc");
    let mut answer = Sentence::default().say(&words, &[best, &FormattedFigure::of_cell(best)?]);
    if !level.is_empty() {
        answer = answer.words(&format!(" (no difference resolved from {})", level.join(", ")));
    }
    let brief =
        format!("{}: {} with {most} threads.", best.variant, FormattedFigure::of_cell(best)?.value);
    Some(decision.resting_on([best]).resting_on(others).answered(answer.words("."), brief))
}

#[cfg(test)]
mod tests;

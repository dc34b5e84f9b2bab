//! What to choose on this machine: [`decisions`], each computed from the run's own figures.
//!
//! A [`Decision`] names every figure behind its answer, and every figure that it lacks; nothing is
//! guessed from other machines. Which mechanisms spin and which sleep is their property and stands
//! here; which of them to take is found in the run.

use super::answer::Score;
use super::sentence::Sentence;
use super::survivors::{Fate, Mechanism, fate, mechanisms};
use super::{BLOCKING, Cells, quotient};
use crate::report::format::{self, Shown};
use crate::report::schema::{Cell, Results, Status};

/// Mechanisms whose receiver spins: of one kind with a sleeping one, or the floor.
const PAIRS: [(&str, &str); 1] = [("mailbox-spin", "mailbox-sleep")];

/// Ways to make a process, beside `thread`.
const PROCESSES: [&str; 6] = ["fork", "vfork", "posix-spawn", "posix_spawn", "clone3", "clone"];

/// A difference below a tenth is no reason to choose one or the other.
const WORTH_IT: f64 = 1.1;

/// A question, its answer, and what the answer rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The question.
    pub question: &'static str,
    /// The answer, or that there is none.
    pub answer: Sentence,
    /// The figures behind it, with their cells.
    pub figures: Vec<Evidence>,
    /// Figures that would bear on it and were not measured.
    pub missing: Vec<String>,
}

/// A figure that an answer rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Which: `round-trip/futex one_way [placement cross-core]`.
    pub name: String,
    /// The figure and its interval.
    pub shown: Shown,
}

/// What to choose, as far as this run can say. The first four questions are always there.
pub fn decisions(results: &Results) -> Vec<Decision> {
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

impl Decision {
    fn on(question: &'static str) -> Self {
        let answer = Sentence::default().words("Not decided.");
        Self { question, answer, figures: Vec::new(), missing: Vec::new() }
    }

    fn resting_on<'a>(mut self, cells: impl IntoIterator<Item = &'a Cell>) -> Self {
        for cell in cells {
            let found = evidence(cell).filter(|one| !self.figures.contains(one));
            self.figures.extend(found);
        }
        self
    }

    /// Notes what is missing, with the reason where a row of the run gives one.
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

    fn answered(mut self, answer: Sentence) -> Self {
        self.answer = answer;
        self
    }
}

fn evidence(cell: &Cell) -> Option<Evidence> {
    let params = format::params(&cell.params);
    let params = if params.is_empty() { params } else { format!(" [{params}]") };
    let name = format!("{}/{} {}{params}", cell.experiment, cell.variant, cell.metric);
    Some(Evidence { name, shown: Shown::of_cell(cell)? })
}

fn spin_or_sleep(results: &Results) -> Decision {
    let decision = Decision::on("Spin or sleep?");
    let trips = Cells::of(results, "round-trip", "one_way").commonest_params();
    let of_one_kind =
        PAIRS.iter().find_map(|(spin, sleep)| trips.named(spin).zip(trips.named(sleep)));
    let (spin, sleep) = match of_one_kind {
        Some((spin, sleep)) => (Some(spin), Some(sleep)),
        None => (trips.named("flag"), trips.cheapest(&BLOCKING)),
    };
    let (spin, sleep) = match (spin, sleep) {
        (Some(spin), Some(sleep)) => (spin, sleep),
        (None, Some(sleep)) => {
            return decision.resting_on([sleep]).without(results, "round-trip", "flag");
        }
        (Some(spin), None) => {
            return decision.resting_on([spin]).without(results, "round-trip", "futex");
        }
        (None, None) => return decision.without(results, "round-trip", ""),
    };
    let decision = after_a_pause(decision.resting_on([spin, sleep]), results);
    let (Some(shown_spin), Some(shown_sleep)) = (Shown::of_cell(spin), Shown::of_cell(sleep))
    else {
        return decision;
    };
    let answer = match apart(sleep, spin) {
        Apart::Above => Sentence::default()
            .words("Spin for about ")
            .figure(&Shown { value: shown_sleep.value.clone(), interval: String::new() })
            .words(
                ", then sleep: who spins longer than a wake-up costs has lost more than it saves. ",
            )
            .name(&sleep.variant)
            .words(" takes ")
            .figure(&shown_sleep)
            .words(", ")
            .name(&spin.variant)
            .words(" ")
            .figure(&shown_spin)
            .words(" and a processor to itself."),
        Apart::Below => Sentence::default()
            .words("Sleep: here it is even faster (")
            .name(&sleep.variant)
            .words(" ")
            .figure(&shown_sleep)
            .words(", ")
            .name(&spin.variant)
            .words(" ")
            .figure(&shown_spin)
            .words(")."),
        Apart::Unresolved => Sentence::default()
            .words("Sleep: no difference resolved, and a sleeper costs no processor."),
    };
    decision.answered(answer)
}

/// What a wake-up costs after the shortest and the longest pause, of the cheapest mechanism.
fn after_a_pause(decision: Decision, results: &Results) -> Decision {
    let cells = Cells::of(results, "wake-up", "one_way");
    let upper = |cell: &&&Cell| cell.high.or(cell.estimate).unwrap_or(f64::MAX);
    let least = cells.0.iter().min_by(|a, b| upper(a).total_cmp(&upper(b)));
    let Some(least) = least else {
        return decision.without(results, "wake-up", "");
    };
    let same = cells.0.iter().copied().filter(|cell| cell.variant == least.variant);
    let most = same.max_by(|a, b| upper(&a).total_cmp(&upper(&b)));
    decision.resting_on([*least]).resting_on(most)
}

fn thread_or_process(results: &Results) -> Decision {
    let mut decision = Decision::on("Thread or process?");
    let trips = Cells::of(results, "round-trip", "one_way").commonest_params();
    let message = [("semaphore", "semaphore-process"), ("spinlock-ttas", "spinlock-ttas-process")]
        .into_iter()
        .find_map(|(thread, process)| trips.named(thread).zip(trips.named(process)));
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
    if let Some((thread, process)) = message {
        answer = match (apart(process, thread), quotient(process, thread)) {
            (Apart::Above, Some(times)) if worth(process, thread) => answer
                .words("Thread, where messages decide: between processes one takes ")
                .figure(&times)
                .words(" as long. "),
            _ => answer.words(
                "Process: a message between two takes no longer than between threads, by more \
                 than a tenth. ",
            ),
        };
    }
    if let Some((thread, process)) = made {
        answer = match (apart(process, thread), quotient(process, thread)) {
            (Apart::Above, Some(times)) => answer
                .words("Making and ending one takes ")
                .figure(&times)
                .words(" as long as a thread: keep it, where it is needed often. "),
            _ => answer.words("Making and ending one takes no longer than a thread. "),
        };
    }
    decision.answered(answer.words("Only a process outlives the other's end."))
}

/// What it costs to make and end a thread, and the cheapest process, in the same cells.
fn made(results: &Results) -> Option<(&Cell, &Cell)> {
    let thread = results.cells.iter().find(|cell| {
        cell.experiment == "thread-vs-process"
            && cell.variant == "thread"
            && cell.status == Status::Ok
            && is_time(&cell.unit)
    })?;
    let cells = Cells::of(results, "thread-vs-process", &thread.metric);
    let alike = Cells(cells.0.into_iter().filter(|cell| cell.params == thread.params).collect());
    Some((thread, alike.cheapest(&PROCESSES)?))
}

fn which_check(results: &Results) -> Decision {
    let decision = Decision::on("Which liveness check?");
    let checks = Cells::of(results, "liveness-check", "check").commonest_params();
    if checks.0.is_empty() {
        return decision.without(results, "liveness-check", "");
    }
    let beside = [checks.named("load"), checks.named("kill-0")];
    // Of those that were asked, the ones that erred least; of these, the cheapest.
    let asked: Vec<(&str, Score)> = checks
        .0
        .iter()
        .map(|cell| (cell.variant.as_str(), Score::of(results, &cell.variant)))
        .filter(|(_, score)| score.asked() > 0)
        .collect();
    let fewest = asked.iter().map(|(_, score)| score.wrong.len()).min();
    let least = asked.iter().filter(|(_, score)| Some(score.wrong.len()) == fewest);
    let Some(best) = checks.cheapest(&least.map(|(name, _)| *name).collect::<Vec<_>>()) else {
        let missing = vec!["what the checks say of deaths".into()];
        return Decision { missing, ..decision.resting_on(beside.into_iter().flatten()) };
    };
    let decision = decision.resting_on([best]).resting_on(beside.into_iter().flatten());
    let Some(shown) = Shown::of_cell(best) else {
        return decision;
    };
    let score = Score::of(results, &best.variant);
    let right = match score.wrong.len() {
        0 => format!(": right in all {} events tried, and of such the cheapest, ", score.asked()),
        wrong => format!(
            ": it errs least, in {wrong} of {} events tried ({}), and of such it is the cheapest, ",
            score.asked(),
            score.wrong.join(", ")
        ),
    };
    let mut answer =
        Sentence::default().name(&best.variant).words(&right).figure(&shown).words(" a check");
    let kill = checks.named("kill-0").filter(|kill| kill.variant != best.variant);
    if let Some((kill, times)) = kill.and_then(|kill| Some((kill, quotient(kill, best)?))) {
        answer = answer.words("; ").name(&kill.variant).words(" takes ").figure(&times);
        let wrong = Score::of(results, &kill.variant).wrong;
        if !wrong.is_empty() {
            answer = answer.words(&format!(" and errs ({})", wrong.join(", ")));
        }
    }
    decision.answered(answer.words("."))
}

fn which_survives(results: &Results) -> Decision {
    let decision = Decision::on("Which mechanism survives a kill?");
    let all = mechanisms(results);
    let killed = |row: &&Mechanism<'_>| matches!(row.fate, Fate::Killed { .. });
    if !all.iter().any(|row| killed(&row)) {
        return decision.without(results, "survival", "");
    }
    let keeps = all.iter().filter(|row| row.fate.keeps_all());
    let tells: Vec<&Mechanism<'_>> = all.iter().filter(|row| row.fate.tells()).collect();
    let listed = |rows: &[&Mechanism<'_>]| {
        rows.iter().enumerate().fold(Sentence::default(), |sentence, (at, row)| {
            let sentence = if at > 0 { sentence.words(", ") } else { sentence };
            let sentence = sentence.name(row.name);
            match row.one_way.and_then(Shown::of_cell) {
                Some(shown) => sentence.words(" ").figure(&shown),
                None => sentence,
            }
        })
    };
    let keeps: Vec<&Mechanism<'_>> = keeps.collect();
    let rows: &[&Mechanism<'_>] = if keeps.is_empty() { &tells } else { &keeps };
    let answer = match (keeps.is_empty(), tells.is_empty()) {
        (false, _) => listed(rows).words(": always told, nothing torn, nothing lost."),
        (true, false) => listed(rows)
            .words(": always told, nothing torn; but mail that nobody had read was lost."),
        (true, true) => Sentence::default().words("None of those that were killed."),
    };
    let cells = rows.iter().flat_map(|row| match row.fate {
        Fate::Killed { wedged, lost, .. } => [row.one_way, Some(wedged), lost],
        _ => [row.one_way, None, None],
    });
    let mut decision = decision.resting_on(cells.flatten()).answered(answer);
    for row in rows.iter().filter(|row| row.one_way.is_none()) {
        decision = decision.without(results, "round-trip", row.name);
    }
    if let Some(best) =
        Cells::of(results, "round-trip", "one_way").commonest_params().cheapest(&BLOCKING)
        && let Fate::NotMeasured(_) = fate(results, &best.variant)
    {
        decision = decision.without(results, "survival", &best.variant);
    }
    decision
}

/// Whether to keep apart what two threads write; nothing where that was not measured.
fn padding(results: &Results) -> Option<Decision> {
    let decision = Decision::on("Is padding against false sharing worth it?");
    let near_and_far = |cells: &[&'_ Cell]| -> Option<(usize, usize)> {
        let distance = |at: &usize| cells[*at].params["distance"].parse::<u64>().unwrap_or(0);
        let ends = 0..cells.len();
        let (near, far) = (ends.clone().min_by_key(distance)?, ends.max_by_key(distance)?);
        (near != far).then_some((near, far))
    };
    let cells: Vec<&Cell> = results
        .cells
        .iter()
        .filter(|cell| cell.experiment == "false-sharing" && cell.status == Status::Ok)
        .filter(|cell| is_time(&cell.unit))
        .filter(|cell| cell.params.get("distance").is_some_and(|d| d.parse::<u64>().is_ok()))
        .collect();
    let first = cells.first()?;
    let alike: Vec<&Cell> = cells
        .iter()
        .copied()
        .filter(|cell| cell.variant == first.variant && cell.metric == first.metric)
        .collect();
    let (near, far) = near_and_far(&alike)?;
    let (near, far) = (alike[near], alike[far]);
    let times = quotient(near, far)?;
    let verdict = match apart(near, far) {
        Apart::Above if worth(near, far) => "Yes",
        Apart::Unresolved => "Not resolved",
        _ => "No",
    };
    let answer = Sentence::default()
        .words(&format!("{verdict}: words {} bytes apart take ", near.params["distance"]))
        .figure(&times)
        .words(&format!(" of what they take {} bytes apart.", far.params["distance"]));
    Some(decision.resting_on([near, far]).answered(answer))
}

/// The cheapest allocator with most threads; nothing where that was not measured.
fn allocator(results: &Results) -> Option<Decision> {
    let decision = Decision::on("Which allocator?");
    let timed: Vec<&Cell> = results
        .cells
        .iter()
        .filter(|cell| cell.experiment == "allocators" && cell.status == Status::Ok)
        .filter(|cell| is_time(&cell.unit))
        .collect();
    let threads = |cell: &Cell| cell.params.get("threads").and_then(|n| n.parse::<u64>().ok());
    let metric = &timed.first()?.metric;
    let most = timed.iter().filter_map(|cell| threads(cell)).max()?;
    let rivals = timed.iter().filter(|c| c.metric == *metric && threads(c) == Some(most));
    let rivals = Cells(rivals.copied().collect()).commonest_params();
    let names: Vec<&str> = rivals.0.iter().map(|cell| cell.variant.as_str()).collect();
    let best = rivals.cheapest(&names)?;
    let others = rivals.0.iter().copied().filter(|cell| cell.variant != best.variant);
    let level: Vec<&str> = others
        .clone()
        .filter(|cell| matches!(apart(cell, best), Apart::Unresolved))
        .map(|cell| cell.variant.as_str())
        .collect();
    let mut answer = Sentence::default()
        .name(&best.variant)
        .words(&format!(", with {most} threads: "))
        .figure(&Shown::of_cell(best)?);
    if !level.is_empty() {
        answer = answer.words(&format!(" (no difference resolved from {})", level.join(", ")));
    }
    Some(decision.resting_on([best]).resting_on(others).answered(answer.words(".")))
}

/// How two intervals lie.
enum Apart {
    Above,
    Below,
    Unresolved,
}

fn apart(this: &Cell, that: &Cell) -> Apart {
    let above = |a: &Cell, b: &Cell| a.low.zip(b.high).is_some_and(|(low, high)| low > high);
    match (above(this, that), above(that, this)) {
        (true, _) => Apart::Above,
        (_, true) => Apart::Below,
        _ => Apart::Unresolved,
    }
}

/// Whether `this` takes longer than `that` by more than a tenth, at either end of the intervals.
fn worth(this: &Cell, that: &Cell) -> bool {
    this.low.zip(that.high).is_some_and(|(low, high)| low > high * WORTH_IT)
}

fn is_time(unit: &str) -> bool {
    ["ns", "us", "µs", "ms", "s"].contains(&unit)
}

#[cfg(test)]
mod tests;

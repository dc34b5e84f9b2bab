//! The comparison of a run with the scenario's expectations: [`ScenarioVerdict`].
//!
//! A process judges its own inline expectations when it makes the calls, and logs each miss. This
//! module collects the misses, and judges the expectations of the whole run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use tontine_unix::WaitStatus;

use super::ast::{Count, Expectation, RunExpectation, Scenario, Statement, StatementKind};
use super::error::Printable;
use super::expected::StatusPattern;
use super::log::EventKind;
use super::outcome::StatusName;
use super::timeline::Timeline;

/// The verdict on the expectations of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScenarioVerdict {
    /// The failed expectations, inline ones first.
    pub failures: Vec<FailedExpectation>,
    /// The number of expectations of the whole run.
    pub expectations: usize,
    /// The number of inline expectations in the text: results of calls, and checks.
    pub inline: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedExpectation {
    /// The line in the text; 0 if the failure has none.
    pub line: u32,
    /// The process, for an inline expectation.
    pub process: Option<String>,
    /// The number of the thread, if the process had several threads.
    pub thread: Option<i32>,
    /// The call or the expectation.
    pub what: String,
    /// The expected result.
    pub expected: String,
    pub found: String,
}

impl ScenarioVerdict {
    /// Maximum number of failed inline expectations that are displayed. The number is bounded
    /// because a loop may fail many times.
    pub const SHOWN: usize = 10;

    /// Judges a run of `scenario`.
    pub fn new(scenario: &Scenario, timeline: &Timeline) -> Self {
        let other_threads = timeline.records.iter().filter(|record| record.tid != record.pid);
        let several: BTreeSet<i32> = other_threads.map(|record| record.pid).collect();
        let misses = timeline.records.iter().filter(|record| record.kind == EventKind::Miss);
        let inline = misses.map(|record| FailedExpectation {
            line: record.line,
            process: Some(record.name.clone()),
            thread: several.contains(&record.pid).then_some(record.tid),
            what: record.what.clone(),
            expected: record.result.clone(),
            found: record.found.clone(),
        });
        let ends = ends(timeline);
        let whole = scenario.expectations.iter().filter_map(|expectation| {
            judge(expectation, timeline, &ends).err().map(|found| FailedExpectation {
                line: expectation.source.line,
                process: None,
                thread: None,
                what: expectation.to_string(),
                expected: expectation.what.to_string(),
                found,
            })
        });
        let failures = inline.chain(whole).collect();
        let inline = scenario.blocks.iter().map(|block| inline_of(&block.body)).sum();
        Self { failures, expectations: scenario.expectations.len(), inline }
    }

    /// Returns `true` if all expectations held.
    pub fn holds(&self) -> bool {
        self.failures.is_empty()
    }
}

impl Display for ScenarioVerdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.holds() {
            return f.write_str(match (self.expectations, self.inline) {
                (0, 0) => "no expectations: nothing was judged",
                (0, _) => "holds: all expectations of calls (no `expect` judges the run)",
                _ => "holds: all expectations",
            });
        }
        let (inline, whole): (Vec<_>, Vec<_>) =
            self.failures.iter().partition(|failure| failure.process.is_some());
        let mut lines: Vec<String> =
            inline.iter().take(Self::SHOWN).map(ToString::to_string).collect();
        if let Some(more @ 1..) = inline.len().checked_sub(Self::SHOWN) {
            lines.push(format!("and {more} more expectations of calls fail"));
        }
        lines.extend(whole.iter().map(ToString::to_string));
        f.write_str(&lines.join("\n"))
    }
}

impl Display for FailedExpectation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { line, process, thread, what, expected, found } = self;
        let thread = thread.map_or(String::new(), |thread| format!(", thread {thread}"));
        let (expected, found) = (Printable(expected), Printable(found));
        match process {
            Some(process) => {
                write!(
                    f,
                    "fails: line {line}, in {process}{thread}: {what}: expected {expected}, \
                     found {found}"
                )
            }
            None if *line == 0 => write!(f, "fails: {what}: expected {expected}, found {found}"),
            None => write!(f, "fails: line {line}: {what}: found {found}"),
        }
    }
}

/// Returns the number of inline expectations in statements.
fn inline_of(body: &[Statement]) -> usize {
    let of = |Statement { kind, .. }: &Statement| match kind {
        StatementKind::Call(step) => usize::from(step.expected.is_some()),
        StatementKind::Handler(step) => {
            usize::from(step.expected.is_some()) + inline_of(&step.body)
        }
        StatementKind::Check(_) => 1,
        StatementKind::Repeat(_, body) | StatementKind::While(_, body) => inline_of(body),
        StatementKind::Note(_) | StatementKind::Set(..) => 0,
    };
    body.iter().map(of).sum()
}

/// The ends of processes: for each process, its name and its status.
type Ends = Vec<(String, WaitStatus)>;

/// Collects the ends. A process is named after the block that it ran last. If it ran no block, it
/// is named after the block for which it was created. The log may receive the creation of a process
/// after the process began, or even after it ended.
fn ends(timeline: &Timeline) -> Ends {
    let mut names: BTreeMap<i32, &str> = BTreeMap::new();
    let mut nameless: BTreeMap<i32, WaitStatus> = BTreeMap::new();
    let mut ended: BTreeSet<i32> = BTreeSet::new();
    let mut ends = Vec::new();
    for record in &timeline.records {
        if record.kind == EventKind::Began {
            names.insert(record.pid, &record.name);
            ended.remove(&record.pid);
        }
        if let Some((pid, name)) = record.made.as_ref().filter(|(pid, _)| !ended.contains(pid)) {
            if let Some(status) = nameless.remove(pid) {
                ends.push((name.clone(), status));
                ended.insert(*pid);
            } else {
                names.entry(*pid).or_insert(name);
            }
        }
        // A wait with `nowait` observes the same end as the wait after it.
        let seen =
            record.seen.filter(|(pid, status)| status.is_terminated() && !ended.contains(pid));
        if let Some((pid, status)) = seen {
            if let Some(name) = names.remove(&pid) {
                ends.push((name.to_owned(), status));
                ended.insert(pid);
            } else {
                nameless.insert(pid, status);
            }
        }
    }
    ends
}

/// Judges an expectation of the whole run. On failure, the error describes what was found instead.
fn judge(expectation: &Expectation, timeline: &Timeline, ends: &Ends) -> Result<(), String> {
    match &expectation.what {
        RunExpectation::Ended { count, name, ways } => judge_ends(*count, name, ways, ends),
        RunExpectation::Note { text, of, count } => {
            let is_it = |(who, what): &(&str, &str)| {
                what == text && of.as_deref().is_none_or(|of| of == *who)
            };
            let found = u32::try_from(timeline.notes().filter(is_it).count()).unwrap_or(u32::MAX);
            if count.has(found) { Ok(()) } else { Err(format!("it {found} times")) }
        }
        RunExpectation::Notes { of, ordered, sequences } => {
            let notes = timeline.notes();
            let of = |who: &str| of.as_deref().is_none_or(|of| of == who);
            let found: Vec<&str> = notes.filter(|(who, _)| of(who)).map(|(_, what)| what).collect();
            let is_held = sequences.iter().any(|wanted| same(wanted, &found, *ordered));
            if is_held { Ok(()) } else { Err(listed(&found)) }
        }
        RunExpectation::Before(first, then) => {
            let at = |text: &str| timeline.notes().position(|(_, what)| what == text);
            match (at(first), at(then)) {
                (Some(earlier), Some(later)) if earlier < later => Ok(()),
                (Some(_), Some(_)) => Err("them in the opposite order".into()),
                (None, _) => Err(format!("no note \"{first}\"")),
                (_, None) => Err(format!("no note \"{then}\"")),
            }
        }
    }
}

fn judge_ends(
    count: Option<Count>,
    name: &str,
    ways: &[StatusPattern],
    ends: &Ends,
) -> Result<(), String> {
    let all: Vec<WaitStatus> =
        ends.iter().filter(|(who, _)| who == name).map(|(_, status)| *status).collect();
    let fitting = all.iter().filter(|status| ways.iter().any(|way| way.fits(**status))).count();
    let is_held = match count {
        Some(count) => count.has(u32::try_from(fitting).unwrap_or(u32::MAX)),
        None => fitting == all.len() && fitting > 0,
    };
    if is_held {
        return Ok(());
    }
    if all.is_empty() {
        return Err(format!("no observed end of {name}"));
    }
    let shown: Vec<String> = all.iter().map(|status| StatusName(*status).to_string()).collect();
    Err(shown.join(", "))
}

fn same(wanted: &[String], found: &[&str], ordered: bool) -> bool {
    let mut wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let mut found = found.to_vec();
    if !ordered {
        wanted.sort_unstable();
        found.sort_unstable();
    }
    wanted == found
}

fn listed(notes: &[&str]) -> String {
    let shown: Vec<String> = notes.iter().map(|note| format!("\"{note}\"")).collect();
    if shown.is_empty() { "no note".into() } else { shown.join(", ") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scenario::log::Record;
    use tontine_unix::Signal;

    fn record(pid: i32, name: &str, kind: EventKind) -> Record {
        Record {
            at: Duration::ZERO,
            pid,
            tid: pid,
            name: name.into(),
            line: 1,
            kind,
            what: String::new(),
            result: String::new(),
            found: String::new(),
            made: None,
            seen: None,
        }
    }

    fn began(pid: i32, name: &str) -> Record {
        record(pid, name, EventKind::Began)
    }

    fn made(pid: i32, name: &str) -> Record {
        Record { made: Some((pid, name.into())), ..record(1, "main", EventKind::Call) }
    }

    fn seen(pid: i32, status: WaitStatus) -> Record {
        Record { seen: Some((pid, status)), ..record(1, "main", EventKind::Call) }
    }

    fn ends_of(records: Vec<Record>) -> Ends {
        ends(&Timeline { records })
    }

    const KILLED: WaitStatus = WaitStatus::Signaled(Signal::KILL, false);

    #[test]
    fn child_killed_before_start_is_named_after_forked_block() {
        let ends = ends_of(vec![made(5, "child"), seen(5, KILLED)]);
        assert_eq!(ends, [("child".to_owned(), KILLED)]);
    }

    #[test]
    fn end_recorded_before_fork_is_counted_once() {
        let end = seen(5, WaitStatus::Exited(3));
        let expected = [("child".to_owned(), WaitStatus::Exited(3))];
        assert_eq!(ends_of(vec![end.clone(), made(5, "child")]), expected);
        assert_eq!(ends_of(vec![began(5, "child"), end, made(5, "child")]), expected);
    }

    #[test]
    fn end_observed_twice_is_counted_once() {
        let end = seen(5, WaitStatus::Exited(3));
        let ends = ends_of(vec![made(5, "child"), end.clone(), end]);
        assert_eq!(ends, [("child".to_owned(), WaitStatus::Exited(3))]);
    }

    #[test]
    fn reused_pid_counts_as_different_process() {
        let end = |status| seen(5, WaitStatus::Exited(status));
        let records =
            vec![made(5, "a"), began(5, "a"), end(1), began(5, "b"), made(5, "b"), end(2)];
        let expected =
            [("a".to_owned(), WaitStatus::Exited(1)), ("b".to_owned(), WaitStatus::Exited(2))];
        assert_eq!(ends_of(records), expected);
    }

    #[test]
    fn process_is_named_after_last_executed_program() {
        let records = vec![made(5, "a"), began(5, "a"), began(5, "b"), seen(5, KILLED)];
        assert_eq!(ends_of(records), [("b".to_owned(), KILLED)]);
    }

    #[test]
    fn stops_do_not_count_as_ends() {
        assert_eq!(ends_of(vec![made(5, "a"), seen(5, WaitStatus::Stopped(Signal::STOP))]), []);
    }

    /// Returns `true` if `expectation` holds for these notes, all written by `main`.
    fn holds(expectation: &str, notes: &[&str]) -> bool {
        let text = format!("process main\nexpect {expectation}\n");
        let scenario: Scenario = text.parse().expect("a scenario");
        let noted =
            |text: &&str| Record { what: (*text).into(), ..record(2, "main", EventKind::Note) };
        let timeline = Timeline { records: notes.iter().map(noted).collect() };
        ScenarioVerdict::new(&scenario, &timeline).holds()
    }

    #[test]
    fn note_expectations_check_count_list_and_order() {
        assert!(holds("\"a\" before \"b\"", &["a", "b", "a"]));
        assert!(!holds("\"a\" before \"b\"", &["b", "a"]));
        assert!(holds("note \"a\" 1..2 times", &["a", "b", "a"]));
        assert!(!holds("note \"a\"", &["a", "b", "a"]));
        assert!(holds("note \"a\" of main 0 times", &["b"]));
        assert!(holds("notes \"a\", \"b\" or \"b\"", &["b"]));
        assert!(!holds("notes \"a\", \"b\"", &["b", "a"]));
        assert!(holds("notes in any order \"a\", \"b\"", &["b", "a"]));
        assert!(!holds("notes in any order \"a\", \"b\"", &["b", "a", "a"]));
        assert!(!holds("notes none", &["b"]));
    }

    fn missed(pid: i32, tid: i32) -> Record {
        Record { tid, ..record(pid, "main", EventKind::Miss) }
    }

    fn verdict_of(records: Vec<Record>) -> String {
        let scenario: Scenario = "process main\nexpect note \"a\"\n".parse().expect("a scenario");
        ScenarioVerdict::new(&scenario, &Timeline { records }).to_string()
    }

    /// Regression: a report about processes that forked endlessly listed each `fork` above the
    /// limit, in 95,907 lines.
    #[test]
    fn excess_call_failures_are_counted_before_run_failures() {
        let text = verdict_of((0..95_907).map(|_| missed(2, 2)).collect());
        assert_eq!(text.lines().count(), ScenarioVerdict::SHOWN + 2, "{text}");
        assert!(text.contains("\nand 95897 more expectations of calls fail\n"), "{text}");
        assert!(text.ends_with("it 0 times"), "{text}");
    }

    #[test]
    fn failure_in_multithreaded_process_names_thread() {
        let text = verdict_of(vec![missed(2, 2), missed(3, 3), missed(3, 7)]);
        let threads = ["in main: ", "in main, thread 3: ", "in main, thread 7: "];
        for (line, thread) in text.lines().zip(threads) {
            assert!(line.contains(thread), "{text}");
        }
    }

    #[test]
    fn verdict_without_expectations_is_empty() {
        let said = |text: &str| {
            let scenario: Scenario = text.parse().expect("a scenario");
            ScenarioVerdict::new(&scenario, &Timeline::default()).to_string()
        };
        assert_eq!(said("process a\n  raise USR1\n"), "no expectations: nothing was judged");
        let inline = said("process a\n  repeat 2\n    setsid -> EPERM\n");
        assert!(inline.contains("no `expect` judges the run"), "{inline}");
        assert_eq!(said("process a\nexpect notes none\n"), "holds: all expectations");
    }
}

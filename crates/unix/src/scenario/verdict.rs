//! Whether what was observed is what a scenario expects: [`Verdict`].
//!
//! An inline expectation was judged by the process itself, where it stands; it left a miss in the
//! log. Here those are gathered, and the expectations of the whole run are judged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use super::ast::{Count, Expectation, Scenario, Whole};
use super::expected::StatusPattern;
use super::log::EventKind;
use super::outcome::Short;
use super::timeline::Timeline;
use crate::wait::Status;

/// What came of the expectations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Those that failed, inline ones first.
    pub failures: Vec<Failure>,
    /// How many of the whole run there were.
    pub expectations: usize,
}

/// An expectation that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Line in the text; 0 for what stands nowhere.
    pub line: u32,
    /// The process, of an inline expectation.
    pub process: Option<String>,
    /// The call or the expectation.
    pub what: String,
    /// What should have come.
    pub expected: String,
    /// What came.
    pub found: String,
}

impl Verdict {
    /// Judges a run of `scenario`.
    pub fn new(scenario: &Scenario, timeline: &Timeline) -> Self {
        let misses = timeline.records.iter().filter(|record| record.kind == EventKind::Miss);
        let inline = misses.map(|record| Failure {
            line: record.line,
            process: Some(record.name.clone()),
            what: record.what.clone(),
            expected: record.result.clone(),
            found: record.found.clone(),
        });
        let ends = ends(timeline);
        let whole = scenario.expectations.iter().filter_map(|expectation| {
            judge(expectation, timeline, &ends).err().map(|found| Failure {
                line: expectation.place.line,
                process: None,
                what: expectation.to_string(),
                expected: expectation.what.to_string(),
                found,
            })
        });
        let failures = inline.chain(whole).collect();
        Self { failures, expectations: scenario.expectations.len() }
    }

    /// Whether all expectations held.
    pub fn holds(&self) -> bool {
        self.failures.is_empty()
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.holds() {
            return f.write_str("holds: every expectation");
        }
        for (index, failure) in self.failures.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            failure.fmt(f)?;
        }
        Ok(())
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { line, process, what, expected, found } = self;
        match process {
            Some(process) => {
                write!(
                    f,
                    "fails: line {line}, in {process}: {what}: expected {expected}, found {found}"
                )
            }
            None if *line == 0 => write!(f, "fails: {what}: expected {expected}, found {found}"),
            None => write!(f, "fails: line {line}: {what}: found {found}"),
        }
    }
}

/// Who ended how, by name.
type Ends = Vec<(String, Status)>;

/// A process's name is that of the block which it ran last; one that ran none has the name under
/// which it was made. The log may take that a process was made after it took that it began, or even
/// ended.
fn ends(timeline: &Timeline) -> Ends {
    let mut names: BTreeMap<i32, &str> = BTreeMap::new();
    let mut nameless: BTreeMap<i32, Status> = BTreeMap::new();
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
        // One that was looked at with `nowait` is seen twice.
        let seen = record.seen.filter(|(pid, status)| status.is_end() && !ended.contains(pid));
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

/// `Err` says what was found instead.
fn judge(expectation: &Expectation, timeline: &Timeline, ends: &Ends) -> Result<(), String> {
    match &expectation.what {
        Whole::Ended { count, name, ways } => judge_ends(*count, name, ways, ends),
        Whole::Note { text, of, count } => {
            let is_it = |(who, what): &(&str, &str)| {
                what == text && of.as_deref().is_none_or(|of| of == *who)
            };
            let found = u32::try_from(timeline.notes().filter(is_it).count()).unwrap_or(u32::MAX);
            if count.has(found) { Ok(()) } else { Err(format!("it {found} times")) }
        }
        Whole::Notes { of, ordered, sequences } => {
            let notes = timeline.notes();
            let of = |who: &str| of.as_deref().is_none_or(|of| of == who);
            let found: Vec<&str> = notes.filter(|(who, _)| of(who)).map(|(_, what)| what).collect();
            let is_held = sequences.iter().any(|wanted| same(wanted, &found, *ordered));
            if is_held { Ok(()) } else { Err(listed(&found)) }
        }
        Whole::Before(first, then) => {
            let at = |text: &str| timeline.notes().position(|(_, what)| what == text);
            match (at(first), at(then)) {
                (Some(earlier), Some(later)) if earlier < later => Ok(()),
                (Some(_), Some(_)) => Err("them the other way round".into()),
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
    let all: Vec<Status> =
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
        return Err(format!("that nobody saw a {name} end"));
    }
    let shown: Vec<String> = all.iter().map(|status| Short(*status).to_string()).collect();
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

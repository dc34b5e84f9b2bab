//! The steps and observations of a run, in terms that do not depend on the system: [`Trace`].
//!
//! A stepper records which thread it released ([`StepRecord`]), and each record of the log with its
//! step and the ordinal of the thread that wrote it. [`Trace::new`] replaces numbers by names, and
//! sorts the records of one step by thread ordinal, because several threads may run concurrently
//! within a step.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use crate::scenario::step_control::SpawnKind;
use crate::scenario::{EventKind, Record};

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceEnd {
    /// All processes have ended.
    Finished,
    /// All threads are blocked, each in the call that is listed for it.
    Deadlocked(Vec<BlockedThread>),
    /// The run was cut off after the maximum number of steps or of events.
    Cut,
}

/// A thread that is blocked at the end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedThread {
    pub who: String,
    /// The line in the text.
    pub line: u32,
    pub call: String,
    /// `true` if the thread is stopped rather than asleep.
    pub is_stopped: bool,
}

/// A step: a thread was released from its gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRecord {
    pub who: String,
    /// The line of the call that the thread made.
    pub line: u32,
}

/// An observation of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEntry {
    /// The number of steps before the observation.
    pub step: u32,
    pub who: String,
    /// The line in the text; 0 if the entry has none.
    pub line: u32,
    /// The event and its result.
    pub what: String,
}

/// The steps and observations of a run on one system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The steps, in order.
    pub steps: Vec<StepRecord>,
    /// The observations in the order of steps, and within a step by the age of the threads.
    pub entries: Vec<TraceEntry>,
    /// The end of the run.
    pub ending: TraceEnd,
}

/// A stepper's record of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadFacts {
    /// The ordinal of the thread that requested this one.
    pub(super) maker: u32,
    pub(super) kind: SpawnKind,
    /// The number of the thread; 0 if none was created.
    pub(super) number: i32,
}

/// A stepper's record of a run, with thread ordinals instead of names.
#[derive(Debug, Default)]
pub(super) struct RawTrace {
    pub(super) threads: Vec<ThreadFacts>,
    /// For each step, the thread's ordinal and the line.
    pub(super) steps: Vec<(u32, u32)>,
    /// For each record, the step and the thread's ordinal.
    pub(super) records: Vec<(u32, u32, Record)>,
    /// For each thread that is blocked at the end: ordinal, line and call, and `true` if it is
    /// stopped.
    pub(super) waiting: Vec<(u32, u32, String, bool)>,
}

/// The end of a stepper's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RawEnding {
    Finished,
    Deadlocked,
    Cut,
}

impl Trace {
    pub(super) fn new(raw: RawTrace, ending: RawEnding) -> Self {
        let names = names(&raw.threads);
        let numbers: BTreeMap<i32, &str> = raw
            .threads
            .iter()
            .zip(&names)
            .filter(|(thread, _)| thread.number > 0)
            .map(|(thread, name)| (thread.number, name.as_str()))
            .collect();
        let name = |thread: u32| names.get(thread as usize).cloned().unwrap_or_default();
        let entry = |(step, thread, record): (u32, u32, Record)| TraceEntry {
            step,
            who: name(thread),
            line: record.line,
            what: said(&record, &numbers),
        };
        // If several orphans end in one step, the order in which `init` finds them varies.
        let key = |(step, thread, record): &(u32, u32, Record)| {
            let reported_by_init =
                if *thread == 0 { said(record, &numbers) } else { String::new() };
            (*step, *thread, reported_by_init)
        };
        let mut records = raw.records;
        records.sort_by_cached_key(key);
        let entries = records.into_iter().map(entry).collect();
        let waiting = |(thread, line, call, is_stopped)| BlockedThread {
            who: name(thread),
            line,
            call,
            is_stopped,
        };
        Self {
            steps: raw
                .steps
                .into_iter()
                .map(|(thread, line)| StepRecord { who: name(thread), line })
                .collect(),
            entries,
            ending: match ending {
                RawEnding::Finished => TraceEnd::Finished,
                RawEnding::Deadlocked => {
                    TraceEnd::Deadlocked(raw.waiting.into_iter().map(waiting).collect())
                }
                RawEnding::Cut => TraceEnd::Cut,
            },
        }
    }
}

/// Returns the names of the threads: `init`, `main`, then `main.1` for a child and `main/1` for a
/// thread.
fn names(threads: &[ThreadFacts]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(threads.len());
    let mut made = BTreeMap::<(usize, char), u32>::new();
    for (index, thread) in threads.iter().enumerate() {
        let name = match index {
            0 => "init".to_owned(),
            1 => "main".to_owned(),
            _ => {
                // Children and threads are numbered per process, no matter which of its threads
                // created them.
                let process = process_of(threads, thread.maker as usize);
                let mark = if thread.kind == SpawnKind::Process { '.' } else { '/' };
                let ordinal = made.entry((process, mark)).or_default();
                *ordinal += 1;
                format!("{}{mark}{ordinal}", names[process])
            }
        };
        names.push(name);
    }
    names
}

/// Returns the ordinal of the first thread in a thread's process.
fn process_of(threads: &[ThreadFacts], mut thread: usize) -> usize {
    while threads[thread].kind == SpawnKind::Thread {
        thread = threads[thread].maker as usize;
    }
    thread
}

/// Returns the text of a record, with names instead of numbers.
fn said(record: &Record, numbers: &BTreeMap<i32, &str>) -> String {
    let Record { what, result, found, .. } = record;
    match record.kind {
        EventKind::Began => format!("begins {what}"),
        EventKind::Call if result.is_empty() => what.clone(),
        EventKind::Call => format!("{what} -> {}", comparable(what, result, numbers)),
        EventKind::Handler => format!("handles {}", named(what, numbers)),
        EventKind::Note => format!("notes \"{}\"", named(what, numbers)),
        EventKind::Miss => {
            format!("missed: {what}: {result}, {}", comparable(what, found, numbers))
        }
    }
}

/// Calls whose results depend on time or place and are therefore not compared.
const ELSEWHERE: [&str; 4] = ["now", "getrusage", "processor", "opentty"];

/// Returns a result without the parts that may differ.
fn comparable(call: &str, result: &str, numbers: &BTreeMap<i32, &str>) -> String {
    let call = call.split_once(" = ").map_or(call, |(_, call)| call);
    let word = call.split(' ').next().unwrap_or_default();
    let is_number = result.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && ELSEWHERE.contains(&word) {
        return "a number".to_owned();
    }
    named(result, numbers)
}

/// Returns a text with names instead of the numbers of processes and threads, and without core
/// dumps, which depend on a limit and on whether a file can be written.
fn named(text: &str, numbers: &BTreeMap<i32, &str>) -> String {
    let text = text.replace("child-dumped", "child-killed");
    let text = text.strip_suffix(" core").unwrap_or(&text);
    let mut named = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        let (digits, behind) = from.split_at(end);
        let name = digits.parse().ok().and_then(|number: i32| numbers.get(&number));
        named.push_str(before);
        named.push_str(name.copied().unwrap_or(digits));
        rest = behind;
    }
    named.push_str(rest);
    named
}

impl Display for TraceEntry {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:>4}  {:12} {:>4}  {}", self.step, self.who, self.line, self.what)
    }
}

impl Display for BlockedThread {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let how = if self.is_stopped { "is stopped in" } else { "sleeps in" };
        write!(f, "{} {how} `{}` (line {})", self.who, self.call, self.line)
    }
}

impl Display for TraceEnd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("all processes have ended"),
            Self::Deadlocked(waiting) => {
                f.write_str("all threads are blocked")?;
                for (index, one) in waiting.iter().enumerate() {
                    write!(f, "{}{one}", if index == 0 { ": " } else { "; " })?;
                }
                Ok(())
            }
            Self::Cut => f.write_str("cut at the maximum number of steps or events"),
        }
    }
}

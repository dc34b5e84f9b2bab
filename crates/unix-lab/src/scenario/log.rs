//! The observations of a process: [`Log`] takes [`LogEvent`]s, and keeps them as [`Record`]s.
//!
//! Processes share no memory, so a log is all that leaves one. [`MemoryLog`] is for processes
//! within this one; `wire.rs` has one for real processes.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tontine_unix::WaitStatus;
use tontine_unix_sim::Stopper;

use super::ast::SourceLine;

/// Receives the events that processes observe.
///
/// It is called from handlers too. For real processes it must keep to what signal-safety(7) allows:
/// no allocation, no lock. An [`LogEvent`] borrows all it has for that reason, and printing one
/// allocates nothing.
pub trait Log: Send + Sync {
    /// Receives one event. Events of one process come in their order.
    fn record(&self, event: &LogEvent<'_>);
}

/// An event that a process observed.
#[derive(Clone, Copy)]
pub struct LogEvent<'e> {
    /// The time since the run began.
    pub at: Duration,
    /// The process's number.
    pub pid: i32,
    /// The thread's.
    pub tid: i32,
    /// The process's name: that of the block which it runs.
    pub name: &'e str,
    /// The line in the text.
    pub source: SourceLine,
    /// The kind.
    pub kind: EventKind,
    /// The text of the note or call.
    pub what: &'e dyn Display,
    /// The result; of a miss, what was expected.
    pub result: &'e dyn Display,
    /// Of a miss, what was found.
    pub found: &'e dyn Display,
    /// The other process that it concerns.
    pub about: RelatedProcess<'e>,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The process began to run its block.
    Began,
    /// A call returned, or was made that does not return.
    Call,
    /// A handler began.
    Handler,
    /// A note.
    Note,
    /// An expectation failed.
    Miss,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Began, Self::Call, Self::Handler, Self::Note, Self::Miss];
}

/// The other process that an event concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelatedProcess<'e> {
    /// No process.
    None,
    /// This process was created, and runs this block.
    Created(i32, &'e str),
    /// This process was observed with this status.
    Observed(i32, WaitStatus),
}

/// An event as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The time since the run began.
    pub at: Duration,
    /// The process's number.
    pub pid: i32,
    /// The thread's.
    pub tid: i32,
    /// The process's name.
    pub name: String,
    /// Line in the text; 0 for what stands nowhere.
    pub line: u32,
    /// The kind of an event.
    pub kind: EventKind,
    /// The text of the note or call.
    pub what: String,
    /// The result; of a miss, what was expected.
    pub result: String,
    /// Of a miss, what was found.
    pub found: String,
    /// The process that it made, and its name.
    pub made: Option<(i32, String)>,
    /// The process that it saw, and how that was.
    pub seen: Option<(i32, WaitStatus)>,
}

impl LogEvent<'_> {
    /// Whether no expectation of a whole run depends on it.
    fn is_nothing_to_a_verdict(&self) -> bool {
        let tells = matches!(self.kind, EventKind::Began | EventKind::Note | EventKind::Miss);
        !tells && matches!(self.about, RelatedProcess::None)
    }
}

impl Record {
    /// Without the text of a call.
    fn terse(event: &LogEvent<'_>) -> Self {
        match event.kind {
            EventKind::Note | EventKind::Miss => Self::from(event),
            _ => Self::from(&LogEvent { what: &"", result: &"", found: &"", ..*event }),
        }
    }
}

impl From<&LogEvent<'_>> for Record {
    fn from(event: &LogEvent<'_>) -> Self {
        let (made, seen) = match event.about {
            RelatedProcess::None => (None, None),
            RelatedProcess::Created(pid, name) => (Some((pid, name.to_owned())), None),
            RelatedProcess::Observed(pid, status) => (None, Some((pid, status))),
        };
        Self {
            at: event.at,
            pid: event.pid,
            tid: event.tid,
            name: event.name.to_owned(),
            line: event.source.line,
            kind: event.kind,
            what: event.what.to_string(),
            result: event.result.to_string(),
            found: event.found.to_string(),
            made,
            seen,
        }
    }
}

/// A log for processes that live within this one. Clones are the same log.
///
/// It takes [`MemoryLog::RECORDS`] events and [`MemoryLog::BYTES`] bytes of text; when there is
/// more, it has the run stopped, and drops what comes until that has happened.
#[derive(Debug, Clone, Default)]
pub struct MemoryLog(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    taken: Mutex<Taken>,
    stopper: Stopper,
    /// Whether it takes only what a verdict needs.
    sparse: bool,
}

#[derive(Debug, Default)]
struct Taken {
    records: Vec<Record>,
    bytes: usize,
}

impl MemoryLog {
    /// Maximum number of events.
    pub const RECORDS: usize = 200_000;
    /// Maximum number of bytes of their text.
    pub const BYTES: usize = 1 << 26;

    /// Creates a log that stops the run when it is full.
    pub fn new(stopper: &Stopper) -> Self {
        Self::of(stopper, false)
    }

    /// The same, but it takes only what a verdict needs: nothing of calls that went well.
    pub(crate) fn sparse(stopper: &Stopper) -> Self {
        Self::of(stopper, true)
    }

    fn of(stopper: &Stopper, sparse: bool) -> Self {
        Self(Arc::new(Shared { taken: Mutex::default(), stopper: stopper.clone(), sparse }))
    }

    /// What was taken so far, in order; it begins anew.
    pub(crate) fn take(&self) -> Vec<Record> {
        let mut taken = self.taken();
        taken.bytes = 0;
        std::mem::take(&mut taken.records)
    }

    /// Returns the records so far, in order.
    pub fn records(&self) -> Vec<Record> {
        self.taken().records.clone()
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log for MemoryLog {
    fn record(&self, event: &LogEvent<'_>) {
        if self.0.stopper.reason().is_some() {
            return;
        }
        if self.0.sparse && event.is_nothing_to_a_verdict() {
            return;
        }
        let record = if self.0.sparse { Record::terse(event) } else { Record::from(event) };
        let bytes = record.what.len() + record.result.len() + record.found.len();
        let mut taken = self.taken();
        let why = match (taken.records.len() < Self::RECORDS, taken.bytes + bytes <= Self::BYTES) {
            (true, true) => {
                taken.bytes += bytes;
                taken.records.push(record);
                return;
            }
            (false, _) => format!("more than {} events", Self::RECORDS),
            (_, false) => format!("more than {} MiB of events", Self::BYTES >> 20),
        };
        drop(taken);
        self.0.stopper.stop(&why);
    }
}

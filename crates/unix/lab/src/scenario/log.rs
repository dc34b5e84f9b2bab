//! The observations of processes: a [`Log`] receives [`LogEvent`]s, and keeps them as [`Record`]s.
//!
//! Processes share no memory, so the log is a process's only output. [`MemoryLog`] is for virtual
//! processes within this process; `wire.rs` has a log for real processes.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tontine_unix::WaitStatus;
use tontine_unix_sim::Stopper;

use super::ast::SourceLine;

/// A receiver of the events that processes observe.
///
/// Handlers also call [`Log::record`]. For real processes it must therefore be async-signal-safe
/// (signal-safety(7)): it must not allocate or lock. For the same reason a [`LogEvent`] borrows all
/// its data, and printing an event allocates nothing.
pub trait Log: Send + Sync {
    /// Receives one event. The events of a process arrive in order.
    fn record(&self, event: &LogEvent<'_>);
}

/// An event that a process observed.
#[derive(Clone, Copy)]
pub struct LogEvent<'e> {
    /// The time since the run began.
    pub at: Duration,
    pub pid: i32,
    pub tid: i32,
    /// The process's name, which is the name of the block that it runs.
    pub name: &'e str,
    /// The line in the text.
    pub source: SourceLine,
    pub kind: EventKind,
    /// The text of the note or call.
    pub what: &'e dyn Display,
    /// The result; for a miss, the expected result.
    pub result: &'e dyn Display,
    /// For a miss, the actual result.
    pub found: &'e dyn Display,
    /// The other process that the event concerns.
    pub about: RelatedProcess<'e>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The process began to run its block.
    Began,
    /// A call returned, or a call that does not return was made.
    Call,
    /// A handler started.
    Handler,
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

/// A stored event of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The time since the run began.
    pub at: Duration,
    pub pid: i32,
    pub tid: i32,
    /// The process's name.
    pub name: String,
    /// The line in the text; 0 if the event has none.
    pub line: u32,
    pub kind: EventKind,
    /// The text of the note or call.
    pub what: String,
    /// The result; for a miss, the expected result.
    pub result: String,
    /// For a miss, the actual result.
    pub found: String,
    /// The process that was created, and its name.
    pub made: Option<(i32, String)>,
    /// The process that was observed, and its status.
    pub seen: Option<(i32, WaitStatus)>,
}

impl LogEvent<'_> {
    /// Returns `true` if no expectation of a whole run depends on the event.
    fn is_nothing_to_a_verdict(&self) -> bool {
        let is_informative =
            matches!(self.kind, EventKind::Began | EventKind::Note | EventKind::Miss);
        !is_informative && matches!(self.about, RelatedProcess::None)
    }
}

impl Record {
    /// Creates a record without the text of a call.
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

/// A log for virtual processes in this process. Clones share one log.
///
/// The log keeps up to [`MemoryLog::RECORDS`] events and [`MemoryLog::BYTES`] bytes of text. When
/// it is full, it stops the run and drops further events.
#[derive(Debug, Clone, Default)]
pub struct MemoryLog(Arc<SharedLog>);

#[derive(Debug, Default)]
struct SharedLog {
    taken: Mutex<TakenRecords>,
    stopper: Stopper,
    /// `true` if the log keeps only the events that a verdict needs.
    sparse: bool,
}

#[derive(Debug, Default)]
struct TakenRecords {
    records: Vec<Record>,
    bytes: usize,
}

impl MemoryLog {
    /// Maximum number of events.
    pub const RECORDS: usize = 200_000;
    /// Maximum number of bytes in the texts of the events.
    pub const BYTES: usize = 1 << 26;

    /// Creates a log that stops the run when it is full.
    pub fn new(stopper: &Stopper) -> Self {
        Self::of(stopper, false)
    }

    /// Creates a log that keeps only the events that a verdict needs: calls that met their
    /// expectations are dropped.
    pub(crate) fn sparse(stopper: &Stopper) -> Self {
        Self::of(stopper, true)
    }

    fn of(stopper: &Stopper, sparse: bool) -> Self {
        Self(Arc::new(SharedLog { taken: Mutex::default(), stopper: stopper.clone(), sparse }))
    }

    /// Removes and returns the records so far, in order.
    pub(crate) fn take(&self) -> Vec<Record> {
        let mut taken = self.taken();
        taken.bytes = 0;
        std::mem::take(&mut taken.records)
    }

    /// Returns the records so far, in order.
    pub fn records(&self) -> Vec<Record> {
        self.taken().records.clone()
    }

    fn taken(&self) -> MutexGuard<'_, TakenRecords> {
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

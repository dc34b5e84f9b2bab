//! Properties of a mechanism: [`Mechanism`].
//!
//! Experiments take their rows from it, and the crash explorer its targets. Reports state from it
//! whether a receiver spins and what a kill does. It is only data: [`crate::driver`] opens the
//! ends.

use std::time::Duration;

use tontine_bench::about::Idling;

use crate::operation::Operation;

/// A mechanism by which threads or processes pass messages.
#[derive(Debug, Clone, Copy)]
pub struct Mechanism {
    pub name: &'static str,
    pub idle: Idling,
    /// Kind of the two ends.
    pub between: Between,
    /// `true` for a library that the feature `peers` adds to the mechanisms of the kernel.
    pub is_peer: bool,
    /// The part of a message that reaches the receiver.
    pub carries: Carries,
    /// Length of the longest message that stays whole with several senders; 0 for a single sender.
    pub shared_up_to: usize,
    /// Effect of a kill of one end.
    pub death: Death,
    /// The counterpart with another kind of ends or another receiver, if it exists.
    pub twin: Option<Twin>,
    /// The experiments that measure it.
    pub rows: &'static [Listing],
    /// Properties that only the crash explorer uses; `None` if it does not explore the mechanism.
    pub explored: Option<Explored>,
}

impl Mechanism {
    /// Returns a mechanism between processes with a sleeping receiver, which carries whole messages
    /// from one sender.
    pub const fn new(name: &'static str, death: Death, rows: &'static [Listing]) -> Self {
        Self {
            name,
            idle: Idling::Sleeps,
            between: Between::Processes,
            is_peer: false,
            carries: Carries::Messages,
            shared_up_to: 0,
            death,
            twin: None,
            rows,
            explored: None,
        }
    }

    /// Returns the mechanism's row in an experiment, if the experiment measures it.
    pub fn row(&self, kind: RowKind) -> Option<&Listing> {
        self.rows.iter().find(|row| row.kind == kind)
    }

    /// Returns the feature that the mechanism needs and this build lacks.
    pub fn missing_feature(&self) -> Option<&'static str> {
        (self.is_peer && !cfg!(feature = "peers")).then_some("peers")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    Threads,
    Processes,
}

/// The part of a message that reaches the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// All its bytes.
    Messages,
    /// Only the first word.
    Word,
    /// Only the notification.
    Nothing,
}

/// Effect of a kill of one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// Both ends are threads of the killed process and end with it.
    TakesBoth,
    /// The survivor keeps the other end. `survival` kills this mechanism under the name `row`,
    /// which is its own name or that of a mechanism that behaves the same for a survivor.
    LeavesOne {
        row: &'static str,
        /// Notification of the survivor.
        survivor: AfterKill,
    },
    /// No experiment kills this mechanism. Another mechanism represents it.
    As {
        other: &'static str,
        /// The reason, worded so that the other mechanism's name follows it.
        why: &'static str,
    },
}

/// Notification of a survivor about a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterKill {
    /// The survivor is always notified.
    Notified,
    /// The survivor waits indefinitely.
    Wedged,
    /// The notification depends on which end is killed, and when.
    Either,
}

/// The counterpart of a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twin {
    /// The counterpart between processes of a mechanism between threads.
    BetweenProcesses(&'static str),
    /// The counterpart with a sleeping receiver of a mechanism whose receiver spins.
    Sleeping(&'static str),
}

/// Experiments that measure mechanisms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    RoundTrip,
    Throughput,
    Survival,
    WakeUp,
}

/// A mechanism's row in an experiment.
#[derive(Debug, Clone, Copy)]
pub struct Listing {
    pub kind: RowKind,
    pub says: &'static str,
    /// The system calls inside the timed part. Empty if the experiment's own text names them.
    pub calls: &'static str,
    /// `true` if only a full run measures more than the first cell.
    pub brief: bool,
}

impl Listing {
    /// Returns a row whose system calls the experiment's own text names.
    pub const fn new(kind: RowKind, says: &'static str) -> Self {
        Self { kind, says, calls: "", brief: false }
    }

    pub const fn calling(self, calls: &'static str) -> Self {
        Self { calls, ..self }
    }

    /// Limits every run except a full one to the row's first cell.
    pub const fn in_brief(self) -> Self {
        Self { brief: true, ..self }
    }
}

/// Properties of a target of the crash explorer.
#[derive(Debug, Clone, Copy)]
pub struct Explored {
    pub name: &'static str,
    pub summary: &'static str,
    /// A promise that the mechanism does not make. Empty if there is none to mention.
    pub caveat: &'static str,
    /// `true` if the mechanism is Tontine's own, so that its failure is a bug here.
    pub own: bool,
    /// Operations during which a process is killed, in the order of the report.
    pub operations: &'static [Operation],
    /// Pairs of a victim's operation and its successor's first operation, in which the successor is
    /// also killed.
    pub successions: &'static [(Operation, Operation)],
    /// Operations whose succession takes longer than all others together.
    pub long_successions: &'static [Operation],
    /// Number of messages that an empty queue takes before the next `send` blocks or grows the
    /// queue.
    pub capacity: fn() -> u32,
    /// Number of messages that must be taken out of a full queue before a blocked `send` continues.
    pub frees_space: fn() -> u32,
    /// `true` if messages that a dead receiver received may be delivered again (at-least-once
    /// delivery).
    pub delivers_again: bool,
    /// `true` if a sender outlives its receiver and hands over to the next one; for a heap, if a
    /// member can hand a block over to another member.
    pub hands_over: bool,
    /// Timeout for one reply of a survivor, if the default is too short.
    pub timeout: Option<Duration>,
    /// Time until the mechanism's own threads are idle.
    pub settles: Duration,
}

impl Explored {
    /// Returns a peer that is idle immediately and whose full queue has space after one message is
    /// taken.
    pub const fn new(
        name: &'static str,
        summary: &'static str,
        operations: &'static [Operation],
        capacity: fn() -> u32,
    ) -> Self {
        Self {
            name,
            summary,
            caveat: "",
            own: false,
            operations,
            successions: &[],
            long_successions: &[],
            capacity,
            frees_space: || 1,
            delivers_again: false,
            hands_over: false,
            timeout: None,
            settles: Duration::ZERO,
        }
    }
    /// Returns a heap, whose blocks are not handed over.
    pub const fn of_heap(
        name: &'static str,
        summary: &'static str,
        operations: &'static [Operation],
    ) -> Self {
        Self::new(name, summary, operations, || 0)
    }
}

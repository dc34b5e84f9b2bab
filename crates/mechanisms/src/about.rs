//! Properties of a mechanism: [`Mechanism`].
//!
//! Experiments take their rows from it, and the crash explorer its targets. Reports state from it
//! whether a receiver spins and what a kill does. It is only data: [`crate::driver`] opens the
//! ends.

use std::time::Duration;

use crate::operation::Operation;

/// One mechanism by which threads or processes pass messages.
#[derive(Debug, Clone, Copy)]
pub struct Mechanism {
    /// Name in results and on the command line.
    pub name: &'static str,
    /// Behaviour of the receiver while it waits for a message.
    pub idle: Idle,
    /// Kind of the two ends.
    pub between: Between,
    /// Requirements that some machines or builds do not fulfil.
    pub needs: &'static [Need],
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
            idle: Idle::Sleeps,
            between: Between::Processes,
            needs: &[],
            carries: Carries::Messages,
            shared_up_to: 0,
            death,
            twin: None,
            rows,
            explored: None,
        }
    }

    /// Returns the mechanism's row in an experiment, if the experiment measures it.
    pub fn row(&self, asked: Asked) -> Option<&Listing> {
        self.rows.iter().find(|row| row.asked == asked)
    }

    /// Returns the feature that the mechanism needs and this build lacks.
    pub fn missing_feature(&self) -> Option<&'static str> {
        self.needs.iter().find_map(|need| match *need {
            Need::Feature { name, built } if !built => Some(name),
            _ => None,
        })
    }
}

/// Behaviour of a receiver while it waits for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// Both ends keep a processor busy.
    Spins,
    /// The receiver polls for a moment, then sleeps.
    SpinsThenSleeps,
    /// The receiver sleeps until the kernel or the C library wakes it.
    Sleeps,
    /// The receiver sleeps; a library or a network is between it and the sender.
    Mediated,
}

/// Kind of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// Threads of one process.
    Threads,
    /// Processes.
    Processes,
}

/// A requirement of a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A feature of this crate.
    Feature {
        /// Name of the feature.
        name: &'static str,
        /// `true` if the feature is built in.
        built: bool,
    },
    /// POSIX shared memory, `/dev/shm`.
    SharedMemory,
    /// POSIX message queues.
    MessageQueues,
    /// A loopback network interface.
    Loopback,
    /// Namespaces, and permission to create them.
    Namespaces,
    /// An engine that runs containers.
    Engine,
}

/// The libraries that are measured in addition to the mechanisms of the kernel.
pub const PEERS: Need = Need::Feature { name: "peers", built: cfg!(feature = "peers") };

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
        /// A row of `survival`.
        row: &'static str,
        /// Notification of the survivor.
        survivor: AfterKill,
    },
    /// No experiment kills this mechanism. Another mechanism represents it.
    As {
        /// The mechanism.
        other: &'static str,
        /// The reason, worded so that the other mechanism's name follows it.
        why: &'static str,
    },
}

/// Notification of a survivor about a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterKill {
    /// The survivor is always notified.
    Told,
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
pub enum Asked {
    /// `round-trip`.
    RoundTrip,
    /// `throughput`.
    Throughput,
    /// `survival`.
    Survival,
    /// `wake-up`.
    WakeUp,
}

/// A mechanism's row in an experiment.
#[derive(Debug, Clone, Copy)]
pub struct Listing {
    /// The experiment.
    pub asked: Asked,
    /// Description of the row, in one line.
    pub says: &'static str,
    /// The system calls inside the timed part. Empty if the experiment's own text names them.
    pub calls: &'static str,
    /// `true` if only a full run measures more than the first cell.
    pub brief: bool,
}

impl Listing {
    /// Returns a row whose system calls the experiment's own text names.
    pub const fn new(asked: Asked, says: &'static str) -> Self {
        Self { asked, says, calls: "", brief: false }
    }

    /// Names the row's system calls.
    pub const fn calling(self, calls: &'static str) -> Self {
        Self { calls, ..self }
    }

    /// Limits every run except a full one to the row's first cell.
    pub const fn in_brief(self) -> Self {
        Self { brief: true, ..self }
    }
}

/// Properties of a message-carrying mechanism that the crash explorer uses.
#[derive(Debug, Clone, Copy)]
pub struct Explored {
    /// Name among the explorer's targets.
    pub name: &'static str,
    /// Description, in one line.
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
    pub makes_room: fn() -> u32,
    /// `true` if messages that a dead receiver received may be delivered again (at-least-once
    /// delivery).
    pub delivers_again: bool,
    /// `true` if a sender outlives its receiver and hands over to the next one.
    pub hands_over: bool,
    /// Timeout for one reply of a survivor, if the default is too short.
    pub patience: Option<Duration>,
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
            makes_room: || 1,
            delivers_again: false,
            hands_over: false,
            patience: None,
            settles: Duration::ZERO,
        }
    }
}

//! What is true of a mechanism, whoever uses it: [`Mechanism`].
//!
//! Experiments take their rows from it, the crash explorer its targets, and the report what it has
//! to know of a row: whether its receiver spins, and what a kill does. It is data: how the ends are
//! opened is in [`crate::driver`].

use std::time::Duration;

use crate::operation::Operation;

/// One mechanism by which threads or processes pass messages.
#[derive(Debug, Clone, Copy)]
pub struct Mechanism {
    /// Its name in results and on the command line.
    pub name: &'static str,
    /// What its receiver does while nothing comes.
    pub idle: Idle,
    /// What its ends are.
    pub between: Between,
    /// What it needs that not every machine or build has.
    pub needs: &'static [Need],
    /// What of a message reaches the receiver.
    pub carries: Carries,
    /// Longest message that stays whole where several senders send; 0 where there is one sender.
    pub shared_up_to: usize,
    /// What a kill of one end does.
    pub death: Death,
    /// The same mechanism with the other ends, or with the other receiver: see [`Twin`].
    pub twin: Option<Twin>,
    /// The experiments that measure it.
    pub rows: &'static [Listing],
    /// How the crash explorer uses it.
    pub explored: Option<Explored>,
}

impl Mechanism {
    /// A mechanism between processes whose receiver sleeps; it carries whole messages of one
    /// sender.
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

    /// Returns what an experiment says of it, if it measures it.
    pub fn row(&self, asked: Asked) -> Option<&Listing> {
        self.rows.iter().find(|row| row.asked == asked)
    }

    /// Returns the feature that this build lacks and the mechanism needs.
    pub fn missing_feature(&self) -> Option<&'static str> {
        self.needs.iter().find_map(|need| match *need {
            Need::Feature { name, built } if !built => Some(name),
            _ => None,
        })
    }
}

/// What a receiver does while nothing comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// Both ends keep a processor busy.
    Spins,
    /// It sleeps until the kernel or the C library wakes it.
    Sleeps,
    /// It sleeps; a library or a network of its own stands between it and the sender.
    Mediated,
}

/// What the two ends are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// Threads of one process.
    Threads,
    /// Processes.
    Processes,
}

/// What a mechanism needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A feature of this crate, and whether it is built in.
    Feature {
        /// Its name.
        name: &'static str,
        /// `true` if this build has it.
        built: bool,
    },
    /// POSIX shared memory, `/dev/shm`.
    SharedMemory,
    /// POSIX message queues.
    MessageQueues,
    /// A network interface that loops back.
    Loopback,
    /// Namespaces, and the right to make them.
    Namespaces,
    /// An engine that runs containers.
    Engine,
}

/// The libraries that are measured besides the kernel's own mechanisms.
pub const PEERS: Need = Need::Feature { name: "peers", built: cfg!(feature = "peers") };

/// What of a message reaches the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// All its bytes.
    Messages,
    /// Its first word.
    Word,
    /// That it was sent.
    Nothing,
}

/// What a kill of one end does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// The ends are threads: it takes both.
    TakesBoth,
    /// The survivor keeps the other end. `survival` kills under the name `row`, which is this
    /// mechanism's own or that of one which is the same to a survivor.
    LeavesOne {
        /// A row of `survival`.
        row: &'static str,
        /// What the survivor learns.
        survivor: AfterKill,
    },
    /// No experiment kills it; another mechanism stands for it.
    As {
        /// The mechanism.
        other: &'static str,
        /// Why, up to its name.
        why: &'static str,
    },
}

/// What a survivor learns of a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterKill {
    /// It is always notified.
    Told,
    /// It waits for ever.
    Wedged,
    /// It depends on who was killed, and when.
    Either,
}

/// The counterpart of a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twin {
    /// The same between processes; this one is between threads.
    BetweenProcesses(&'static str),
    /// The same with a receiver that sleeps; this one's spins.
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
    /// What is done, in one line.
    pub says: &'static str,
    /// The system calls inside what is timed; empty if the experiment's own text names them.
    pub calls: &'static str,
    /// `true` if only a full run measures more than the first of its cells.
    pub brief: bool,
}

impl Listing {
    /// A row whose system calls the experiment's own text names.
    pub const fn new(asked: Asked, says: &'static str) -> Self {
        Self { asked, says, calls: "", brief: false }
    }

    /// The same, with its system calls.
    pub const fn calling(self, calls: &'static str) -> Self {
        Self { calls, ..self }
    }

    /// The same, of which only a full run measures more than the first cell.
    pub const fn in_brief(self) -> Self {
        Self { brief: true, ..self }
    }
}

/// How the crash explorer uses a mechanism that carries messages.
#[derive(Debug, Clone, Copy)]
pub struct Explored {
    /// Its name among the explorer's targets.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// What it never promised; empty if there is nothing to say.
    pub caveat: &'static str,
    /// `true` if it is Tontine's own, whose failure is ours.
    pub own: bool,
    /// What a process is killed in, in the order of the report.
    pub operations: &'static [Operation],
    /// What the process that takes over from a victim of the first does first, and may die in.
    pub successions: &'static [(Operation, Operation)],
    /// Operations whose succession takes longer than everything else together.
    pub long_successions: &'static [Operation],
    /// Messages that an empty queue takes before the next `send` waits, or grows the queue.
    pub capacity: fn() -> u32,
    /// Messages that have to be taken out of a full queue before a waiting `send` goes on.
    pub makes_room: fn() -> u32,
    /// `true` if a message may come again that a dead receiver had received: at least once.
    pub delivers_again: bool,
    /// `true` if a sender outlives its receiver and hands over to the next one.
    pub hands_over: bool,
    /// How long a survivor may take for one answer, if that is long.
    pub patience: Option<Duration>,
    /// How long its own threads take to come to rest.
    pub settles: Duration,
}

impl Explored {
    /// A peer that comes to rest at once, and whose full queue has room after one message.
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

//! How much a run measures: [`Size`], and the counts that follow from it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The three sizes of a run, the smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// A look: minutes.
    Quick,
    /// What a report should rest on.
    #[default]
    Default,
    /// Everything, at the sizes that the sources used.
    Full,
}

impl Size {
    /// All three, the smallest first.
    pub const ALL: [Self; 3] = [Self::Quick, Self::Default, Self::Full];

    /// Its name, as in `results.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Full => "full",
        }
    }

    /// How long one invocation may take: many times what the slowest takes on a slow machine.
    pub fn deadline(self) -> Duration {
        Duration::from_secs(self.pick(20, 60, 1_800) as u64)
    }

    /// Invocations of each cell, unless its experiment wants another number.
    pub fn invocations(self) -> usize {
        self.pick(6, 10, 20)
    }

    /// Invocations of each cell whose invocation takes seconds: whole builds, sessions, containers.
    pub fn macro_invocations(self) -> usize {
        self.pick(2, 3, 6)
    }

    /// The same of a virtual Unix, which is shorter: enough for an interval to say something.
    pub fn virtual_invocations(self) -> usize {
        self.pick(3, 4, 6)
    }

    /// Round trips timed in one invocation, where nobody sleeps.
    pub fn spinning_rounds(self) -> usize {
        self.pick(100_000, 300_000, 1_000_000)
    }

    /// Round trips timed in one invocation, where the other end is woken.
    pub fn blocking_rounds(self) -> usize {
        self.pick(5_000, 15_000, 1_000_000)
    }

    /// Round trips timed in one invocation between containers: fewer, since starting these takes
    /// most of its time.
    pub fn container_rounds(self) -> usize {
        self.pick(3_000, 5_000, 1_000_000)
    }

    /// Rounds thrown away before `rounds` are timed: a tenth, at most 10,000.
    pub fn warm_up(self, rounds: usize) -> usize {
        (rounds / 10).min(10_000)
    }

    /// Liveness checks timed in one invocation.
    pub fn checks(self) -> usize {
        self.pick(1_000_000, 10_000_000, 10_000_000)
    }

    /// Signal deliveries in one invocation. A full cell has a million of them, as source 000.
    pub fn deliveries(self) -> usize {
        self.pick(100, 1_000, 1_000_000 / 20)
    }

    /// Milliseconds for which messages stream in one invocation.
    pub fn streaming_ms(self) -> usize {
        self.pick(40, 50, 1_000)
    }

    /// Random kills in one invocation of one mechanism.
    pub fn kills(self) -> usize {
        self.pick(20, 30, 200)
    }

    /// Deaths that are waited for in one invocation.
    pub fn deaths(self) -> usize {
        self.pick(30, 50, 1_000)
    }

    /// Increments that each thread makes in one invocation.
    pub fn increments(self) -> usize {
        self.pick(1_000_000, 10_000_000, 10_000_000)
    }

    /// Milliseconds for which blocks are allocated and freed in one invocation, for each kind of
    /// work.
    pub fn allocating_ms(self) -> usize {
        self.pick(10, 20, 500)
    }

    /// Times that a session goes through its script in one invocation.
    pub fn iterations(self) -> usize {
        self.pick(1, 2, 5)
    }

    /// Into how many parts computing is cut, of which one is done, where a virtual Unix does again
    /// on real processors what a real thing did: 1, if all of it.
    pub fn computing_parts(self) -> u32 {
        self.pick(32, 32, 1) as u32
    }

    /// How long an invocation that runs other programs waits for them: less than it may take
    /// itself, so that the row can say what did not end.
    pub fn patience(self) -> Duration {
        Duration::from_secs(self.pick(15, 45, 600) as u64)
    }

    /// Signals that a receiver takes in one round of `signal-throughput`: source 001's number.
    pub fn signals(self) -> usize {
        1_000
    }

    /// Children that a process forks in one round of `fork-throughput`: source 001's number.
    pub fn forks(self) -> usize {
        50
    }

    /// Processes that one invocation of `spawn` makes, one after another.
    pub fn spawns(self) -> usize {
        self.pick(100, 300, 2_000)
    }

    fn pick(self, quick: usize, default: usize, full: usize) -> usize {
        match self {
            Self::Quick => quick,
            Self::Default => default,
            Self::Full => full,
        }
    }
}

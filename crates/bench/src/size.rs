//! Size of a run: [`Size`], and the counts that follow from it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The three sizes of a run, the smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// A quick look: minutes.
    Quick,
    /// The basis of a report.
    #[default]
    Default,
    /// Everything, at the sizes that the sources used.
    Full,
}

impl Size {
    /// All three, the smallest first.
    pub const ALL: [Self; 3] = [Self::Quick, Self::Default, Self::Full];

    /// Returns the name, as in `results.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Full => "full",
        }
    }

    /// Returns the timeout of an invocation: many times the duration of the slowest on a slow
    /// machine.
    pub fn deadline(self) -> Duration {
        Duration::from_secs(self.pick(20, 60, 1_800) as u64)
    }

    /// Returns the number of invocations of each cell, unless its experiment wants another number.
    pub fn invocations(self) -> usize {
        self.pick(6, 10, 20)
    }

    /// Returns the number of invocations of each cell whose invocations take seconds: whole builds,
    /// sessions, containers.
    pub fn macro_invocations(self) -> usize {
        self.pick(2, 3, 6)
    }

    /// Returns the number of invocations of a virtual Unix, which are shorter: enough for a useful
    /// interval.
    pub fn virtual_invocations(self) -> usize {
        self.pick(3, 4, 6)
    }

    /// Returns the number of round trips timed in one invocation, if no end sleeps.
    pub fn spinning_rounds(self) -> usize {
        self.pick(100_000, 300_000, 1_000_000)
    }

    /// Returns the number of round trips timed in one invocation, if the other end is woken.
    pub fn blocking_rounds(self) -> usize {
        self.pick(5_000, 15_000, 1_000_000)
    }

    /// Returns the number of round trips timed in one invocation between containers: fewer, since
    /// starting these takes most of its time.
    pub fn container_rounds(self) -> usize {
        self.pick(3_000, 5_000, 1_000_000)
    }

    /// Returns the number of rounds discarded before `rounds` are timed: a tenth, at most 10,000.
    pub fn warm_up(self, rounds: usize) -> usize {
        (rounds / 10).min(10_000)
    }

    /// Returns the number of liveness checks timed in one invocation.
    pub fn checks(self) -> usize {
        self.pick(1_000_000, 10_000_000, 10_000_000)
    }

    /// Returns the number of signal deliveries in one invocation. A full cell has a million of
    /// them, as source 000.
    pub fn deliveries(self) -> usize {
        self.pick(100, 1_000, 1_000_000 / 20)
    }

    /// Returns the milliseconds for which messages stream in one invocation.
    pub fn streaming_ms(self) -> usize {
        self.pick(40, 50, 1_000)
    }

    /// Returns the number of random kills in one invocation of one mechanism.
    pub fn kills(self) -> usize {
        self.pick(20, 30, 200)
    }

    /// Returns the number of deaths that one invocation waits for.
    pub fn deaths(self) -> usize {
        self.pick(30, 50, 1_000)
    }

    /// Returns the number of increments that each thread makes in one invocation.
    pub fn increments(self) -> usize {
        self.pick(1_000_000, 10_000_000, 10_000_000)
    }

    /// Returns the milliseconds for which blocks are allocated and freed in one invocation, for
    /// each kind of work.
    pub fn allocating_ms(self) -> usize {
        self.pick(10, 20, 500)
    }

    /// Returns the number of times that a session runs its script in one invocation.
    pub fn iterations(self) -> usize {
        self.pick(1, 2, 5)
    }

    /// Returns the number of parts into which computing is divided, of which one is done, when a
    /// virtual Unix repeats on real processors what a real program did: 1, if all of it.
    pub fn computing_parts(self) -> u32 {
        self.pick(32, 32, 1) as u32
    }

    /// Returns the timeout of the other programs that an invocation runs: less than its own, so
    /// that the row can name the one that did not end.
    pub fn patience(self) -> Duration {
        Duration::from_secs(self.pick(15, 45, 600) as u64)
    }

    /// Returns the number of signals that a receiver takes in one round of `signal-throughput`:
    /// source 001's number.
    pub fn signals(self) -> usize {
        1_000
    }

    /// Returns the number of children that a process forks in one round of `fork-throughput`:
    /// source 001's number.
    pub fn forks(self) -> usize {
        50
    }

    /// Returns the number of processes that one invocation of `spawn` creates, one after another.
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

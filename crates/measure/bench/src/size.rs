//! The size of a run, [`Size`], and the counts that depend on it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The three sizes of a run, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    Quick,
    #[default]
    Default,
    /// All rows, in the amounts that the sources used.
    Full,
}

impl Size {
    pub const ALL: [Self; 3] = [Self::Quick, Self::Default, Self::Full];

    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Full => "full",
        }
    }

    /// Returns the amount that one invocation measures in a headline run: less than in a run of all
    /// experiments, because more invocations narrow an interval faster than longer ones.
    pub fn of_headline_invocation(self) -> Self {
        match self {
            Self::Quick | Self::Default => Self::Quick,
            Self::Full => Self::Default,
        }
    }

    /// Returns the timeout of an invocation, which is many times the duration of the slowest
    /// invocation on a slow machine.
    pub fn deadline(self) -> Duration {
        Duration::from_secs(self.pick(20, 60, 1_800) as u64)
    }

    /// Returns the number of invocations of each cell, unless its experiment requests another
    /// number.
    pub fn invocations(self) -> usize {
        self.pick(6, 10, 20)
    }

    /// Returns the number of invocations for cells whose invocations take seconds: whole builds,
    /// sessions, containers.
    pub fn macro_invocations(self) -> usize {
        self.pick(2, 3, 6)
    }

    /// Returns the number of invocations of a virtual Unix, which are shorter. The number is enough
    /// for a useful interval.
    pub fn virtual_invocations(self) -> usize {
        self.pick(3, 4, 6)
    }

    /// Returns the number of pairs for two commands of the user. 20 is the least for which the
    /// smallest resolvable difference is known.
    pub fn pairs_of_commands(self) -> usize {
        self.pick(20, 30, 100)
    }

    /// Returns the number of round trips timed in one invocation if neither end sleeps.
    pub fn spinning_rounds(self) -> usize {
        self.pick(100_000, 300_000, 1_000_000)
    }

    /// Returns the number of round trips timed in one invocation if the other end must be woken.
    pub fn blocking_rounds(self) -> usize {
        self.pick(1_000, 15_000, 1_000_000)
    }

    /// Returns the number of round trips timed in one invocation between containers. It is smaller,
    /// because starting the containers takes most of the time.
    pub fn container_rounds(self) -> usize {
        self.pick(3_000, 5_000, 1_000_000)
    }

    /// Returns the number of round trips between two hosts timed in one invocation. It is smaller,
    /// because each takes the time of several wake-ups.
    pub fn remote_rounds(self) -> usize {
        self.pick(1_000, 5_000, 100_000)
    }

    /// Returns the number of rounds discarded before `rounds` are timed: a tenth, but at most
    /// 10,000.
    pub fn warm_up(self, rounds: usize) -> usize {
        (rounds / 10).min(10_000)
    }

    /// Returns the number of liveness checks timed in one invocation.
    pub fn checks(self) -> usize {
        self.pick(1_000_000, 10_000_000, 10_000_000)
    }

    /// Returns the number of signal deliveries in one invocation. A full cell has a million
    /// deliveries, like source 000.
    pub fn deliveries(self) -> usize {
        self.pick(100, 1_000, 1_000_000 / 20)
    }

    /// Returns the time in milliseconds for which messages stream in one invocation.
    pub fn streaming_ms(self) -> usize {
        self.pick(40, 50, 1_000)
    }

    /// Returns the time in milliseconds for which messages stream between two hosts in one
    /// invocation. It is longer, because the processes on the path take turns on the processors.
    pub fn remote_streaming_ms(self) -> usize {
        self.pick(100, 200, 2_000)
    }

    /// Returns the number of random kills in one invocation of one mechanism.
    pub fn kills(self) -> usize {
        self.pick(20, 30, 200)
    }

    /// Returns the number of waits of a millisecond, with and without messages, that one invocation
    /// of `waiting-cost` makes.
    pub fn waits(self) -> usize {
        self.pick(100, 200, 1_000)
    }

    /// Returns the number of deaths for which one invocation waits.
    pub fn deaths(self) -> usize {
        self.pick(30, 50, 1_000)
    }

    /// Returns the number of increments that each thread makes in one invocation.
    pub fn increments(self) -> usize {
        self.pick(1_000_000, 10_000_000, 10_000_000)
    }

    /// Returns the time in milliseconds for which one invocation allocates and frees blocks, for
    /// each kind of work.
    pub fn allocating_ms(self) -> usize {
        self.pick(10, 20, 500)
    }

    /// Returns the number of times that a session runs its script in one invocation.
    pub fn iterations(self) -> usize {
        self.pick(1, 2, 5)
    }

    /// Returns the number of parts into which computation is divided when a virtual Unix repeats
    /// the work of a real program on real processors. One part is done, so that 1 means all of the
    /// work.
    pub fn computing_parts(self) -> u32 {
        self.pick(32, 32, 1) as u32
    }

    /// Returns the timeout of other programs that an invocation runs. It is shorter than the
    /// invocation's own, so that the row can name the program that did not end.
    pub fn timeout(self) -> Duration {
        Duration::from_secs(self.pick(15, 45, 600) as u64)
    }

    /// Returns the number of signals that a receiver takes in one round of `signal-throughput`,
    /// which is source 001's number.
    pub fn signals(self) -> usize {
        1_000
    }

    /// Returns the number of children that a process forks in one round of `fork-throughput`, which
    /// is source 001's number.
    pub fn forks(self) -> usize {
        50
    }

    fn pick(self, quick: usize, default: usize, full: usize) -> usize {
        match self {
            Self::Quick => quick,
            Self::Default => default,
            Self::Full => full,
        }
    }
}

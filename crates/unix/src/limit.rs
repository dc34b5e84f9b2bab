//! Limits: [`Resource`], [`Rlimit`].

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    /// `RLIMIT_CPU`: seconds of processor time of a process. SIGXCPU comes at the soft limit and
    /// each second after it, SIGKILL at the hard one.
    Cpu,
    /// `RLIMIT_NPROC`: processes and threads of a user.
    Processes,
    /// `RLIMIT_SIGPENDING`: queued signals of a user.
    PendingSignals,
    /// `RLIMIT_NOFILE`: one more than the highest descriptor.
    Descriptors,
}

impl Resource {
    /// All.
    pub const ALL: [Self; 4] =
        [Self::Cpu, Self::Processes, Self::PendingSignals, Self::Descriptors];
}

/// How much of it. `u64::MAX` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rlimit {
    /// What holds.
    pub soft: u64,
    /// How far the process may raise it.
    pub hard: u64,
}

impl Rlimit {
    /// None.
    pub const INFINITY: Self = Self { soft: u64::MAX, hard: u64::MAX };

    /// The same, soft and hard.
    pub const fn of(limit: u64) -> Self {
        Self { soft: limit, hard: limit }
    }
}

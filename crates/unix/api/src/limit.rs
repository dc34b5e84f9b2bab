//! Resource limits: [`Resource`], [`Rlimit`].

/// A resource with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    /// `RLIMIT_CPU`: seconds of processor time of a process. The system sends SIGXCPU at the soft
    /// limit and every second after that, and SIGKILL at the hard limit.
    Cpu,
    /// `RLIMIT_NPROC`: processes and threads of a user.
    Processes,
    /// `RLIMIT_SIGPENDING`: queued signals of a user.
    PendingSignals,
    /// `RLIMIT_NOFILE`: one more than the highest permitted descriptor.
    Descriptors,
}

impl Resource {
    /// All resources.
    pub const ALL: [Self; 4] =
        [Self::Cpu, Self::Processes, Self::PendingSignals, Self::Descriptors];
}

/// A resource limit, as in `struct rlimit`. `u64::MAX` means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rlimit {
    /// The limit in force.
    pub soft: u64,
    /// The maximum to which the process may raise `soft`.
    pub hard: u64,
}

impl Rlimit {
    /// No limit.
    pub const INFINITY: Self = Self { soft: u64::MAX, hard: u64::MAX };

    /// Returns a limit whose soft and hard value are both `limit`.
    pub const fn of(limit: u64) -> Self {
        Self { soft: limit, hard: limit }
    }
}

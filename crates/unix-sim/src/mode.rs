//! The ways to exclude one processor from what another one changes: [`LockingMode`].
//!
//! A mode decides which locks exist; the table stands in `lock/lock_order.rs` and, printed, in
//! `docs/lock-order.md`. What a mode does to system calls beside that is the kernel's business.

use std::fmt;

/// The locking of the virtual Unix: which locks exist, and where calls run.
///
/// ```
/// assert_eq!(tontine_unix_sim::LockingMode::PerProcess.to_string(), "per-process");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockingMode {
    /// One processor. Nothing switches inside of the kernel except where it sleeps, so only the
    /// locks remain that are held across a sleep, `pgrphash_lock` and `pg_lock`, and those that the
    /// clock takes.
    Uniprocessor,
    /// As OSF/1.0 was: a thread that makes any call but exec waits for processor 0 and runs there.
    Master,
    /// One lock for the relations of all processes, their groups and who is in them, around
    /// whatever touches these. The simple locks are the paper's.
    Coarse,
    /// As OSF/1.1 became: tables 1 and 3 of the paper.
    Parallel,
    /// [`LockingMode::Parallel`] with locks of each process in place of the one
    /// `proc_relation_lock`: what the paper's section 9 imagines.
    PerProcess,
}

impl LockingMode {
    /// All modes, in the order of the tables.
    pub const ALL: [Self; 5] =
        [Self::Uniprocessor, Self::Master, Self::Coarse, Self::Parallel, Self::PerProcess];
}

impl fmt::Display for LockingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Uniprocessor => "uniprocessor",
            Self::Master => "master",
            Self::Coarse => "coarse",
            Self::Parallel => "parallel",
            Self::PerProcess => "per-process",
        })
    }
}

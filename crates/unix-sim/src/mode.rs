//! The ways to exclude one processor from data that another one changes: [`LockingMode`].
//!
//! A mode decides which locks exist. The table is in `lock/lock_order.rs`;
//! `docs/internals/lock-order.md` is printed from it. The kernel implements the other effects of a
//! mode on system calls.

use std::fmt;

/// The locking of the virtual Unix: which locks exist, and where system calls run.
///
/// ```
/// assert_eq!(tontine_unix_sim::LockingMode::PerProcess.to_string(), "per-process");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockingMode {
    /// One processor. The kernel switches threads only if a thread sleeps, so only two kinds of
    /// locks remain: those held across a sleep (`pgrphash_lock` and `pg_lock`) and those that the
    /// clock takes.
    Uniprocessor,
    /// Like OSF/1.0: a thread that makes any call except exec waits for processor 0, and the call
    /// runs there.
    Master,
    /// One lock protects the relations of all processes, the groups and their members, and is held
    /// during every access to them. The simple locks are the same as in the paper.
    Coarse,
    /// Like OSF/1.1: tables 1 and 3 of the paper.
    Parallel,
    /// Like [`LockingMode::Parallel`], but each process has its own lock instead of the single
    /// `proc_relation_lock`, as section 9 of the paper suggests.
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

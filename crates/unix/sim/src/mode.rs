//! The ways to exclude one processor from data that another one changes: [`LockingMode`].
//!
//! A mode decides which locks exist. The table is in `lock/lock_order.rs`;
//! `docs/internals/lock-order.md` is printed from it. The kernel implements the other effects of a
//! mode on system calls.

use std::fmt;

/// The locking of the virtual Unix: which locks exist, and where system calls run.
///
/// ```
/// assert_eq!(tontine_unix_sim::LockingMode::Parallel.to_string(), "parallel");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockingMode {
    /// A single processor. The kernel switches threads only if a thread sleeps, so two kinds of
    /// locks remain: those held across a sleep (`pgrphash_lock` and `pg_lock`) and those that the
    /// clock takes.
    Uniprocessor,
    /// Like OSF/1.0: a thread that makes any call except exec waits for processor 0, and the call
    /// runs there.
    Master,
    /// Like OSF/1.1: tables 1 and 3 of the paper.
    Parallel,
}

impl LockingMode {
    /// All modes, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Uniprocessor, Self::Master, Self::Parallel];
}

impl fmt::Display for LockingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Uniprocessor => "uniprocessor",
            Self::Master => "master",
            Self::Parallel => "parallel",
        })
    }
}

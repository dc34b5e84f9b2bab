//! The definition of the lock order and of the locks of each mode: [`ORDER`].
//!
//! One zero-sized type per lock implements [`LockClass`]. The list at the end of this file *is* the
//! order: a lock may be taken while locks above it in the list are held. The order cannot contain a
//! cycle. [`RanksBefore`] expresses the order to the compiler, [`LockClass::RANK`] to the check at
//! run time; `docs/internals/lock-order.md` is printed from [`ORDER`].
//!
//! Source: tables 1 (§5) and 3 (§5.5) of the paper. In general, blocking locks come
//! before simple ones; within each kind, global locks come before local ones.

use crate::LockingMode;
use crate::held::InterruptLevel;

/// The way in which a lock excludes other threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// A waiting thread blocks. Many readers or one writer may hold the lock.
    Blocking,
    /// A waiting thread spins.
    Simple,
}

/// A line of the order.
pub(crate) struct OrderRow {
    /// The name in the paper.
    pub(crate) name: &'static str,
    /// The number in table 3 of the paper.
    pub(crate) paper: Option<u8>,
    /// Simple or blocking.
    pub(crate) kind: LockKind,
    /// The objects that have such a lock: one global lock, or one per object.
    pub(crate) scope: &'static str,
    /// The data that only the holder of the lock accesses.
    pub(crate) guards: &'static str,
    /// The level at which the lock is always taken.
    pub(crate) spl: InterruptLevel,
    /// Whether the lock exists in each mode, in the order of [`LockingMode::ALL`]. In a mode that
    /// omits the lock, no two threads can reach the data that it guards at the same time.
    pub(crate) exists: [bool; 3],
    /// The reason why the lock comes after the lock of the line above.
    pub(crate) edge: &'static str,
}

impl OrderRow {
    /// Returns `true` if the lock exists in `mode`.
    pub(crate) const fn exists_in(&self, mode: LockingMode) -> bool {
        self.exists[mode as usize]
    }
}

/// The position of a lock in the order, as a type.
pub(crate) trait LockClass: 'static {
    /// The index in [`ORDER`]; a lock may be taken while locks of smaller ranks are held.
    const RANK: u8;
    /// The line of the order.
    const ROW: &'static OrderRow = &ORDER[Self::RANK as usize];
    /// The name in the paper.
    const NAME: &'static str = Self::ROW.name;
}

/// `Inner` may be taken while a lock of this class is held.
#[diagnostic::on_unimplemented(
    message = "`{Inner}` must not be taken while `{Self}` is held",
    note = "lock/lock_order.rs states the order"
)]
pub(crate) trait RanksBefore<Inner: LockClass>: LockClass {}

/// Defines the classes in a list; each class comes before all the classes that follow it.
macro_rules! classes {
    ($($class:ident = $row:expr;)+) => {
        #[derive(Clone, Copy)]
        enum Rank { $($class),+ }

        $(
            #[doc = concat!("The class of `", stringify!($class), "`: its line in [`ORDER`].")]
            pub(crate) enum $class {}

            impl LockClass for $class {
                const RANK: u8 = Rank::$class as u8;
            }
        )+

        /// The number of classes.
        pub(crate) const CLASSES: usize = [$(Rank::$class),+].len();

        /// The lock order.
        pub(crate) static ORDER: [OrderRow; CLASSES] = [$($row),+];

        before!($($class)+);

        /// Calls a macro with all classes, in their order.
        #[cfg(test)]
        macro_rules! list_of_classes {
            ($then:ident) => { $then!{ $($class)+ } };
        }
    };
}

/// Implements [`RanksBefore`] for every ordered pair in a list.
macro_rules! before {
    ($outer:ident $($inner:ident)*) => {
        $(impl RanksBefore<$inner> for $outer {})*
        before!($($inner)*);
    };
    () => {};
}

use InterruptLevel::{Base, High};
use LockKind::{Blocking, Simple};

// `exists`: uniprocessor, master, parallel.
classes! {
    PgrphashLock = OrderRow {
        name: "pgrphash_lock",
        paper: Some(1),
        kind: Blocking,
        scope: "global",
        guards: "the hash table of process groups",
        spl: Base,
        exists: [true, false, true],
        edge: "setpgid finds a group in the table, then examines the relations of its members.",
    };
    ProcRelationLock = OrderRow {
        name: "proc_relation_lock",
        paper: Some(2),
        kind: Blocking,
        scope: "global",
        guards: "p_pptr, p_cptr, p_ysptr and p_osptr of all processes",
        spl: Base,
        exists: [false, false, true],
        edge: "An exiting process notifies the groups of its children that they may be orphaned.",
    };
    PgLock = OrderRow {
        name: "pg_lock",
        paper: Some(3),
        kind: Blocking,
        scope: "per process group",
        guards: "the group and its list of members",
        spl: Base,
        exists: [true, false, true],
        edge: "The last blocking lock is held across pgsignal, which takes locks of each member.",
    };
    UidhashLock = OrderRow {
        name: "uidhash_lock",
        paper: Some(4),
        kind: Simple,
        scope: "global",
        guards: "the hash table of user ids",
        spl: Base,
        exists: [false, false, true],
        edge: "The holder of the first simple lock must not sleep, so no blocking lock may follow.",
    };
    PidLock = OrderRow {
        name: "pid_lock",
        paper: Some(5),
        kind: Simple,
        scope: "global",
        guards: "the table of handles: the process of each pid",
        spl: Base,
        exists: [false, false, true],
        edge: "Table 3 of the paper lists it in this position.",
    };
    PSiglock = OrderRow {
        name: "p_siglock",
        paper: None,
        kind: Simple,
        scope: "per process",
        guards: "p_sigwait and p_end_thread",
        spl: Base,
        exists: [false, true, true],
        edge: "It is local, so it follows global locks. sig_lock_or_return holds no other lock.",
    };
    PLock = OrderRow {
        name: "p_lock",
        paper: Some(6),
        kind: Simple,
        scope: "per process",
        guards: "the contents of a process, p_forkcnt among them",
        spl: Base,
        exists: [false, true, true],
        edge: "sig_lock_or_return takes p_siglock first; fork then counts while both are held.",
    };
    TLock = OrderRow {
        name: "t_lock",
        paper: None,
        kind: Simple,
        scope: "per terminal or pipe",
        guards: "the queues, modes and foreground group; no signal is sent while it is held",
        spl: Base,
        exists: [false, true, true],
        edge: "A descriptor is looked up in its process, then its terminal or pipe is used.",
    };
    PgRefLock = OrderRow {
        name: "pg_ref_lock",
        paper: Some(7),
        kind: Simple,
        scope: "per process group",
        guards: "pg_refcnt",
        spl: Base,
        exists: [false, false, true],
        edge: "A reference is taken while p_lock or t_lock keeps the pointer to the group valid.",
    };
    SLock = OrderRow {
        name: "s_lock",
        paper: Some(8),
        kind: Simple,
        scope: "per session",
        guards: "the contents of a session",
        spl: Base,
        exists: [false, false, true],
        edge: "Table 3 of the paper lists it in this position.",
    };
    UTimeLock = OrderRow {
        name: "u_time_lock",
        paper: None,
        kind: Simple,
        scope: "per process",
        guards: "the processor time used, and its limit",
        spl: High,
        exists: [true, true, true],
        edge: "A tick takes it, and may occur while any lock of base spl is held.",
    };
    EventLock = OrderRow {
        name: "event_lock",
        paper: None,
        kind: Simple,
        scope: "global",
        guards: "the queue of signals whose generation is deferred",
        spl: High,
        exists: [true, true, true],
        edge: "A tick that finds the limit exceeded defers a SIGXCPU.",
    };
}

#[cfg(test)]
pub(super) use list_of_classes as with_classes;

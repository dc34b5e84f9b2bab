//! The one place that states in which order locks are taken, and which mode has which.
//!
//! [`Class`] is implemented by one zero-sized type a lock; the list at the end of this file *is*
//! the order: a lock may be taken while those above it are held. It cannot contain a cycle.
//! [`Before`] tells the compiler, [`Class::RANK`] the run-time check; `docs/lock-order.md` is
//! printed from [`ORDER`].
//!
//! Source: tables 1 (§5) and 3 (§5.5) of the paper, and its §9. In general blocking locks come
//! before simple ones, and, subject to this, global ones before local ones.

use crate::LockingMode;
use crate::held::Level;

/// How a lock keeps others out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A thread that waits is blocked. Many readers or one writer.
    Blocking,
    /// A thread that waits spins.
    Simple,
}

/// Whether a mode has a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It exists.
    Kept,
    /// No two can come to it at once in this mode, so that it vanishes; its data stay.
    Absent,
    /// Other locks stand in its place. To take it is a mistake.
    Replaced,
}

/// One line of the order.
#[derive(Debug)]
pub(crate) struct Row {
    /// As the paper calls it.
    pub(crate) name: &'static str,
    /// Its number in the paper's table 3.
    pub(crate) paper: Option<u8>,
    /// Simple or blocking.
    pub(crate) kind: Kind,
    /// What there is one of it for.
    pub(crate) scope: &'static str,
    /// What is only touched by who holds it.
    pub(crate) guards: &'static str,
    /// The level at which it is always taken.
    pub(crate) spl: Level,
    /// By [`LockingMode::ALL`].
    pub(crate) standing: [Standing; 5],
    /// Why it stands below the line above it.
    pub(crate) edge: &'static str,
}

impl Row {
    /// Whether `mode` has it.
    pub(crate) const fn standing(&self, mode: LockingMode) -> Standing {
        self.standing[mode as usize]
    }
}

/// A lock's place in the order, as a type.
pub(crate) trait Class: 'static {
    /// Its line in [`ORDER`]; a lock may be taken while those of a smaller rank are held.
    const RANK: u8;
    /// What the order says of it.
    const ROW: &'static Row = &ORDER[Self::RANK as usize];
    /// As the paper calls it.
    const NAME: &'static str = Self::ROW.name;
}

/// `Inner` may be taken while a lock of this class is held.
#[diagnostic::on_unimplemented(
    message = "`{Inner}` must not be taken while `{Self}` is held",
    note = "lock/lock_order.rs states the order"
)]
pub(crate) trait Before<Inner: Class>: Class {}

/// The classes from a list, each before all that follow.
macro_rules! classes {
    ($($class:ident = $row:expr;)+) => {
        #[derive(Clone, Copy)]
        enum Rank { $($class),+ }

        $(
            #[doc = concat!("The class of `", stringify!($class), "`: its line in [`ORDER`].")]
            #[derive(Debug)]
            pub(crate) enum $class {}

            impl Class for $class {
                const RANK: u8 = Rank::$class as u8;
            }
        )+

        /// How many classes there are.
        pub(crate) const CLASSES: usize = [$(Rank::$class),+].len();

        /// The order.
        pub(crate) static ORDER: [Row; CLASSES] = [$($row),+];

        before!($($class)+);

        /// Calls a macro with all classes, in their order.
        #[cfg(test)]
        macro_rules! list_of_classes {
            ($then:ident) => { $then!{ $($class)+ } };
        }
    };
}

/// Implements [`Before`] for every pair of a list.
macro_rules! before {
    ($outer:ident $($inner:ident)*) => {
        $(impl Before<$inner> for $outer {})*
        before!($($inner)*);
    };
    () => {};
}

use Kind::{Blocking, Simple};
use Level::{Base, High};
use Standing::{Absent, Kept, Replaced};

// `standing`: uniprocessor, master, coarse, parallel, per-process.
classes! {
    CoarseLock = Row {
        name: "coarse_lock",
        paper: None,
        kind: Blocking,
        scope: "global",
        guards: "relations, groups and their members, in mode coarse",
        spl: Base,
        standing: [Replaced, Replaced, Kept, Replaced, Replaced],
        edge: "Held across all that needs relations or groups, so before what it replaces.",
    };
    PgrphashLock = Row {
        name: "pgrphash_lock",
        paper: Some(1),
        kind: Blocking,
        scope: "global",
        guards: "the hash table of process groups",
        spl: Base,
        standing: [Kept, Absent, Absent, Kept, Kept],
        edge: "A group is found in the table, then its members' relations are looked at: setpgid.",
    };
    ProcRelationLock = Row {
        name: "proc_relation_lock",
        paper: Some(2),
        kind: Blocking,
        scope: "global",
        guards: "p_pptr, p_cptr, p_ysptr and p_osptr of all processes",
        spl: Base,
        standing: [Absent, Absent, Absent, Kept, Replaced],
        edge: "A process that goes tells its children's groups that they may be orphaned.",
    };
    PFamilyLock = Row {
        name: "p_family_lock",
        paper: None,
        kind: Blocking,
        scope: "per process",
        guards: "the list of a process's children, and their p_pptr, p_ysptr and p_osptr",
        spl: Base,
        standing: [Replaced, Replaced, Replaced, Replaced, Kept],
        edge: "In the place of proc_relation_lock, and blocking like it: for setpgid.",
    };
    PgLock = Row {
        name: "pg_lock",
        paper: Some(3),
        kind: Blocking,
        scope: "per process group",
        guards: "the group and its list of members",
        spl: Base,
        standing: [Kept, Absent, Absent, Kept, Kept],
        edge: "The last blocking lock: held across pgsignal, which takes locks of each member.",
    };
    UidhashLock = Row {
        name: "uidhash_lock",
        paper: Some(4),
        kind: Simple,
        scope: "global",
        guards: "the hash table of user ids",
        spl: Base,
        standing: [Absent, Absent, Kept, Kept, Kept],
        edge: "The first simple lock: who spins must not hold up who sleeps.",
    };
    PidLock = Row {
        name: "pid_lock",
        paper: Some(5),
        kind: Simple,
        scope: "global",
        guards: "the table of handles: which process a pid is",
        spl: Base,
        standing: [Absent, Absent, Kept, Kept, Kept],
        edge: "The order of the paper's table 3.",
    };
    PSiglock = Row {
        name: "p_siglock",
        paper: None,
        kind: Simple,
        scope: "per process",
        guards: "p_sigwait and p_end_thread",
        spl: Base,
        standing: [Absent, Kept, Kept, Kept, Kept],
        edge: "Local, so after the global ones; sig_lock_or_return takes it with nothing held.",
    };
    PLock = Row {
        name: "p_lock",
        paper: Some(6),
        kind: Simple,
        scope: "per process",
        guards: "the contents of a process, p_forkcnt among them",
        spl: Base,
        standing: [Absent, Kept, Kept, Kept, Kept],
        edge: "sig_lock_or_return, then what it lets change: a fork is counted under both.",
    };
    TLock = Row {
        name: "t_lock",
        paper: None,
        kind: Simple,
        scope: "per terminal or pipe",
        guards: "its queues, its modes and its foreground group; no signal is sent under it",
        spl: Base,
        standing: [Absent, Kept, Kept, Kept, Kept],
        edge: "A descriptor is looked up in its process, then what it stands for is used.",
    };
    PgRefLock = Row {
        name: "pg_ref_lock",
        paper: Some(7),
        kind: Simple,
        scope: "per process group",
        guards: "pg_refcnt",
        spl: Base,
        standing: [Absent, Absent, Kept, Kept, Kept],
        edge: "A reference is taken while p_lock or t_lock keeps the pointer to the group true.",
    };
    SLock = Row {
        name: "s_lock",
        paper: Some(8),
        kind: Simple,
        scope: "per session",
        guards: "the contents of a session",
        spl: Base,
        standing: [Absent, Absent, Kept, Kept, Kept],
        edge: "The order of the paper's table 3.",
    };
    UTimeLock = Row {
        name: "u_time_lock",
        paper: None,
        kind: Simple,
        scope: "per process",
        guards: "the processor time used, and its limit",
        spl: High,
        standing: [Kept, Kept, Kept, Kept, Kept],
        edge: "A tick takes it, and lands while any lock of base spl may be held.",
    };
    EventLock = Row {
        name: "event_lock",
        paper: None,
        kind: Simple,
        scope: "global",
        guards: "the queue of signals whose generation is deferred",
        spl: High,
        standing: [Kept, Kept, Kept, Kept, Kept],
        edge: "A tick that finds the limit exceeded defers a SIGXCPU.",
    };
}

#[cfg(test)]
pub(super) use list_of_classes as with_classes;

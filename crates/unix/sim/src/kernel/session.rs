//! Process groups (§5.1), sessions (§5.3) and their terminals, as data: [`Pgrp`], [`Session`],
//! [`Terminal`].
//!
//! A group belongs to a session, a session may have a terminal, and that terminal refers to its
//! session and to a group. Therefore one file defines the three. [`pgrp`](super::pgrp) manages
//! groups, [`jobs`](super::jobs) moves processes between them, and [`terminal`](super::terminal)
//! implements terminals.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tontine_unix::Pid;

use super::line::LineDiscipline;
use super::sleepers::Sleepers;
use crate::lock::lock_order::{PgLock, PgRefLock, SLock, TLock};
use crate::lock::{BlockingLock, SimpleLock};

/// A process group.
pub(super) struct Pgrp {
    pub(super) id: Pid,
    pub(super) session: Arc<Session>,
    /// `pg_lock`.
    pub(super) members: BlockingLock<PgLock, Members>,
    /// The references, guarded by `pg_ref_lock`.
    pub(super) references: SimpleLock<PgRefLock, References>,
    /// Number of qualified members: those whose parent is in another group of the same session.
    /// Without a qualified member the group is orphaned. Changed only with the relations locked for
    /// writing.
    qualified: AtomicI32,
}

/// The state that `pg_ref_lock` guards.
#[derive(Default)]
pub(super) struct References {
    /// The number of references other than those of the members. While it is above 0, no other
    /// process receives the group's number.
    pub(super) pg_refcnt: u32,
    /// `true` if the last member has left, so that the last reference must release the number.
    pub(super) left: bool,
}

/// The state that `pg_lock` guards.
#[derive(Default)]
pub(super) struct Members {
    /// The slots of the members; each member stores its index in this list.
    pub(super) slots: Vec<u32>,
}

/// A session.
pub(super) struct Session {
    pub(super) id: Pid,
    /// `s_lock`.
    pub(super) state: SimpleLock<SLock, SessionState>,
}

/// The state that `s_lock` guards.
#[derive(Default)]
pub(super) struct SessionState {
    /// The terminal that the session's leader acquired.
    pub(super) terminal: Option<Arc<Terminal>>,
    /// The foreground group of a terminal that was hung up. It is signalled when the leader exits.
    pub(super) left: Option<HeldPgrp>,
}

/// A group and its session, by their numbers, which are unique while a member lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupSession {
    pub(super) group: u32,
    pub(super) session: u32,
}

/// A counted reference that is stored in the system's own structures.
#[must_use = "a reference that is lost keeps the group's number indefinitely"]
pub(super) struct HeldPgrp(pub(super) Arc<Pgrp>);

impl HeldPgrp {
    /// Returns the group.
    pub(super) fn group(&self) -> &Arc<Pgrp> {
        &self.0
    }
}

impl Pgrp {
    pub(super) fn new(id: Pid, session: Arc<Session>, instance: u32) -> Self {
        Self {
            id,
            session,
            members: BlockingLock::new(instance, Members::default()),
            references: SimpleLock::new(instance, References::default()),
            qualified: AtomicI32::new(0),
        }
    }

    /// Returns `true` if `id` denotes this group, not an earlier group with the same number.
    pub(super) fn is_named(&self, id: Pid) -> bool {
        let (own, named) = (self.id.birth(), id.birth());
        self.id.number() == id.number() && (own.is_none() || named.is_none() || own == named)
    }

    /// Returns the group and session numbers that the members store.
    pub(super) fn standing(&self) -> GroupSession {
        let number = |id: Pid| id.number().unsigned_abs();
        GroupSession { group: number(self.id), session: number(self.session.id) }
    }

    /// Returns `true` if no member's parent is in another group of the same session.
    pub(super) fn is_orphaned(&self) -> bool {
        self.qualified.load(Ordering::Relaxed) == 0
    }

    /// Adds `change` to the number of qualified members. Called with the relations locked for
    /// writing. Returns `true` if the group has just become orphaned.
    pub(super) fn qualify(&self, change: i32) -> bool {
        let before = self.qualified.fetch_add(change, Ordering::Relaxed);
        debug_assert!(before + change >= 0, "group {}: {before} {change:+}", self.id);
        before > 0 && before + change == 0
    }

    /// Returns `true` if no thread holds or waits for `pg_lock`. The result is reliable only if no
    /// other thread runs.
    pub(super) fn is_idle(&self) -> bool {
        self.members.is_idle()
    }

    /// Returns the number of qualified members, for checks.
    pub(super) fn qualified(&self) -> i32 {
        self.qualified.load(Ordering::Relaxed)
    }
}

impl Session {
    pub(super) fn new(id: Pid, instance: u32) -> Arc<Self> {
        let state = SimpleLock::new(instance, SessionState::default());
        Arc::new(Self { id, state })
    }
}

/// A terminal.
pub(super) struct Terminal {
    /// `t_lock`.
    pub(super) state: SimpleLock<TLock, TerminalState>,
}

/// The state that `t_lock` guards.
#[derive(Default)]
pub(super) struct TerminalState {
    pub(super) line: LineDiscipline,
    pub(super) session: Option<Arc<Session>>,
    /// The foreground process group.
    pub(super) foreground: Option<HeldPgrp>,
    /// Number of open files for the end that processes use.
    pub(super) open: u32,
    /// Fibers that wait for the terminal to change, at either end.
    pub(super) sleepers: Sleepers,
}

/// A value that differs from the lock instance of every terminal.
pub(super) const NO_TERMINAL: u32 = u32::MAX;

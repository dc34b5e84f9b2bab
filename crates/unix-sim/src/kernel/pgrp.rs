//! Process groups (§5.1) and sessions (§5.3): [`Pgrp`], [`Session`].

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tontine_unix::{Errno, Pid, Result};

use super::Kernel;
use super::pid_table::PidKeeper;
use super::proc::{GroupSession, Proc, ProcState};
use super::terminal::Terminal;
use crate::lock::lock_order::{PLock, PgLock, PgRefLock, SLock};
use crate::lock::{BlockingLock, Holding, SimpleGuard, SimpleLock};

/// A process group.
#[derive(Debug)]
pub(super) struct Pgrp {
    pub(super) id: Pid,
    pub(super) session: Arc<Session>,
    /// `pg_lock`.
    pub(super) members: BlockingLock<PgLock, Members>,
    /// The references, guarded by `pg_ref_lock`.
    references: SimpleLock<PgRefLock, References>,
    /// Number of qualified members: those whose parent is in another group of the same session.
    /// Without a qualified member the group is orphaned. Changed only with the relations locked for
    /// writing.
    qualified: AtomicI32,
}

/// The state that `pg_ref_lock` guards.
#[derive(Debug, Default)]
struct References {
    /// The number of references other than those of the members. While it is above 0, no other
    /// process receives the group's number.
    pg_refcnt: u32,
    /// `true` if the last member has left, so that the last reference must release the number.
    left: bool,
}

/// The state that `pg_lock` guards.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// The slots of the members; each member stores its index in this list.
    pub(super) slots: Vec<u32>,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: Pid,
    /// `s_lock`.
    pub(super) state: SimpleLock<SLock, SessionState>,
}

/// The state that `s_lock` guards.
#[derive(Debug, Default)]
pub(super) struct SessionState {
    /// The terminal that the session's leader acquired.
    pub(super) terminal: Option<Arc<Terminal>>,
    /// The foreground group of a terminal that was hung up. It is signalled when the leader exits.
    pub(super) left: Option<HeldPgrp>,
}

/// A counted reference to a group (§5.1, §7.2.1). It must be dropped while no lock is held.
#[derive(Debug)]
pub(super) struct PgrpRef<'k> {
    kernel: &'k Kernel,
    group: Arc<Pgrp>,
}

impl std::ops::Deref for PgrpRef<'_> {
    type Target = Arc<Pgrp>;

    fn deref(&self) -> &Arc<Pgrp> {
        &self.group
    }
}

impl Drop for PgrpRef<'_> {
    fn drop(&mut self) {
        let last = {
            let mut references = self.group.references.lock(&self.kernel.locks);
            references.pg_refcnt -= 1;
            references.pg_refcnt == 0 && references.left
        };
        if last {
            self.kernel.give_group_number_back(&self.group);
        }
    }
}

/// A counted reference that is stored in the system's own structures.
#[derive(Debug)]
#[must_use = "a reference that is lost keeps the group's number indefinitely"]
pub(super) struct HeldPgrp(Arc<Pgrp>);

impl HeldPgrp {
    /// Converts this value back to a reference.
    pub(super) fn refer(self, kernel: &Kernel) -> PgrpRef<'_> {
        PgrpRef { kernel, group: self.0 }
    }

    /// Returns the group.
    pub(super) fn group(&self) -> &Arc<Pgrp> {
        &self.0
    }
}

impl Pgrp {
    fn new(id: Pid, session: Arc<Session>, instance: u32) -> Self {
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
        let (own, asked) = (self.id.birth(), id.birth());
        self.id.number() == id.number() && (own.is_none() || asked.is_none() || own == asked)
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

impl Members {
    pub(super) fn add(&mut self, proc: &Proc) {
        proc.place_in_group.store(self.slots.len() as u32, Ordering::Relaxed);
        self.slots.push(proc.slot);
    }

    /// Removes a member. The last member in the list moves to its index.
    pub(super) fn remove(&mut self, kernel: &Kernel, proc: &Proc) {
        let place = proc.place_in_group.load(Ordering::Relaxed) as usize;
        assert_eq!(self.slots[place], proc.slot, "a member stores its index");
        self.slots.swap_remove(place);
        if let Some(&moved) = self.slots.get(place) {
            kernel.slab.get(moved).place_in_group.store(place as u32, Ordering::Relaxed);
        }
    }
}

impl Kernel {
    /// Returns the group of a process whose `p_lock` is held, with a reference that keeps the group
    /// valid even if the process leaves it (§7.2.1).
    pub(super) fn refer_to_group<'k>(
        &'k self,
        state: &SimpleGuard<'_, PLock, ProcState>,
    ) -> Option<PgrpRef<'k>> {
        let group = state.pgrp.clone()?;
        state.then_lock(&group.references).pg_refcnt += 1;
        Some(PgrpRef { kernel: self, group })
    }

    /// Returns a reference to a group that the caller keeps valid.
    pub(super) fn refer(&self, group: &Arc<Pgrp>) -> PgrpRef<'_> {
        self.hold(group).refer(self)
    }

    /// Like [`Self::refer`], but for the system's own structures.
    pub(super) fn hold(&self, group: &Arc<Pgrp>) -> HeldPgrp {
        group.references.lock(&self.locks).pg_refcnt += 1;
        HeldPgrp(Arc::clone(group))
    }

    /// Returns the group with this number.
    pub(super) fn find_group(&self, id: Pid) -> Option<PgrpRef<'_>> {
        let groups = self.pgrphash.read(&self.locks);
        let group = groups.get(&id.number()).filter(|group| group.is_named(id))?.clone();
        groups.then_lock(&group.references).pg_refcnt += 1;
        Some(PgrpRef { kernel: self, group })
    }

    /// Returns the group that now has the number of `held`, which may have been emptied and created
    /// again; `None` if no group has that number.
    pub(super) fn made_again<'k>(&'k self, held: PgrpRef<'k>) -> Option<PgrpRef<'k>> {
        // `found` is declared before the lock, so that it is dropped after the lock, because
        // dropping it may take the lock again.
        let found;
        let _coarse = self.coarse();
        found = self.find_group(held.id);
        found
    }

    /// Returns a group that a member of `session` may create, for a terminal's foreground. Linux
    /// accepts the number of any member. The group has no members, and the number belongs to no
    /// other group.
    pub(super) fn hold_unmade(&self, leader: Pid, session: &Arc<Session>) -> Result<HeldPgrp> {
        let leader = self.find(leader).ok_or(Errno::ESRCH)?;
        // A process in a group still has its own number, which is not released before `p_lock` is.
        let state = leader.state().ok_or(Errno::ESRCH)?;
        let group = state.pgrp.as_ref().ok_or(Errno::ESRCH)?;
        if !Arc::ptr_eq(&group.session, session) {
            return Err(Errno::EPERM);
        }
        self.pids.keep(leader.number(), PidKeeper::Group);
        let unmade = Pgrp::new(leader.pid(), Arc::clone(session), self.instance());
        state.then_lock(&unmade.references).left = true;
        drop(state);
        Ok(self.hold(&Arc::new(unmade)))
    }

    /// Creates a group. The caller holds `groups`, the table, for writing, and must add a first
    /// member before it releases the table.
    pub(super) fn make_group(
        &self,
        groups: &mut super::Groups,
        id: Pid,
        session: Arc<Session>,
    ) -> Arc<Pgrp> {
        self.pids.keep(id.number(), PidKeeper::Group);
        let group = Arc::new(Pgrp::new(id, session, self.instance()));
        groups.insert(id.number(), group.clone());
        group
    }

    /// Removes a group whose last member has left from the table, unless a process has joined the
    /// group since. The group's number is released at the same time, or with the last reference.
    pub(super) fn forget_group(&self, group: &Arc<Pgrp>) {
        let mut groups = self.pgrphash.write(&self.locks);
        let number = group.id.number();
        if !group.members.read(&self.locks).slots.is_empty() {
            return;
        }
        if groups.get(&number).is_some_and(|found| Arc::ptr_eq(found, group)) {
            groups.remove(&number);
            let unreferenced = {
                let mut references = groups.then_lock(&group.references);
                references.left = true;
                references.pg_refcnt == 0
            };
            if unreferenced {
                self.pids.drop_keeper(&self.locks, number, PidKeeper::Group);
            }
            let session = group.session.id.number();
            let others = groups.values().any(|other| other.session.id.number() == session);
            if !others {
                self.pids.drop_keeper(&self.locks, session, PidKeeper::Session);
            }
        }
    }

    /// Releases the number of a group without members, together with the last reference to the
    /// group. If its leader has created another group in the meantime, that group keeps the number.
    fn give_group_number_back(&self, group: &Pgrp) {
        let _coarse = self.coarse();
        let groups = self.pgrphash.write(&self.locks);
        let number = group.id.number();
        if !groups.contains_key(&number) {
            self.pids.drop_keeper(&self.locks, number, PidKeeper::Group);
        }
    }
}

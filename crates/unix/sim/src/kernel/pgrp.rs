//! Process groups (§5.1): references to them ([`PgrpRef`]), their members and their numbers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tontine_unix::{Errno, Pid, Result};

use super::Kernel;
use super::pid_table::PidKeeper;
use super::proc::{Proc, ProcState};
use super::session::{HeldPgrp, Members, Pgrp, Session};
use crate::lock::lock_order::PLock;
use crate::lock::{Holding, SimpleGuard};

/// A counted reference to a group (§5.1, §7.2.1). It must be dropped while no lock is held.
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

impl HeldPgrp {
    /// Converts this value back to a reference.
    pub(super) fn refer(self, kernel: &Kernel) -> PgrpRef<'_> {
        PgrpRef { kernel, group: self.0 }
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
        self.find_group(held.id)
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
        let groups = self.pgrphash.write(&self.locks);
        let number = group.id.number();
        if !groups.contains_key(&number) {
            self.pids.drop_keeper(&self.locks, number, PidKeeper::Group);
        }
    }
}

//! Groups (§2.1.2) and sessions (§2.1.4): `setpgid`, `setsid`, and orphaned groups.
//!
//! A group is orphaned if no member's parent is in another group of the same session. Each group
//! counts its *qualified* members: those whose parent is in such a group. A member's contribution
//! may change when the member, its parent or its parent's group changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tontine_unix::{Errno, Pid, Result, SigInfo, Signal};

use super::Kernel;
use super::call::Caller;
use super::pid_table::PidKeeper;
use super::proc::{Phase, Proc};
use super::references::ProcRef;
use super::session::{GroupSession, NO_TERMINAL, Pgrp, Session};
use crate::lock::lock_both;

impl Caller<'_> {
    pub(super) fn group_of(&self, process: Pid) -> Result<Pid> {
        self.guarded(|| {
            if process.number() == 0 {
                return self.state().pgrp.as_ref().map(|group| group.id).ok_or(Errno::ESRCH);
            }
            let found = self.kernel.find(process).ok_or(Errno::ESRCH)?;
            let state = found.state().ok_or(Errno::ESRCH)?;
            state.pgrp.as_ref().map(|group| group.id).ok_or(Errno::ESRCH)
        })
    }

    pub(super) fn session_of(&self, process: Pid) -> Result<Pid> {
        self.guarded(|| {
            let found = self.kernel.find(self.or_self(process)).ok_or(Errno::ESRCH)?;
            let state = found.state().ok_or(Errno::ESRCH)?;
            state.pgrp.as_ref().map(|group| group.session.id).ok_or(Errno::ESRCH)
        })
    }

    pub(super) fn set_group(&self, process: Pid, group: Pid) -> Result<()> {
        let named = if group.number() == 0 { process } else { group };
        if named.number() < 0 {
            return Err(Errno::EINVAL);
        }
        if process.number() < 0 {
            return Err(Errno::ESRCH);
        }
        self.guarded(|| {
            let moved = self.move_to_group(self.or_self(process), group);
            self.kernel.check_groups();
            moved
        })
    }

    fn move_to_group(&self, process: Pid, group: Pid) -> Result<()> {
        let kernel = self.kernel;
        let target = kernel.find(process).ok_or(Errno::ESRCH)?;
        let group = if group.number() == 0 { target.pid() } else { group };
        let mut groups = kernel.pgrphash.write(&kernel.locks);
        let found = groups.get(&group.number()).cloned();
        let (from, to) = self.check_move(&mut groups, &target, group, found)?;
        let moved = Arc::ptr_eq(&from, &to) || kernel.requalify(&target, &from, &to);
        drop(groups);
        kernel.forget_if_empty(&from);
        kernel.forget_if_empty(&to);
        if moved { Ok(()) } else { Err(Errno::ESRCH) }
    }

    /// Returns the groups from which and to which a process will be moved, if the caller may move
    /// it; `found` is the group with the number of `group`. If no such group exists and the number
    /// is the process's own, creates the group.
    fn check_move(
        &self,
        groups: &mut super::Groups,
        target: &ProcRef<'_>,
        group: Pid,
        found: Option<Arc<Pgrp>>,
    ) -> Result<(Arc<Pgrp>, Arc<Pgrp>)> {
        let kernel = self.kernel;
        let (_relations, parent) = kernel.read_parent(target);
        let own_session = self.state().pgrp.as_ref().map(|group| group.session.clone());
        let own_session = own_session.ok_or(Errno::ESRCH)?;
        let is_self = target.slot == self.proc.slot;
        let is_child = parent.is_some_and(|parent| parent.slot == self.proc.slot);
        if !is_self && !is_child {
            return Err(Errno::ESRCH);
        }
        let (from, executed) = {
            let state = target.state().ok_or(Errno::ESRCH)?;
            (state.pgrp.clone().ok_or(Errno::ESRCH)?, state.executed)
        };
        if !Arc::ptr_eq(&from.session, &own_session) {
            return Err(Errno::EPERM);
        }
        if !is_self && executed {
            return Err(Errno::EACCES);
        }
        if from.session.id.number() == target.number() {
            return Err(Errno::EPERM);
        }
        let to = match found {
            // The number now belongs to another group.
            Some(found) if !found.is_named(group) => return Err(Errno::EPERM),
            Some(found) if !Arc::ptr_eq(&found.session, &own_session) => {
                return Err(Errno::EPERM);
            }
            Some(found) => found,
            None if target.is_named(group) => kernel.make_group(groups, target.pid(), own_session),
            None => return Err(Errno::EPERM),
        };
        Ok((from, to))
    }

    pub(super) fn new_session(&self) -> Result<Pid> {
        self.guarded(|| {
            let kernel = self.kernel;
            let me = self.proc.pid();
            let mut groups = kernel.pgrphash.write(&kernel.locks);
            if groups.contains_key(&me.number()) {
                return Err(Errno::EPERM);
            }
            let from = self.state().pgrp.clone().ok_or(Errno::ESRCH)?;
            kernel.pids.keep(me.number(), PidKeeper::Session);
            let session = Session::new(me, kernel.instance());
            let to = kernel.make_group(&mut groups, me, session);
            kernel.requalify(self.proc, &from, &to);
            self.proc.set_session(me.number());
            self.proc.set_terminal(NO_TERMINAL);
            drop(groups);
            kernel.forget_if_empty(&from);
            kernel.check_groups();
            Ok(me)
        })
    }
}

impl Kernel {
    /// Moves a process between groups, and updates the counts. Returns `false` if the process was
    /// waited for in the meantime. Called with the table locked for writing. A group that the move
    /// orphans is not signalled: the change was deliberate, and POSIX refers only to exits.
    fn requalify(&self, proc: &Proc, from: &Arc<Pgrp>, to: &Arc<Pgrp>) -> bool {
        let _relations = self.relations.write(&self.locks);
        let (mut leaving, joining) = lock_both(&from.members, &to.members, &self.locks);
        let mut joining = joining.expect("two groups");
        if !proc.lock(&self.locks).pgrp.as_ref().is_some_and(|now| Arc::ptr_eq(now, from)) {
            return false;
        }
        // The process counts for its new group before it joins that group, and for its old one
        // until it has left, so no group ever appears orphaned although it is not.
        let counted = proc.qualifies.load(Ordering::Relaxed);
        proc.qualifies.store(false, Ordering::Relaxed);
        let lost = &mut Vec::new();
        self.recount(proc, Some(to), lost);
        leaving.remove(self, proc);
        joining.add(proc);
        let mut state = proc.lock(&self.locks);
        state.pgrp = Some(Arc::clone(to));
        if state.phase != Phase::Zombie {
            proc.stand_in(to);
        }
        drop(state);
        if counted {
            from.qualify(-1);
        }
        for child in self.children(proc) {
            let group = child.lock(&self.locks).pgrp.clone();
            self.recount(child, group.as_ref(), lost);
        }
        true
    }

    /// Updates whether a process counts as a qualified member of its group, and adds the group to
    /// `orphaned` if this orphans it. Called with the relations locked for writing.
    pub(super) fn recount(
        &self,
        proc: &Proc,
        group: Option<&Arc<Pgrp>>,
        orphaned: &mut Vec<Arc<Pgrp>>,
    ) {
        let Some(group) = group else { return };
        let counts = self.counts_for(proc, group.standing());
        if proc.qualifies.load(Ordering::Relaxed) == counts {
            return;
        }
        proc.qualifies.store(counts, Ordering::Relaxed);
        if group.qualify(if counts { 1 } else { -1 }) {
            orphaned.push(Arc::clone(group));
        }
    }

    /// Counts a process that was just forked. Called with the relations locked for writing.
    pub(super) fn count_forked(&self, child: &Proc) {
        // Usually the child's parent is in the same group.
        if child.standing().is_some_and(|own| self.counts_for(child, own)) {
            let group = child.lock(&self.locks).pgrp.clone();
            self.recount(child, group.as_ref(), &mut Vec::new());
        }
    }

    /// Returns `true` if a process and its parent are alive and the parent is in another group of
    /// the same session. Called with the relations locked.
    pub(super) fn counts_for(&self, proc: &Proc, group: GroupSession) -> bool {
        let cares = |parent: &Proc| {
            let its = parent.standing();
            its.is_some_and(|its| its.group != group.group && its.session == group.session)
        };
        proc.standing().is_some() && self.parent_hint(proc).is_some_and(cares)
    }

    /// Signals an orphaned group if it has a stopped member, because no process would continue the
    /// member (POSIX, `_exit`).
    pub(super) fn hang_up_if_stopped(&self, group: &Arc<Pgrp>) {
        let stopped = {
            let members = group.members.read(&self.locks);
            members.slots.iter().any(|&slot| {
                let state = self.slab.get(slot).lock_after(&members);
                state.phase == Phase::Live && state.stopped.is_some()
            })
        };
        if stopped && group.is_orphaned() {
            self.pgsignal_inthread(group, SigInfo::kernel(Signal::HUP));
            self.pgsignal_inthread(group, SigInfo::kernel(Signal::CONT));
        }
    }

    /// Removes a group from the table if its last member has left.
    fn forget_if_empty(&self, group: &Arc<Pgrp>) {
        let empty = group.members.read(&self.locks).slots.is_empty();
        if empty {
            self.forget_group(group);
        }
    }
}

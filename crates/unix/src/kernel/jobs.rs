//! Groups and sessions: `setpgid`, `setsid`, and which groups are orphaned.
//!
//! A group is orphaned when no member's parent is in another group of the same session. Each group counts
//! such members; a member's share changes where the member, its parent's group or its parent does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Kernel;
use super::call::Call;
use super::pgrp::{Pgrp, Session};
use super::pid_table::Keeper;
use super::proc::{Phase, Proc};
use crate::action::SignalInfo;
use crate::errno::{Errno, Result};
use crate::executor;
use crate::lock::write_both;
use crate::mutation::Mutation;
use crate::process::Pid;
use crate::signal::Signal;

impl Call<'_> {
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
        if group.number() < 0 {
            return Err(Errno::EINVAL);
        }
        if process.number() < 0 {
            return Err(Errno::ESRCH);
        }
        self.guarded(|| {
            let coarse = self.kernel.coarse();
            let orphaned = self.move_to_group(self.or_self(process), group)?;
            drop(coarse);
            for group in orphaned {
                self.kernel.hang_up_if_stopped(&group);
            }
            Ok(())
        })
    }

    fn move_to_group(&self, process: Pid, group: Pid) -> Result<Vec<Arc<Pgrp>>> {
        let kernel = self.kernel;
        let target = kernel.find(process).ok_or(Errno::ESRCH)?;
        let group = if group.number() == 0 { target.pid() } else { group };
        let early = kernel.mutates(Mutation::GroupLookedUpEarly).then(|| {
            let found = kernel.pgrphash.read(&kernel.locks).get(&group.number()).cloned();
            executor::yield_now();
            found
        });
        let mut groups = kernel.pgrphash.write(&kernel.locks);
        let (writing, parent) = kernel.write_parent_and_own(&target);
        let own_session = self.state().pgrp.as_ref().map(|group| group.session.clone());
        let own_session = own_session.ok_or(Errno::ESRCH)?;
        let is_self = target.slot == self.proc.slot;
        if !is_self && parent.is_none_or(|parent| parent.slot != self.proc.slot) {
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
        let to = match early.unwrap_or_else(|| groups.get(&group.number()).cloned()) {
            Some(found) if !Arc::ptr_eq(&found.session, &own_session) => return Err(Errno::EPERM),
            Some(found) => found,
            None if group.number() == target.number() => {
                kernel.make_group(&mut groups, target.pid(), own_session)
            }
            None => return Err(Errno::EPERM),
        };
        let mut orphaned = Vec::new();
        if !Arc::ptr_eq(&from, &to) {
            kernel.requalify(&target, &from, &to, &mut orphaned);
        }
        drop(writing);
        drop(groups);
        kernel.forget_if_dead(&from);
        Ok(orphaned)
    }

    pub(super) fn new_session(&self) -> Result<Pid> {
        self.guarded(|| {
            let kernel = self.kernel;
            let coarse = kernel.coarse();
            let me = self.proc.pid();
            let mut groups = kernel.pgrphash.write(&kernel.locks);
            if groups.contains_key(&me.number()) {
                return Err(Errno::EPERM);
            }
            let (writing, _) = kernel.write_parent_and_own(self.proc);
            let from = self.state().pgrp.clone().ok_or(Errno::ESRCH)?;
            kernel.pids.keep(&kernel.locks, me.number(), Keeper::Session);
            let session = Session::new(me, kernel.instance());
            let to = kernel.make_group(&mut groups, me, session);
            let mut orphaned = Vec::new();
            kernel.requalify(self.proc, &from, &to, &mut orphaned);
            self.proc.set_session(me.number());
            drop(writing);
            drop(groups);
            kernel.forget_if_dead(&from);
            drop(coarse);
            for group in orphaned {
                kernel.hang_up_if_stopped(&group);
            }
            Ok(me)
        })
    }
}

impl Kernel {
    /// Locks the relations between a process and its parent, and between it and its children.
    fn write_parent_and_own<'k>(
        &'k self,
        proc: &'k Proc,
    ) -> (super::family::Writing<'k>, Option<&'k Proc>) {
        loop {
            let parent = self.parent_hint(proc);
            let guard = self.write_families(parent.unwrap_or(proc), proc);
            let now = self.parent_hint(proc);
            if now.map(|now| now.slot) == parent.map(|before| before.slot) {
                return (guard, parent);
            }
        }
    }

    /// Moves a process between groups, and counts anew what that changes. Under the table and
    /// relations for writing.
    fn requalify(
        &self,
        proc: &Proc,
        from: &Arc<Pgrp>,
        to: &Arc<Pgrp>,
        orphaned: &mut Vec<Arc<Pgrp>>,
    ) {
        let children: Vec<(&Proc, Option<Arc<Pgrp>>)> = self
            .children(proc)
            .map(|child| (child, child.lock(&self.locks).pgrp.clone()))
            .collect();
        let mut lost = Vec::new();
        self.disqualify(proc, Some(from), &mut lost);
        for (child, group) in &children {
            self.disqualify(child, group.as_ref(), &mut lost);
        }
        {
            let (mut leaving, joining) = write_both(&from.members, &to.members, &self.locks);
            let mut joining = joining.expect("two groups");
            leaving.remove(self, proc);
            joining.add(proc);
            proc.lock(&self.locks).pgrp = Some(Arc::clone(to));
        }
        self.qualify(proc, Some(to));
        for (child, group) in &children {
            self.qualify(child, group.as_ref());
        }
        orphaned.extend(lost.into_iter().filter(|group| group.is_orphaned()));
    }

    /// Counts a process for its group, if its parent cares for that. Under relations for writing.
    pub(super) fn qualify(&self, proc: &Proc, group: Option<&Arc<Pgrp>>) {
        let (Some(group), Some(parent)) = (group, self.parent_hint(proc)) else { return };
        let (cares, alive) = {
            let state = parent.lock(&self.locks);
            let cares = state.pgrp.as_ref().is_some_and(|its| {
                !Arc::ptr_eq(its, group) && Arc::ptr_eq(&its.session, &group.session)
            });
            (cares, state.phase != Phase::Zombie)
        };
        if cares && alive && proc.lock(&self.locks).phase != Phase::Zombie {
            proc.qualifies.store(true, Ordering::Relaxed);
            group.qualify(1);
        }
    }

    /// Counts it no longer; a group that is orphaned by that is noted. Under relations for writing.
    pub(super) fn disqualify(
        &self,
        proc: &Proc,
        group: Option<&Arc<Pgrp>>,
        orphaned: &mut Vec<Arc<Pgrp>>,
    ) {
        if !proc.qualifies.swap(false, Ordering::Relaxed) {
            return;
        }
        let group = group.expect("who counts is in a group");
        if group.qualify(-1) {
            orphaned.push(Arc::clone(group));
        }
    }

    /// An orphaned group with a stopped member is told: nobody would continue it (POSIX, `_exit`).
    pub(super) fn hang_up_if_stopped(&self, group: &Arc<Pgrp>) {
        let stopped = {
            let _coarse = self.coarse();
            let members = group.members.read(&self.locks);
            members.slots.iter().any(|&slot| {
                let state = self.slab.get(slot).lock(&self.locks);
                state.phase == Phase::Live && state.stopped.is_some()
            })
        };
        if stopped && group.is_orphaned() {
            self.pgsignal(group, SignalInfo::kernel(Signal::HUP));
            self.pgsignal(group, SignalInfo::kernel(Signal::CONT));
        }
    }

    /// Takes a group whose last member has left out of the table.
    fn forget_if_dead(&self, group: &Arc<Pgrp>) {
        let dead = group.members.read(&self.locks).dead;
        if dead {
            self.forget_group(group);
        }
    }
}

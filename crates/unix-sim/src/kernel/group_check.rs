//! What groups count, counted from scratch ([`Kernel::check_groups`]): debug builds compare the two
//! after each change.
//!
//! A check sees the system at a moment at which nobody is in the middle of a change, and is seen by
//! nobody: simulated, it passes no point, so that runs are the same with it and without. It repairs
//! nothing. A run in which it finds something wrong is stopped, and then whoever asked for the run
//! panics ([`Virtual::run`](crate::Virtual::run)). A release build has none of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Kernel;
use super::pgrp::{Members, Pgrp};
use super::proc::{Phase, Proc};
use crate::config::Executor;
use crate::executor;
use crate::lock::Holding;
use crate::mode::LockingMode;

/// Processes that were ever made, above which only the end of the run is checked.
const MOST: u32 = 120;
/// Slots that are looked at: each of those processes may be forking one more.
const SLOTS: usize = 2 * MOST as usize;

impl Kernel {
    /// Compares members, their places and the counts that say which groups are orphaned with what
    /// the processes say of themselves, in a small system. Called with no lock held.
    ///
    /// On real processors it takes the locks. No lock keeps all relations as they are in mode
    /// `PerProcess`: there the end of the run is checked alone. Simulated, it is left out where
    /// somebody holds a lock, and where locks are counted.
    pub(super) fn check_groups(&self) {
        let small = || self.births.load(Ordering::Relaxed) <= MOST;
        if cfg!(debug_assertions) && small() && !self.config.statistics {
            let checked = match self.config.executor {
                Executor::Simulated { .. } | Executor::Modelled { .. } => {
                    executor::aside(|| self.check_if_calm(SLOTS))
                }
                Executor::Parallel if self.config.mode == LockingMode::PerProcess => Ok(()),
                Executor::Parallel => self.check_all_groups(SLOTS),
            };
            if let Err(wrong) = checked {
                self.notes().wrong.get_or_insert(wrong);
                self.executor.stop();
            }
        }
    }

    /// The same in any system, when its run has ended.
    pub(super) fn check_groups_at_the_end(&self) {
        if cfg!(debug_assertions)
            && let Err(wrong) = self.check_if_calm(usize::MAX)
        {
            self.notes().wrong.get_or_insert(wrong);
        }
    }

    /// The same, of a system in which nobody is left.
    pub(super) fn check_what_groups_count(&self) -> Result<(), String> {
        self.check_all_groups(usize::MAX)
    }

    /// Checks unless somebody is in the middle of something.
    fn check_if_calm(&self, slots: usize) -> Result<(), String> {
        let calm = self.coarse.is_idle()
            && self.pgrphash.is_idle()
            && self.relations.is_idle()
            && self.slab.iter().take(slots).all(Proc::is_idle);
        let calm = calm && {
            let groups = self.pgrphash.read(&self.locks);
            groups.values().all(|group| group.is_idle())
        };
        if calm { self.check_all_groups(slots) } else { Ok(()) }
    }

    /// Checks all groups, and the processes in so many slots.
    fn check_all_groups(&self, slots: usize) -> Result<(), String> {
        let _coarse = self.coarse();
        let groups = self.pgrphash.read(&self.locks);
        let per_process = self.config.mode == LockingMode::PerProcess;
        let _reading = (!per_process).then(|| self.relations.read(&self.locks));
        for (number, group) in groups.iter() {
            if *number != group.id.number() {
                return Err(format!("group {} stands under {number}", group.id));
            }
            self.check_group(group, &groups.then_read(&group.members))?;
        }
        for proc in self.slab.iter().take(slots) {
            let group = proc.lock(&self.locks).pgrp.clone();
            let Some(group) = group else { continue };
            let known = groups.get(&group.id.number());
            if !known.is_some_and(|known| Arc::ptr_eq(known, &group)) {
                let (process, group) = (proc.number(), group.id);
                return Err(format!("process {process} is in group {group}, which is not known"));
            }
        }
        Ok(())
    }

    fn check_group(&self, group: &Arc<Pgrp>, members: &Members) -> Result<(), String> {
        let mut qualified = 0;
        for (place, &slot) in members.slots.iter().enumerate() {
            let member = self.slab.get(slot);
            let (process, id) = (member.number(), group.id);
            let known = member.place_in_group.load(Ordering::Relaxed) as usize;
            if known != place {
                return Err(format!("process {process} is member {place} of {id}, not {known}"));
            }
            let state = member.lock(&self.locks);
            let own = state.pgrp.clone();
            let stands = (state.phase != Phase::Zombie).then(|| group.standing());
            drop(state);
            if !own.is_some_and(|own| Arc::ptr_eq(&own, group)) {
                return Err(format!("process {process} is a member of {id}, and does not know it"));
            }
            if member.standing() != stands {
                return Err(format!(
                    "process {process} says that it stands elsewhere than in {id}"
                ));
            }
            let counts = self.counts_for(member, group.standing());
            if member.qualifies.load(Ordering::Relaxed) != counts {
                return Err(format!("whether process {process} counts for group {id}: {counts}"));
            }
            qualified += i32::from(counts);
        }
        let (id, known) = (group.id, group.qualified());
        if known == qualified {
            return Ok(());
        }
        Err(format!("{qualified} members count for group {id}, and not {known}"))
    }
}

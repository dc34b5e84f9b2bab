//! Consistency check of group counts ([`Kernel::check_groups`]): after each change, debug builds
//! compare the counts with counts made from scratch.
//!
//! A check reads the system at a moment at which no thread is in the middle of a change. It has no
//! effect: in a simulated run it passes no point, so runs are the same with and without it. It
//! repairs nothing. If it finds an error, the run is stopped, and then the caller of the run panics
//! ([`Virtual::run`](crate::Virtual::run)). A release build does not check.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Kernel;
use super::proc::{Phase, Proc};
use super::session::{Members, Pgrp};
use crate::config::Executor;
use crate::executor;
use crate::lock::Holding;

/// Maximum number of processes created so far for which the running system is checked. Beyond it,
/// the system is checked only at the end of the run.
const MOST: u32 = 120;
/// Number of slots that are checked, because each of those processes may be forking one more.
const SLOTS: usize = 2 * MOST as usize;

impl Kernel {
    /// Compares the members of groups, their indices and the qualified counts with the state of the
    /// processes, in a small system. Called with no lock held.
    ///
    /// With the parallel executor, the check takes the locks. In a simulated run the check is
    /// skipped if a thread holds a lock, or if locks are counted.
    pub(super) fn check_groups(&self) {
        let small = || self.births.load(Ordering::Relaxed) <= MOST;
        if cfg!(debug_assertions) && small() && !self.config.statistics {
            let checked = match self.config.executor {
                Executor::Simulated { .. } | Executor::Modelled { .. } => {
                    executor::aside(|| self.check_if_calm(SLOTS))
                }
                Executor::Parallel => self.check_all_groups(SLOTS),
            };
            if let Err(wrong) = checked {
                self.notes().wrong.get_or_insert(wrong);
                self.executor.stop();
            }
        }
    }

    /// Like [`Self::check_groups`], but for any system whose run has ended.
    pub(super) fn check_groups_at_the_end(&self) {
        if cfg!(debug_assertions)
            && let Err(wrong) = self.check_if_calm(usize::MAX)
        {
            self.notes().wrong.get_or_insert(wrong);
        }
    }

    /// Like [`Self::check_groups`], but for a system without processes.
    pub(super) fn check_what_groups_count(&self) -> Result<(), String> {
        self.check_all_groups(usize::MAX)
    }

    /// Checks, unless a thread is in the middle of a change.
    fn check_if_calm(&self, slots: usize) -> Result<(), String> {
        let calm = self.pgrphash.is_idle()
            && self.relations.is_idle()
            && self.slab.iter().take(slots).all(Proc::is_idle);
        let calm = calm && {
            let groups = self.pgrphash.read(&self.locks);
            groups.values().all(|group| group.is_idle())
        };
        if calm { self.check_all_groups(slots) } else { Ok(()) }
    }

    /// Checks all groups, and the processes in the first `slots` slots.
    fn check_all_groups(&self, slots: usize) -> Result<(), String> {
        let groups = self.pgrphash.read(&self.locks);
        let _relations = self.relations.read(&self.locks);
        for (number, group) in groups.iter() {
            if *number != group.id.number() {
                return Err(format!("group {} is in the table under {number}", group.id));
            }
            self.check_group(group, &groups.then_read(&group.members))?;
        }
        for proc in self.slab.iter().take(slots) {
            let group = proc.lock(&self.locks).pgrp.clone();
            let Some(group) = group else { continue };
            let known = groups.get(&group.id.number());
            if !known.is_some_and(|known| Arc::ptr_eq(known, &group)) {
                let (process, group) = (proc.number(), group.id);
                return Err(format!("process {process} is in group {group}, which is unlisted"));
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
                return Err(format!("process {process} stores index {known} in {id}, not {place}"));
            }
            let state = member.lock(&self.locks);
            let own = state.pgrp.clone();
            let expected = (state.phase != Phase::Zombie).then(|| group.standing());
            drop(state);
            if !own.is_some_and(|own| Arc::ptr_eq(&own, group)) {
                return Err(format!("process {process} is listed in {id}, but its state differs"));
            }
            if member.standing() != expected {
                return Err(format!(
                    "process {process} of group {id} stores another group or session"
                ));
            }
            let counts = self.counts_for(member, group.standing());
            if member.qualifies.load(Ordering::Relaxed) != counts {
                return Err(format!("process {process} in {id}: expected `qualifies` {counts}"));
            }
            qualified += i32::from(counts);
        }
        let (id, known) = (group.id, group.qualified());
        if known == qualified {
            return Ok(());
        }
        Err(format!("group {id} counts {known} qualified members, expected {qualified}"))
    }
}

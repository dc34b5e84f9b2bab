//! What is left of a system when everybody has ended, counted from scratch: [`Kernel::audit`].
//!
//! Runs that are explored are audited in every build: membership, orphan status, references,
//! numbers and what users are charged for must all be as if nobody but the first process had been
//! there. It looks once, at the end, and takes no lock that somebody could have.

use super::Kernel;
use super::proc::{Phase, Proc};
use crate::executor::Outcome;

impl Kernel {
    /// Says so if something is left that should not be, after a run that came to its end.
    pub(super) fn audit(&self, outcome: Outcome) {
        if outcome == Outcome::Finished
            && self.config.is_audited()
            && let Err(wrong) = self.audited()
        {
            self.notes().wrong.get_or_insert(wrong);
        }
    }

    fn audited(&self) -> Result<(), String> {
        if self.population() != 0 {
            return Err(format!("{} processes are counted, and none is left", self.population()));
        }
        let locks = [self.coarse.is_idle(), self.pgrphash.is_idle(), self.relations.is_idle()];
        if locks.contains(&false) || !self.slab.iter().all(Proc::is_idle) {
            return Err("somebody has ended with a lock".to_owned());
        }
        self.check_what_groups_count()?;
        let first = self.slab.get(self.init);
        for proc in self.slab.iter().filter(|proc| !self.is_init(proc)) {
            self.audit_slot(proc)?;
        }
        let own = first.lock(&self.locks).pgrp.as_ref().map(|group| group.id.number());
        let groups: Vec<i32> = self.pgrphash.read(&self.locks).keys().copied().collect();
        if groups != own.as_slice() {
            return Err(format!("of groups {groups:?} only {own:?} has a member"));
        }
        let used = self.pids.used(&self.locks);
        if used != 1 {
            return Err(format!("{used} numbers are in use, and one process is there"));
        }
        for (uid, user) in self.users.lock(&self.locks).iter() {
            let (tasks, signals) = (user.tasks.counted(), user.signals.counted());
            let expected = u64::from(*uid == 0);
            if (tasks, signals) != (expected, 0) {
                return Err(format!(
                    "user {uid} has {tasks} tasks and {signals} signals, and not {expected} and 0"
                ));
            }
        }
        Ok(())
    }

    /// A slot whose process is gone.
    fn audit_slot(&self, proc: &Proc) -> Result<(), String> {
        let state = proc.lock(&self.locks);
        let (slot, phase, references) = (proc.slot, state.phase, proc.references());
        if phase != Phase::Free || proc.number() != 0 {
            return Err(format!("process {} in slot {slot} is left, {phase:?}", proc.number()));
        }
        if references != 0 {
            return Err(format!("{references} references to slot {slot} are left"));
        }
        if state.pgrp.is_some() || !state.threads.is_empty() {
            return Err(format!("slot {slot} has a group or a thread, and no process"));
        }
        Ok(())
    }
}

//! The audit of a system after all processes have ended, which counts from scratch:
//! [`Kernel::audit`].
//!
//! Explored runs are audited in every build: membership, orphan status, references, numbers and the
//! charges of users must all be as if only the first process had ever existed. The audit runs once,
//! at the end, and takes no lock that another thread could hold.

use super::Kernel;
use super::proc::{Phase, Proc};
use crate::executor::RunEnd;

impl Kernel {
    /// Records a violation if a finished run has left something behind.
    pub(super) fn audit(&self, outcome: RunEnd) {
        if outcome == RunEnd::Finished
            && self.config.is_audited()
            && let Err(wrong) = self.audited()
        {
            self.notes().wrong.get_or_insert(wrong);
        }
    }

    fn audited(&self) -> Result<(), String> {
        if self.population() != 0 {
            return Err(format!("{} processes are counted, expected 0", self.population()));
        }
        let locks = [self.pgrphash.is_idle(), self.relations.is_idle()];
        if locks.contains(&false) || !self.slab.iter().all(Proc::is_idle) {
            return Err("a process has ended while it held a lock".to_owned());
        }
        self.check_what_groups_count()?;
        let first = self.slab.get(self.init);
        for proc in self.slab.iter().filter(|proc| !self.is_init(proc)) {
            self.audit_slot(proc)?;
        }
        let own = first.lock(&self.locks).pgrp.as_ref().map(|group| group.id.number());
        let groups: Vec<i32> = self.pgrphash.read(&self.locks).keys().copied().collect();
        if groups != own.as_slice() {
            return Err(format!("groups {groups:?} exist, expected only {own:?}"));
        }
        let used = self.pids.used(&self.locks);
        if used != 1 {
            return Err(format!("{used} numbers are in use, expected 1"));
        }
        for (uid, user) in self.users.lock(&self.locks).iter() {
            let (tasks, signals) = (user.tasks.counted(), user.signals.counted());
            let expected = u64::from(*uid == 0);
            if (tasks, signals) != (expected, 0) {
                return Err(format!(
                    "user {uid} has {tasks} tasks and {signals} signals, expected {expected} and 0"
                ));
            }
        }
        Ok(())
    }

    /// Checks a slot that no longer holds a process.
    fn audit_slot(&self, proc: &Proc) -> Result<(), String> {
        let state = proc.lock(&self.locks);
        let (slot, phase, references) = (proc.slot, state.phase, proc.references());
        if phase != Phase::Free || proc.number() != 0 {
            return Err(format!("process {} in slot {slot} remains, {phase:?}", proc.number()));
        }
        if references != 0 {
            return Err(format!("{references} references to slot {slot} remain"));
        }
        if state.pgrp.is_some() || !state.threads.is_empty() {
            return Err(format!("slot {slot} has a group or a thread, but no process"));
        }
        Ok(())
    }
}

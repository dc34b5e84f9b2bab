//! What groups count, counted from scratch ([`Kernel::check_groups`]): debug builds compare the two
//! after each change.
//!
//! It repairs nothing and is nothing in a release build.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Kernel;
use super::pgrp::{Members, Pgrp};
use super::proc::Phase;
use crate::lock::Holding;
use crate::mode::Mode;

/// In larger systems only the end of the run is checked.
const MOST: usize = 64;

impl Kernel {
    /// Compares members, their places and the counts that say which groups are orphaned with what
    /// the processes say of themselves. Called with no lock held.
    ///
    /// In mode `PerProcess` no lock keeps all relations as they are: there the end of the run is
    /// checked alone.
    ///
    /// # Panics
    /// They differ.
    pub(super) fn check_groups(&self) {
        let small = |kernel: &Self| kernel.slab.iter().nth(MOST).is_none();
        self.check_groups_of(|kernel| kernel.config.mode != Mode::PerProcess && small(kernel));
    }

    /// As [`Kernel::check_groups`], where `wanted` says so.
    pub(super) fn check_groups_of(&self, wanted: impl FnOnce(&Self) -> bool) {
        if !cfg!(debug_assertions) || !wanted(self) {
            return;
        }
        let _coarse = self.coarse();
        let groups = self.pgrphash.read(&self.locks);
        let per_process = self.config.mode == Mode::PerProcess;
        let _reading = (!per_process).then(|| self.relations.read(&self.locks));
        for (number, group) in groups.iter() {
            assert_eq!(*number, group.id.number(), "a group stands under its number");
            self.check_group(group, &groups.then_read(&group.members));
        }
        for proc in self.slab.iter() {
            let group = proc.lock(&self.locks).pgrp.clone();
            let Some(group) = group else { continue };
            let known = groups.get(&group.id.number());
            assert!(
                known.is_some_and(|known| Arc::ptr_eq(known, &group)),
                "process {} is in group {}, which is not in the table",
                proc.number(),
                group.id,
            );
        }
    }

    fn check_group(&self, group: &Arc<Pgrp>, members: &Members) {
        let mut qualified = 0;
        for (place, &slot) in members.slots.iter().enumerate() {
            let member = self.slab.get(slot);
            assert_eq!(member.place_in_group.load(Ordering::Relaxed) as usize, place, "its place");
            let state = member.lock(&self.locks);
            let own = state.pgrp.clone();
            assert!(own.is_some_and(|own| Arc::ptr_eq(&own, group)), "a member is in its group");
            let stands = (state.phase != Phase::Zombie).then(|| group.standing());
            assert_eq!(member.standing(), stands, "what a member says of itself");
            drop(state);
            let counts = self.counts_for(member, group.standing());
            assert_eq!(
                member.qualifies.load(Ordering::Relaxed),
                counts,
                "whether process {} counts for group {}",
                member.number(),
                group.id,
            );
            qualified += i32::from(counts);
        }
        assert_eq!(group.qualified(), qualified, "members of group {} that count", group.id);
    }
}

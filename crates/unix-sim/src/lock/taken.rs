//! That a lock is held, noted and checked: [`Taken`]. In builds without debug assertions it is
//! empty, nothing is checked, and only locks that are counted are noted ([`wait_counted`]).
//!
//! The checks come before the acquisition: a deadlock is reported and not entered. What is noted is
//! kept in [`held`].

use super::lock_order::Class;
#[cfg(debug_assertions)]
use super::lock_order::Kind;
use super::locks::Presence;
use crate::held::{self, Entry};
#[cfg(debug_assertions)]
use crate::held::{Level, State};
use std::marker::PhantomData;
use std::panic::Location;

/// How an acquisition fits among those of its own rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Alone of its rank.
    Alone,
    /// The second of two that are taken together: a greater instance may follow a smaller one.
    Second,
    /// Without waiting, so in any order.
    #[cfg(test)]
    Try,
}

impl Manner {
    /// Whether the order holds for it: who does not wait cannot wait for ever.
    #[cfg(debug_assertions)]
    fn is_ordered(self) -> bool {
        #[cfg(test)]
        if self == Self::Try {
            return false;
        }
        true
    }
}

/// The record that a lock is held. It and the guard that has it stay on their worker.
#[derive(Debug)]
pub(super) struct Taken {
    #[cfg(debug_assertions)]
    slot: usize,
    here: PhantomData<*const ()>,
}

impl Taken {
    /// Checks that a lock of class `C` may be taken here, and notes that it is. One that is absent
    /// may be taken at any spl: nobody waits for it.
    ///
    /// # Panics
    ///
    /// With debug assertions: out of order, the same one twice, at the wrong spl.
    #[inline(always)]
    #[track_caller]
    pub(super) fn note<C: Class>(instance: u32, manner: Manner, presence: Presence) -> Self {
        #[cfg(debug_assertions)]
        let slot = {
            let entry = entry::<C>(instance);
            if presence != Presence::Absent {
                check_spl(entry);
            }
            check_order(entry, manner);
            held::note(entry)
        };
        let _ = (instance, manner, presence);
        Self {
            #[cfg(debug_assertions)]
            slot,
            here: PhantomData,
        }
    }

    /// The lock that was noted is held from now on; until then it was waited for.
    #[inline(always)]
    pub(super) fn have(&self) {
        #[cfg(debug_assertions)]
        held::have(self.slot);
    }

    /// It is held no longer, though its guard is still there.
    #[inline(always)]
    pub(super) fn forget(&mut self) {
        #[cfg(debug_assertions)]
        held::forget(std::mem::replace(&mut self.slot, GONE));
    }
}

/// The slot of what is held no longer.
#[cfg(debug_assertions)]
const GONE: usize = usize::MAX;

#[cfg(debug_assertions)]
impl Drop for Taken {
    fn drop(&mut self) {
        if self.slot != GONE {
            held::forget(self.slot);
        }
    }
}

/// Notes that a lock is waited for which is counted, for those that look at a system's state; says
/// where. [`Taken`] does it in builds with debug assertions, where this is nothing.
#[track_caller]
pub(super) fn wait_counted<C: Class>(instance: u32) -> usize {
    if cfg!(debug_assertions) { 0 } else { held::note(entry::<C>(instance)) }
}

/// The lock that [`wait_counted`] noted there is held from now on.
pub(super) fn have_counted(slot: usize) {
    if !cfg!(debug_assertions) {
        held::have(slot);
    }
}

/// A lock that was counted is given back.
pub(super) fn forget_counted<C: Class>(instance: u32) {
    if !cfg!(debug_assertions) {
        held::forget_last(C::RANK, instance);
    }
}

#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<Taken>() == 0, "guards have nothing to check with");

/// A lock of class `C` that is about to be waited for.
#[inline(always)]
#[track_caller]
fn entry<C: Class>(instance: u32) -> Entry {
    Entry {
        rank: C::RANK,
        name: C::NAME,
        #[cfg(debug_assertions)]
        spl: C::ROW.spl,
        #[cfg(debug_assertions)]
        blocking: C::ROW.kind == Kind::Blocking,
        instance,
        at: Location::caller(),
        waits: true,
    }
}

/// Panics unless a lock may be taken at the level that is in force (§6.1).
#[cfg(debug_assertions)]
#[track_caller]
fn check_spl(Entry { name, spl, .. }: Entry) {
    let State { level, in_tick } = held::state();
    assert!(
        spl == Level::Base || level == Level::High,
        "spl: {name} is always taken at high spl, and this is base"
    );
    assert!(
        spl == Level::High || !in_tick,
        "spl: {name} is taken at base spl elsewhere, so a tick must not take it"
    );
}

/// Checks an acquisition against what is held.
#[cfg(debug_assertions)]
#[track_caller]
fn check_order(inner: Entry, manner: Manner) {
    if manner.is_ordered() {
        held::each_noted(|outer| check_pair(outer, inner, manner));
    }
}

#[cfg(debug_assertions)]
#[track_caller]
fn check_pair(outer: Entry, inner: Entry, manner: Manner) {
    let same_rank = outer.rank == inner.rank;
    let ascends = same_rank && manner == Manner::Second && outer.instance < inner.instance;
    let hint = match (same_rank, outer.instance == inner.instance) {
        (true, true) => ": it is the same lock",
        (true, false) => ": two of a rank are taken by lock_both or write_both",
        (false, _) => "",
    };
    assert!(
        outer.rank < inner.rank || ascends,
        "lock order: {} {} (rank {}) must not be taken while {} {} (rank {}) is held, \
         taken at {}{hint}",
        inner.name,
        inner.instance,
        inner.rank,
        outer.name,
        outer.instance,
        outer.rank,
        outer.at,
    );
}

//! Checks of acquisitions, and records of held locks: [`HeldRecord`]. In builds without debug
//! assertions the record is empty, nothing is checked, and only locks that are counted are recorded
//! ([`wait_counted`]).
//!
//! The checks run before the acquisition, so a deadlock is reported rather than entered. [`held`]
//! stores the records.

use super::lock_order::LockClass;
#[cfg(debug_assertions)]
use super::lock_order::LockKind;
use super::locks::Presence;
use crate::held::{self, HeldLock};
#[cfg(debug_assertions)]
use crate::held::{InterruptLevel, TickState};
use std::marker::PhantomData;
use std::panic::Location;

/// The relation of an acquisition to others of its own rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// The lock is the only one of its rank.
    Alone,
    /// The lock is the second of two that are taken together: a greater instance may follow a
    /// smaller one.
    Second,
}

/// A record of a held lock. The record stays on the worker on which its guard was created.
pub(super) struct HeldRecord {
    #[cfg(debug_assertions)]
    slot: usize,
    here: PhantomData<*const ()>,
}

impl HeldRecord {
    /// Checks that a lock of class `C` may be taken here, and records it. An absent lock may be
    /// taken at any spl, because no thread waits for it. With debug assertions, panics if the lock
    /// is taken out of order, twice, or at the wrong spl.
    #[inline(always)]
    #[track_caller]
    pub(super) fn note<C: LockClass>(instance: u32, manner: Manner, presence: Presence) -> Self {
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

    /// Marks the lock as held. Before this call, it was recorded as a lock that the fiber waits
    /// for.
    #[inline(always)]
    pub(super) fn have(&self) {
        #[cfg(debug_assertions)]
        held::have(self.slot);
    }

    /// Removes the record before the guard is dropped, because the lock is released.
    #[inline(always)]
    pub(super) fn forget(&mut self) {
        #[cfg(debug_assertions)]
        held::forget(std::mem::replace(&mut self.slot, GONE));
    }
}

/// The slot of a lock that is no longer held.
#[cfg(debug_assertions)]
const GONE: usize = usize::MAX;

#[cfg(debug_assertions)]
impl Drop for HeldRecord {
    fn drop(&mut self) {
        if self.slot != GONE {
            held::forget(self.slot);
        }
    }
}

/// Records that a fiber waits for a counted lock, so that the state of the system can be inspected,
/// and returns the slot. In builds with debug assertions [`HeldRecord`] records it, and this
/// function does nothing.
#[track_caller]
pub(super) fn wait_counted<C: LockClass>(instance: u32) -> usize {
    if cfg!(debug_assertions) { 0 } else { held::note(entry::<C>(instance)) }
}

/// Marks the lock that [`wait_counted`] recorded as held.
pub(super) fn have_counted(slot: usize) {
    if !cfg!(debug_assertions) {
        held::have(slot);
    }
}

/// Removes the record of a counted lock that is released.
pub(super) fn forget_counted<C: LockClass>(instance: u32) {
    if !cfg!(debug_assertions) {
        held::forget_last(C::RANK, instance);
    }
}

#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<HeldRecord>() == 0, "guards carry no check");

/// Returns the record of a lock of class `C` that a fiber is about to wait for.
#[inline(always)]
#[track_caller]
fn entry<C: LockClass>(instance: u32) -> HeldLock {
    HeldLock {
        rank: C::RANK,
        name: C::NAME,
        #[cfg(debug_assertions)]
        spl: C::ROW.spl,
        #[cfg(debug_assertions)]
        blocking: C::ROW.kind == LockKind::Blocking,
        instance,
        at: Location::caller(),
        waits: true,
    }
}

/// Panics unless a lock may be taken at the current level (§6.1).
#[cfg(debug_assertions)]
#[track_caller]
fn check_spl(HeldLock { name, spl, .. }: HeldLock) {
    let TickState { level, in_tick } = held::state();
    assert!(
        spl == InterruptLevel::Base || level == InterruptLevel::High,
        "spl: {name} is always taken at high spl, and this is base"
    );
    assert!(
        spl == InterruptLevel::High || !in_tick,
        "spl: {name} is taken at base spl elsewhere, so a tick must not take it"
    );
}

/// Checks an acquisition against the locks that the fiber holds.
#[cfg(debug_assertions)]
#[track_caller]
fn check_order(inner: HeldLock, manner: Manner) {
    held::each_noted(|outer| check_pair(outer, inner, manner));
}

#[cfg(debug_assertions)]
#[track_caller]
fn check_pair(outer: HeldLock, inner: HeldLock, manner: Manner) {
    let same_rank = outer.rank == inner.rank;
    let ascends = same_rank && manner == Manner::Second && outer.instance < inner.instance;
    let hint = match (same_rank, outer.instance == inner.instance) {
        (true, true) => ": it is the same lock",
        (true, false) => ": two of a rank are taken by lock_both",
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

//! That a lock is held, noted and checked: [`Taken`]. In builds without debug assertions it is
//! empty, nothing is checked, and only locks that are counted are noted ([`wait_counted`]).
//!
//! The checks themselves are in [`record`]. They come before the acquisition: a deadlock is
//! reported and not entered.

mod record;

use super::{Class, Presence, spl};
use std::marker::PhantomData;

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
            if presence != Presence::Absent {
                record::check_spl(C::RANK);
            }
            record::check_order(C::RANK, instance, manner);
            record::note(C::RANK, instance)
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
        record::have(self.slot);
    }

    /// It is held no longer, though its guard is still there.
    #[inline(always)]
    pub(super) fn forget(&mut self) {
        #[cfg(debug_assertions)]
        record::forget(std::mem::replace(&mut self.slot, GONE));
    }
}

/// The slot of what is held no longer.
#[cfg(debug_assertions)]
const GONE: usize = usize::MAX;

#[cfg(debug_assertions)]
impl Drop for Taken {
    fn drop(&mut self) {
        if self.slot != GONE {
            record::forget(self.slot);
        }
    }
}

/// Notes that a lock is waited for which is counted, for those that look at a system's state; says
/// where. [`Taken`] does it in builds with debug assertions, where this is nothing.
#[track_caller]
pub(super) fn wait_counted<C: Class>(instance: u32) -> usize {
    if cfg!(debug_assertions) { 0 } else { record::note(C::RANK, instance) }
}

/// The lock that [`wait_counted`] noted there is held from now on.
pub(super) fn have_counted(slot: usize) {
    if !cfg!(debug_assertions) {
        record::have(slot);
    }
}

/// A lock that was counted is given back.
pub(super) fn forget_counted<C: Class>(instance: u32) {
    if !cfg!(debug_assertions) {
        record::forget_last(C::RANK, instance);
    }
}

#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<Taken>() == 0, "guards have nothing to check with");

/// Checks that the fiber here may sleep: it holds no simple lock and the spl is base.
///
/// # Panics
///
/// With debug assertions, otherwise.
#[inline(always)]
#[track_caller]
pub(crate) fn assert_may_park() {
    #[cfg(debug_assertions)]
    record::assert_may_park();
}

/// Checks that the spl here may go back to base: no lock is held that is taken at high spl.
///
/// # Panics
///
/// With debug assertions, otherwise.
#[inline(always)]
pub(super) fn assert_may_lower() {
    #[cfg(debug_assertions)]
    record::assert_may_lower();
}

/// What the locks know of one fiber while another one runs: its spl and what it holds.
///
/// An executor keeps one for each fiber and calls [`PerFiber::exchange`] whenever that fiber begins
/// and ceases to run on a worker.
#[derive(Debug, Default)]
pub(crate) struct PerFiber {
    spl: spl::State,
    /// Made when there is something to keep.
    held: Option<Box<record::Held>>,
}

impl PerFiber {
    /// A fiber at base spl that holds nothing.
    pub(crate) const fn new() -> Self {
        Self { spl: spl::State::BASE, held: None }
    }

    /// Puts what is kept here in place of what was in force on this worker, and keeps that.
    #[inline]
    pub(crate) fn exchange(&mut self) {
        self.spl = spl::replace(self.spl);
        record::exchange(&mut self.held);
    }

    /// The locks that the fiber has, and the one that it waits for, while it does not run; known in
    /// builds with debug assertions, and where locks are counted.
    pub(crate) fn told(&self) -> Vec<String> {
        self.held.as_ref().map_or(Vec::new(), |held| held.told())
    }
}

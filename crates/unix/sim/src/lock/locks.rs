//! The lock classes of one virtual Unix, and their statistics: [`Locks`].
//!
//! Every acquisition is passed the [`Locks`] to which its lock belongs, and reads one byte of it:
//! [`Presence`].
#![allow(unsafe_code, reason = "a caller that omits locks guarantees that they are not needed")]

use super::LockClass;
use super::lock_order::{CLASSES, ORDER, PLock, PSiglock, PgLock};
use super::statistics::{Acquisition, LockCounts, LockStatistics};
use crate::LockingMode;
use crate::executor::{self, At, Object};
use std::sync::Arc;

/// Exploration distinguishes the locks of these classes by instance.
const _: () = {
    let [group, signal, process] = executor::LOCAL_RANKS;
    assert!(group == PgLock::RANK && signal == PSiglock::RANK && process == PLock::RANK);
};

/// A clock that counts nanoseconds since an arbitrary moment. A tick reads it too, so it must be
/// async-signal-safe.
#[derive(Clone)]
pub(crate) struct HoldClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl HoldClock {
    /// Creates a clock that reads the time with `now`.
    pub(crate) fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }
}

/// The work that an acquisition does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Presence {
    /// Only record that the lock is held.
    Absent,
    /// Take the lock.
    Present,
    /// Take the lock at a point: another fiber may run before and after.
    Explored,
    /// Like [`Self::Explored`], and also record and count the acquisition.
    Counted,
}

/// Options in addition to the locks that the mode needs.
#[derive(Clone)]
pub(crate) struct LockOptions {
    /// Also keep the locks that the mode does not need, for debugging.
    pub(crate) keep_all: bool,
    /// Count acquisitions.
    pub(crate) count: bool,
    /// `true` if the executor is the simulated one, which may switch fibers at each lock, or the
    /// modelled one.
    pub(crate) explore: bool,
    /// `true` if the executor is the modelled one, which may switch to another processor at each
    /// lock in every mode.
    pub(crate) model: bool,
    /// The clock that measures how long locks are held; requires [`Self::count`].
    pub(crate) hold_clock: Option<HoldClock>,
    /// Number of attempts to take a blocking lock before the fiber parks.
    pub(crate) busy_turns: u32,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            keep_all: false,
            count: false,
            explore: true,
            model: false,
            hold_clock: None,
            busy_turns: 100,
        }
    }
}

/// The locks of one virtual Unix.
pub(crate) struct Locks {
    presence: [Presence; CLASSES],
    mode: LockingMode,
    /// `true` if another fiber may run inside the kernel at points at which no fiber sleeps.
    preempts: bool,
    /// `true` if the executor is the simulated or the modelled one.
    explore: bool,
    busy_turns: u32,
    hold_clock: Option<HoldClock>,
    counts: Option<LockCounts>,
}

impl Locks {
    /// Creates the locks of `mode`, and those that `options` add.
    ///
    /// # Safety
    ///
    /// Each lock must be used with the same `Locks` for its whole life. If `mode` omits a class
    /// ([`OrderRow::exists_in`](super::lock_order::OrderRow::exists_in)), no two OS threads may
    /// take a lock of that class at the same time, and a thread that takes such a lock must see the
    /// effects of its previous holder:
    ///
    /// - `Uniprocessor`: one OS thread runs the whole virtual Unix;
    /// - `Master`: only the thread of processor 0 takes such locks;
    /// - `Parallel` omits none, nor does any mode with [`LockOptions::keep_all`].
    ///
    /// These conditions need not hold while a virtual Unix is created or torn down by one thread,
    /// which then passes it to the next.
    pub(crate) unsafe fn new(mode: LockingMode, options: LockOptions) -> Self {
        let preempts = options.model || mode == LockingMode::Parallel;
        let here = if options.count || options.keep_all {
            Presence::Counted
        } else if options.explore {
            Presence::Explored
        } else {
            Presence::Present
        };
        let presence = ORDER.each_ref().map(|row| {
            if options.keep_all || row.exists_in(mode) { here } else { Presence::Absent }
        });
        let LockOptions { hold_clock, busy_turns, explore, .. } = options;
        let counts = options.count.then(LockCounts::new);
        Self { presence, mode, preempts, explore, busy_turns, hold_clock, counts }
    }

    /// Returns the work of an acquisition of a lock of class `C`.
    #[inline]
    pub(crate) fn presence<C: LockClass>(&self) -> Presence {
        self.presence[C::RANK as usize]
    }

    /// Marks a scheduling point. The simulated executor may let another fiber run here if the
    /// kernel of this mode runs on several processors; the modelled executor may let another
    /// processor run.
    #[inline]
    pub(super) fn point(&self, at: At) {
        if self.preempts {
            executor::point(at);
        }
    }

    /// Records for exploration that a lock of class `C` is requested, even if the mode omits it.
    #[inline]
    pub(super) fn reach_absent<C: LockClass>(&self, instance: u32, shared: bool) {
        if self.explore {
            Self::reach::<C>(instance, shared);
        }
    }

    /// Records for exploration that a lock of class `C` is requested, for reading or exclusively.
    #[inline]
    pub(super) fn reach<C: LockClass>(instance: u32, shared: bool) {
        let lock = Object::Lock(C::RANK, instance);
        if shared { executor::looks_at(lock) } else { executor::changes(lock) }
    }

    /// Marks the scheduling point before an acquisition, which takes time in the modelled executor.
    /// Records for exploration that the lock is requested.
    #[inline]
    pub(super) fn point_at<C: LockClass>(&self, instance: u32, shared: bool) {
        executor::touch(C::RANK, instance);
        self.point(At::Lock(C::RANK, instance));
        Self::reach::<C>(instance, shared);
    }

    /// Checks that a lock that the mode omits may be taken here. In mode `Master`, it may be taken
    /// only on processor 0. With debug assertions, panics if the lock may not be taken here.
    #[inline]
    #[track_caller]
    pub(super) fn assert_alone_here(&self, name: &str) {
        debug_assert!(
            self.mode != LockingMode::Master || executor::processor() == 0,
            "{name} is taken on processor {}: in mode master only processor 0 may take it",
            executor::processor()
        );
    }

    /// Returns the counts so far; `None` unless acquisitions are counted.
    pub(crate) fn statistics(&self) -> Option<LockStatistics> {
        self.counts.as_ref().map(LockCounts::snapshot)
    }

    /// Returns the number of attempts to take a blocking lock before the fiber parks.
    pub(super) fn busy_turns(&self) -> u32 {
        self.busy_turns
    }

    /// Counts an acquisition; returns the time of the acquisition, if holds are measured.
    #[cold]
    #[inline(never)]
    pub(super) fn acquired<C: LockClass>(&self, acquisition: Acquisition) -> u64 {
        if let Some(counts) = &self.counts {
            counts.acquired(C::RANK, acquisition);
        }
        self.hold_clock.as_ref().map_or(0, |clock| (clock.0)())
    }

    /// Counts a hold that began at time `since`.
    #[cold]
    #[inline(never)]
    pub(super) fn released<C: LockClass>(&self, since: u64) {
        if let (Some(counts), Some(clock)) = (&self.counts, &self.hold_clock) {
            counts.held(C::RANK, (clock.0)().saturating_sub(since));
        }
    }

    /// Panics, because the mode omits the lock and the lock is already held.
    #[cold]
    #[track_caller]
    pub(super) fn held_twice<C: LockClass>(&self, instance: u32) -> ! {
        panic!(
            "{} {instance} is already held: mode {} omits it because no two threads can reach it",
            C::NAME,
            self.mode
        )
    }
}

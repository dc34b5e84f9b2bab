//! Locks of a class: [`ClassLock`] and [`LockGuard`], the common part of
//! [`SimpleLock`](super::SimpleLock) and [`BlockingLock`](super::BlockingLock), which differ in
//! their [`RawLock`].
#![allow(unsafe_code, reason = "the lock lends the value that it protects")]

use super::statistics::Acquisition;
use super::taken::{self, HeldRecord, Manner};
use super::turns::Want;
use super::{LockClass, Locks, Presence};
use crate::executor::At;
use crate::held::assert_may_park;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// The state of a lock: free, or held by one writer or by readers.
pub(crate) trait RawLock {
    /// `true` if a fiber that waits for the lock may park.
    const PARKS: bool;

    /// Returns `true` if, a moment ago, no fiber held the lock or waited for it.
    fn is_idle(&self) -> bool;

    /// Takes the lock if that is possible at once.
    fn try_take(&self, want: Want) -> bool;

    /// Waits until the caller holds the lock, whose class and instance number are given.
    fn wait<C: LockClass>(&self, instance: u32, want: Want, locks: &Locks) -> Acquisition;

    /// Releases the lock.
    fn give_back(&self, want: Want);

    /// Like [`Self::try_take`], in a mode without the lock, where no other thread accesses it.
    fn try_take_alone(&self, want: Want) -> bool;

    /// Like [`Self::give_back`], in a mode without the lock.
    fn give_back_alone(&self, want: Want);
}

/// A lock of class `C` that guards a `T`.
pub(crate) struct ClassLock<C: LockClass, W, T> {
    pub(super) raw: W,
    instance: u32,
    value: UnsafeCell<T>,
    class: PhantomData<fn() -> C>,
}

// SAFETY: guards are the only access to the value. A raw lock admits many readers, so `T` must be
// `Sync`, or one writer, so `T` must be `Send`; in a mode without the class, the contract of
// `Locks::new` ensures the same.
unsafe impl<C: LockClass, W: Sync, T: Send + Sync> Sync for ClassLock<C, W, T> {}

impl<C: LockClass, W, T> ClassLock<C, W, T> {
    /// Creates a lock whose raw lock is free.
    pub(super) const fn with_raw(raw: W, instance: u32, value: T) -> Self {
        Self { raw, instance, value: UnsafeCell::new(value), class: PhantomData }
    }

    /// Returns the lock's number within its class.
    pub(crate) fn instance(&self) -> u32 {
        self.instance
    }

    /// Returns the value even if a fiber holds the lock.
    ///
    /// # Safety
    ///
    /// No holder of the lock may ever continue: it is a fiber of a run that has ended, and its
    /// reference to the value is never used again.
    pub(crate) unsafe fn value_after_the_end(&self) -> &T {
        // SAFETY: the caller guarantees that the value no longer changes.
        unsafe { &*self.value.get() }
    }

    /// Returns the value of a lock that no other thread can access.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<C: LockClass, W: RawLock, T> ClassLock<C, W, T> {
    /// Returns `true` if, a moment ago, no fiber held the lock or waited for it.
    pub(crate) fn is_idle(&self) -> bool {
        self.raw.is_idle()
    }

    /// Acquires the lock exclusively.
    #[inline]
    #[track_caller]
    pub(super) fn take_alone<'a>(
        &'a self,
        locks: &'a Locks,
        manner: Manner,
    ) -> ExclusiveGuard<'a, C, W, T> {
        LockGuard::new(self, locks, manner)
    }

    /// Acquires the lock, and returns whether the acquisition had to wait.
    #[inline]
    fn take(&self, locks: &Locks, want: Want) -> Acquisition {
        if self.raw.try_take(want) {
            Acquisition::AtOnce
        } else {
            self.raw.wait::<C>(self.instance, want, locks)
        }
    }

    /// Acquires the lock after a point at which another fiber may run first.
    #[inline(never)]
    fn take_explored(&self, locks: &Locks, want: Want) -> Acquisition {
        locks.point_at::<C>(self.instance, want == Want::Read);
        self.take(locks, want)
    }

    /// Acquires the lock in a system that counts acquisitions; returns the time of the acquisition.
    #[cold]
    #[inline(never)]
    fn take_counted(&self, locks: &Locks, want: Want) -> u64 {
        let noted = taken::wait_counted::<C>(self.instance);
        let acquisition = self.take_explored(locks, want);
        taken::have_counted(noted);
        locks.acquired::<C>(acquisition)
    }
}

/// A lock that is held: for reading, together with other readers, if `SHARED`, and otherwise
/// exclusively.
#[must_use]
pub(crate) struct LockGuard<'a, C: LockClass, W: RawLock, T, const SHARED: bool> {
    lock: &'a ClassLock<C, W, T>,
    locks: &'a Locks,
    presence: Presence,
    since: u64,
    taken: HeldRecord,
}

/// A lock that is held exclusively.
pub(super) type ExclusiveGuard<'a, C, W, T> = LockGuard<'a, C, W, T, false>;

impl<'a, C: LockClass, W: RawLock, T, const SHARED: bool> LockGuard<'a, C, W, T, SHARED> {
    const WANT: Want = if SHARED { Want::Read } else { Want::Write };

    #[inline]
    #[track_caller]
    pub(super) fn new(
        lock: &'a ClassLock<C, W, T>,
        locks: &'a Locks,
        manner: Manner,
    ) -> LockGuard<'a, C, W, T, SHARED> {
        let presence = locks.presence::<C>();
        if W::PARKS && presence != Presence::Absent {
            assert_may_park();
        }
        let taken = HeldRecord::note::<C>(lock.instance, manner, presence);
        let mut since = 0;
        match presence {
            Presence::Present => {
                lock.take(locks, Self::WANT);
            }
            Presence::Absent => {
                locks.assert_alone_here(C::NAME);
                locks.reach_absent::<C>(lock.instance, SHARED);
                if !lock.raw.try_take_alone(Self::WANT) {
                    locks.held_twice::<C>(lock.instance);
                }
            }
            Presence::Explored => {
                lock.take_explored(locks, Self::WANT);
            }
            Presence::Counted => since = lock.take_counted(locks, Self::WANT),
        }
        taken.have();
        Self { lock, locks, presence, since, taken }
    }

    /// Returns the [`Locks`] with which the lock was acquired.
    pub(super) fn locks(&self) -> &'a Locks {
        self.locks
    }
}

impl<C: LockClass, W: RawLock, T, const SHARED: bool> Deref for LockGuard<'_, C, W, T, SHARED> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one of the lock, or all its guards are shared. The value
        // is borrowed no longer than the guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<C: LockClass, W: RawLock, T> DerefMut for LockGuard<'_, C, W, T, false> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one of the lock, and is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<C: LockClass, W: RawLock, T, const SHARED: bool> Drop for LockGuard<'_, C, W, T, SHARED> {
    #[inline]
    fn drop(&mut self) {
        let Self { lock, locks, presence, since, taken } = self;
        taken.forget();
        if *presence == Presence::Absent {
            locks.reach_absent::<C>(lock.instance, SHARED);
            lock.raw.give_back_alone(Self::WANT);
            return;
        }
        if *presence == Presence::Counted {
            locks.released::<C>(*since);
            taken::forget_counted::<C>(lock.instance);
        }
        if *presence != Presence::Present {
            Locks::reach::<C>(lock.instance, SHARED);
        }
        lock.raw.give_back(Self::WANT);
        if *presence != Presence::Present {
            locks.point(At::Unlock(C::RANK, lock.instance));
        }
    }
}

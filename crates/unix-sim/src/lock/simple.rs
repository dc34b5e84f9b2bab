//! Simple locks (§2.2): a thread that waits for a [`SimpleLock`] spins.
//!
//! A thread holds a simple lock briefly and never sleeps while it does. If the mode omits the class
//! ([`Presence::Absent`]), the word is still written, but without synchronisation, like the flag of
//! a [`RefCell`](std::cell::RefCell): a second holder panics.
#![allow(unsafe_code, reason = "the lock lends the value that it protects")]

use super::statistics::Came;
use super::taken::{self, HeldRecord, Manner};
use super::{LockClass, Locks, Presence};
use crate::executor::{self, At};
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// A spin lock of class `C` that guards a `T`.
pub(crate) struct SimpleLock<C: LockClass, T> {
    word: AtomicU32,
    instance: u32,
    value: UnsafeCell<T>,
    class: PhantomData<fn() -> C>,
}

// SAFETY: guards are the only access to the value, and only one guard exists at a time: `take`
// ensures this, or, in a mode without the class, the contract of `Locks::new`. The lock therefore
// moves a `T` between threads and never shares it.
unsafe impl<C: LockClass, T: Send> Sync for SimpleLock<C, T> {}

impl<C: LockClass, T> SimpleLock<C, T> {
    /// Creates a free lock. `instance`, a slot number, identifies and orders the locks of one
    /// class.
    pub(crate) const fn new(instance: u32, value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            instance,
            value: UnsafeCell::new(value),
            class: PhantomData,
        }
    }

    /// Acquires the lock, spinning while another thread holds it.
    ///
    /// # Panics
    ///
    /// Panics if the class is absent and the lock is held, or if other locks replace it in this
    /// mode. With debug assertions, also panics if the acquisition is out of order or at the wrong
    /// spl.
    #[inline]
    #[track_caller]
    pub(crate) fn lock<'a>(&'a self, locks: &'a Locks) -> SimpleGuard<'a, C, T> {
        self.lock_as(locks, Manner::Alone)
    }

    /// Acquires the lock if it is free, regardless of the lock order.
    ///
    /// # Panics
    ///
    /// Panics if other locks replace this one in the current mode. With debug assertions, also
    /// panics if the spl is wrong.
    #[cfg(test)]
    #[track_caller]
    pub(crate) fn try_lock<'a>(&'a self, locks: &'a Locks) -> Option<SimpleGuard<'a, C, T>> {
        let presence = locks.presence::<C>();
        match presence {
            Presence::Replaced => locks.refuse::<C>(),
            Presence::Absent if self.word.load(Ordering::Relaxed) == TAKEN => return None,
            Presence::Absent => self.word.store(TAKEN, Ordering::Relaxed),
            Presence::Present | Presence::Explored | Presence::Counted => {
                locks.point_at::<C>(self.instance, false);
                if !self.take() {
                    return None;
                }
            }
        }
        let taken = HeldRecord::note::<C>(self.instance, Manner::Try, presence);
        taken.have();
        let since = match presence {
            Presence::Counted => {
                taken::have_counted(taken::wait_counted::<C>(self.instance));
                locks.acquired::<C>(Came::AtOnce)
            }
            _ => 0,
        };
        Some(SimpleGuard { lock: self, locks, presence, since, taken })
    }

    /// Returns `true` if, a moment ago, no thread held the lock.
    pub(crate) fn is_idle(&self) -> bool {
        self.word.load(Ordering::Relaxed) == FREE
    }

    /// Returns the lock's number within its class.
    pub(crate) fn instance(&self) -> u32 {
        self.instance
    }

    /// Returns the value even if a thread holds the lock.
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

    #[inline]
    #[track_caller]
    pub(super) fn lock_as<'a>(&'a self, locks: &'a Locks, manner: Manner) -> SimpleGuard<'a, C, T> {
        let presence = locks.presence::<C>();
        let taken = HeldRecord::note::<C>(self.instance, manner, presence);
        let mut since = 0;
        match presence {
            Presence::Present if self.take() => {}
            Presence::Present => self.spin(),
            Presence::Absent => {
                locks.assert_alone_here(C::NAME);
                locks.reach_absent::<C>(self.instance, false);
                if self.word.load(Ordering::Relaxed) == TAKEN {
                    self.held_twice(locks);
                }
                self.word.store(TAKEN, Ordering::Relaxed);
            }
            Presence::Explored => self.take_explored(locks),
            Presence::Counted | Presence::Replaced => since = self.count_or_refuse(locks),
        }
        taken.have();
        SimpleGuard { lock: self, locks, presence, since, taken }
    }

    /// Takes the lock if it is free. Returns `true` if it was taken.
    #[inline]
    fn take(&self) -> bool {
        // SYNC simple: pairs with the guard's release: the effects of the last holder are visible.
        self.word.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn spin(&self) {
        loop {
            executor::spin(&self.word);
            Locks::reach::<C>(self.instance, false);
            if self.word.load(Ordering::Relaxed) == FREE && self.take() {
                return;
            }
        }
    }

    /// Acquires the lock after a point at which another fiber may run first.
    #[inline(never)]
    fn take_explored(&self, locks: &Locks) {
        locks.point_at::<C>(self.instance, false);
        if !self.take() {
            self.spin();
        }
    }

    /// Acquires the lock in a system that counts acquisitions; returns the time of the acquisition.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn count_or_refuse(&self, locks: &Locks) -> u64 {
        if !locks.has::<C>() {
            locks.refuse::<C>();
        }
        let noted = taken::wait_counted::<C>(self.instance);
        locks.point_at::<C>(self.instance, false);
        let came = if self.take() {
            Came::AtOnce
        } else {
            self.spin();
            Came::Waited
        };
        taken::have_counted(noted);
        locks.acquired::<C>(came)
    }

    #[cold]
    #[track_caller]
    fn held_twice(&self, locks: &Locks) -> ! {
        locks.held_twice::<C>(self.instance)
    }
}

impl<C: LockClass, T> fmt::Debug for SimpleLock<C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", C::NAME, self.instance)
    }
}

/// A simple lock that is held.
#[must_use]
pub(crate) struct SimpleGuard<'a, C: LockClass, T> {
    lock: &'a SimpleLock<C, T>,
    locks: &'a Locks,
    presence: Presence,
    since: u64,
    taken: HeldRecord,
}

impl<'a, C: LockClass, T> SimpleGuard<'a, C, T> {
    /// Returns the [`Locks`] with which the lock was acquired.
    pub(super) fn locks(&self) -> &'a Locks {
        self.locks
    }
}

impl<C: LockClass, T> fmt::Debug for SimpleGuard<'_, C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, held", self.lock)
    }
}

impl<C: LockClass, T> Deref for SimpleGuard<'_, C, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one of the lock, and the value is borrowed no longer than
        // the guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<C: LockClass, T> DerefMut for SimpleGuard<'_, C, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one of the lock, and is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<C: LockClass, T> Drop for SimpleGuard<'_, C, T> {
    #[inline]
    fn drop(&mut self) {
        if self.presence == Presence::Counted {
            self.locks.released::<C>(self.since);
            taken::forget_counted::<C>(self.lock.instance);
        }
        self.taken.forget();
        if self.presence != Presence::Present {
            Locks::reach::<C>(self.lock.instance, false);
        }
        // SYNC simple: pairs with `take`. An absent lock needs no ordering, but the ordering costs
        // nothing here.
        self.lock.word.store(FREE, Ordering::Release);
        if matches!(self.presence, Presence::Explored | Presence::Counted) {
            self.locks.point(At::Unlock(C::RANK, self.lock.instance));
        }
    }
}

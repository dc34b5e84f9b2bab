//! Blocking locks (§2.2): many readers or one writer may hold a [`BlockingLock`]; a waiting thread
//! is blocked.
//!
//! A lock that is only taken by [`BlockingLock::write`] is a mutex. A waiting fiber retries for a
//! short while and then parks, so that its worker can run other fibers. [`super::turns`] decides
//! the order of waiters.
#![allow(unsafe_code, reason = "the lock lends the value that it protects")]

use super::statistics::Came;
use super::taken::{self, HeldRecord, Manner};
use super::turns::{Turns, Want};
use super::{LockClass, Locks, Presence};
use crate::executor::At;
use crate::held::assert_may_park;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A blocking lock of class `C` that guards a `T`.
pub(crate) struct BlockingLock<C: LockClass, T> {
    turns: Turns,
    instance: u32,
    value: UnsafeCell<T>,
    class: PhantomData<fn() -> C>,
}

// SAFETY: guards are the only access to the value. `Turns` allows many readers, so `T` must be
// `Sync`, or one writer, so `T` must be `Send`; in a mode without the class, the contract of
// `Locks::new` ensures the same.
unsafe impl<C: LockClass, T: Send + Sync> Sync for BlockingLock<C, T> {}

impl<C: LockClass, T> BlockingLock<C, T> {
    /// Creates a free lock. `instance`, a slot number, identifies and orders the locks of one
    /// class.
    pub(crate) fn new(instance: u32, value: T) -> Self {
        Self { turns: Turns::new(), instance, value: UnsafeCell::new(value), class: PhantomData }
    }

    /// Acquires the lock for reading. Sleeps while a writer holds the lock or waits for it.
    ///
    /// # Panics
    ///
    /// Panics if the class is absent and a writer holds the lock, or if other locks replace it in
    /// this mode. With debug assertions, also panics if the acquisition is out of order or if the
    /// fiber must not sleep.
    #[inline]
    #[track_caller]
    pub(crate) fn read<'a>(&'a self, locks: &'a Locks) -> ReadGuard<'a, C, T> {
        ReadGuard { hold: LockHold::take(self, locks, Want::Read, Manner::Alone) }
    }

    /// Acquires the lock exclusively. Sleeps while another fiber holds the lock.
    ///
    /// # Panics
    ///
    /// Panics if the class is absent and the lock is held, or if other locks replace it in this
    /// mode. With debug assertions, also panics if the acquisition is out of order or if the fiber
    /// must not sleep.
    #[inline]
    #[track_caller]
    pub(crate) fn write<'a>(&'a self, locks: &'a Locks) -> WriteGuard<'a, C, T> {
        self.write_as(locks, Manner::Alone)
    }

    /// Like [`Self::write`], but returns `None` if other locks replace this one in the current
    /// mode.
    #[inline]
    #[track_caller]
    pub(crate) fn write_if_any<'a>(&'a self, locks: &'a Locks) -> Option<WriteGuard<'a, C, T>> {
        if locks.has::<C>() { Some(self.write(locks)) } else { None }
    }

    /// Returns `true` if, a moment ago, no fiber held the lock or waited for it.
    pub(crate) fn is_idle(&self) -> bool {
        self.turns.is_idle()
    }

    /// Returns the lock's number within its class.
    pub(crate) fn instance(&self) -> u32 {
        self.instance
    }

    /// Returns the number of fibers that sleep until they hold the lock.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.turns.queued()
    }

    #[inline]
    #[track_caller]
    pub(super) fn write_as<'a>(&'a self, locks: &'a Locks, manner: Manner) -> WriteGuard<'a, C, T> {
        WriteGuard { hold: LockHold::take(self, locks, Want::Write, manner) }
    }

    /// Acquires the lock, and returns whether the acquisition had to wait.
    #[inline]
    fn take(&self, locks: &Locks, want: Want) -> Came {
        if self.turns.try_take(want) {
            Came::AtOnce
        } else {
            // A waiting reader changes the queue.
            Locks::reach::<C>(self.instance, false);
            self.turns.wait(want, locks.busy_turns())
        }
    }

    /// Acquires the lock in a system that counts acquisitions; returns the time of the acquisition.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn count_or_refuse(&self, locks: &Locks, want: Want) -> u64 {
        if !locks.has::<C>() {
            locks.refuse::<C>();
        }
        let noted = taken::wait_counted::<C>(self.instance);
        locks.point_at::<C>(self.instance, want == Want::Read);
        let came = self.take(locks, want);
        taken::have_counted(noted);
        locks.acquired::<C>(came)
    }

    #[cold]
    #[track_caller]
    fn held_twice(&self, locks: &Locks) -> ! {
        locks.held_twice::<C>(self.instance)
    }
}

impl<C: LockClass, T> fmt::Debug for BlockingLock<C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", C::NAME, self.instance)
    }
}

/// The common part of both guards.
struct LockHold<'a, C: LockClass, T> {
    lock: &'a BlockingLock<C, T>,
    locks: &'a Locks,
    want: Want,
    presence: Presence,
    since: u64,
    taken: HeldRecord,
}

impl<'a, C: LockClass, T> LockHold<'a, C, T> {
    #[inline]
    #[track_caller]
    fn take(lock: &'a BlockingLock<C, T>, locks: &'a Locks, want: Want, manner: Manner) -> Self {
        let presence = locks.presence::<C>();
        if presence != Presence::Absent {
            assert_may_park();
        }
        let taken = HeldRecord::note::<C>(lock.instance, manner, presence);
        let mut since = 0;
        match presence {
            Presence::Present => {
                lock.take(locks, want);
            }
            Presence::Absent => {
                locks.assert_alone_here(C::NAME);
                locks.reach_absent::<C>(lock.instance, want == Want::Read);
                if !lock.turns.try_take_alone(want) {
                    lock.held_twice(locks);
                }
            }
            Presence::Explored => {
                locks.point_at::<C>(lock.instance, want == Want::Read);
                lock.take(locks, want);
            }
            Presence::Counted | Presence::Replaced => since = lock.count_or_refuse(locks, want),
        }
        taken.have();
        Self { lock, locks, want, presence, since, taken }
    }
}

impl<C: LockClass, T> fmt::Debug for LockHold<'_, C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, held to {:?}", self.lock, self.want)
    }
}

impl<C: LockClass, T> Drop for LockHold<'_, C, T> {
    #[inline]
    fn drop(&mut self) {
        self.taken.forget();
        let shared = self.want == Want::Read;
        if self.presence == Presence::Absent {
            self.locks.reach_absent::<C>(self.lock.instance, shared);
            self.lock.turns.give_back_alone(self.want);
            return;
        }
        if self.presence == Presence::Counted {
            self.locks.released::<C>(self.since);
            taken::forget_counted::<C>(self.lock.instance);
        }
        if self.presence != Presence::Present {
            Locks::reach::<C>(self.lock.instance, shared);
        }
        self.lock.turns.give_back(self.want);
        if self.presence != Presence::Present {
            self.locks.point(At::Unlock(C::RANK, self.lock.instance));
        }
    }
}

/// A blocking lock held for reading, together with other readers.
#[derive(Debug)]
#[must_use]
pub(crate) struct ReadGuard<'a, C: LockClass, T> {
    hold: LockHold<'a, C, T>,
}

/// A blocking lock held exclusively.
#[derive(Debug)]
#[must_use]
pub(crate) struct WriteGuard<'a, C: LockClass, T> {
    hold: LockHold<'a, C, T>,
}

impl<'a, C: LockClass, T> ReadGuard<'a, C, T> {
    /// Returns the [`Locks`] with which the lock was acquired.
    pub(super) fn locks(&self) -> &'a Locks {
        self.hold.locks
    }
}

impl<'a, C: LockClass, T> WriteGuard<'a, C, T> {
    /// Returns the [`Locks`] with which the lock was acquired.
    pub(super) fn locks(&self) -> &'a Locks {
        self.hold.locks
    }
}

impl<C: LockClass, T> Deref for ReadGuard<'_, C, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: while this guard exists, all other guards of the lock are read guards.
        unsafe { &*self.hold.lock.value.get() }
    }
}

impl<C: LockClass, T> Deref for WriteGuard<'_, C, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one of the lock, and the value is borrowed no longer than
        // the guard.
        unsafe { &*self.hold.lock.value.get() }
    }
}

impl<C: LockClass, T> DerefMut for WriteGuard<'_, C, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one of the lock, and is borrowed exclusively.
        unsafe { &mut *self.hold.lock.value.get() }
    }
}

//! Blocking locks (§2.2): many readers or one writer may hold a [`BlockingLock`]; a waiting thread
//! is blocked.
//!
//! A lock that is only taken by [`BlockingLock::write`] is a mutex. A waiting fiber retries for a
//! short while and then parks, so that its worker can run other fibers. [`super::turns`] decides
//! the order of waiters.

use super::class_lock::{ClassLock, LockGuard, RawLock};
use super::statistics::Acquisition;
use super::taken::Manner;
use super::turns::{Turns, Want};
use super::{LockClass, Locks};

/// A blocking lock of class `C` that guards a `T`.
pub(crate) type BlockingLock<C, T> = ClassLock<C, Turns, T>;

/// A blocking lock held for reading, together with other readers.
pub(crate) type ReadGuard<'a, C, T> = LockGuard<'a, C, Turns, T, true>;

/// A blocking lock held exclusively.
pub(crate) type WriteGuard<'a, C, T> = LockGuard<'a, C, Turns, T, false>;

impl<C: LockClass, T> BlockingLock<C, T> {
    /// Creates a free lock. `instance`, a slot number, identifies and orders the locks of one
    /// class.
    pub(crate) fn new(instance: u32, value: T) -> Self {
        Self::with_raw(Turns::new(), instance, value)
    }

    /// Acquires the lock for reading. Sleeps while a writer holds the lock or waits for it. Panics
    /// if the class is absent and a writer holds the lock. With debug assertions, also panics if
    /// the acquisition is out of order or if the fiber must not sleep.
    #[inline]
    #[track_caller]
    pub(crate) fn read<'a>(&'a self, locks: &'a Locks) -> ReadGuard<'a, C, T> {
        LockGuard::new(self, locks, Manner::Alone)
    }

    /// Acquires the lock exclusively. Sleeps while another fiber holds the lock. Panics if the
    /// class is absent and the lock is held. With debug assertions, also panics if the acquisition
    /// is out of order or if the fiber must not sleep.
    #[inline]
    #[track_caller]
    pub(crate) fn write<'a>(&'a self, locks: &'a Locks) -> WriteGuard<'a, C, T> {
        self.take_alone(locks, Manner::Alone)
    }

    /// Returns the number of fibers that sleep until they hold the lock.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.raw.queued()
    }
}

impl RawLock for Turns {
    const PARKS: bool = true;

    fn is_idle(&self) -> bool {
        self.is_idle()
    }

    #[inline]
    fn try_take(&self, want: Want) -> bool {
        self.try_take(want)
    }

    #[inline]
    fn wait<C: LockClass>(&self, instance: u32, want: Want, locks: &Locks) -> Acquisition {
        // A waiting reader changes the queue.
        Locks::reach::<C>(instance, false);
        self.wait(want, locks.busy_turns())
    }

    #[inline]
    fn give_back(&self, want: Want) {
        self.give_back(want);
    }

    #[inline]
    fn try_take_alone(&self, want: Want) -> bool {
        self.try_take_alone(want)
    }

    #[inline]
    fn give_back_alone(&self, want: Want) {
        self.give_back_alone(want);
    }
}

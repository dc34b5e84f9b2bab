//! Simple locks (§2.2): a thread that waits for a [`SimpleLock`] spins.
//!
//! A thread holds a simple lock briefly and never sleeps while it does. If the mode omits the class
//! ([`Presence::Absent`](super::Presence)), the word is still written, but without synchronisation,
//! like the flag of a [`RefCell`](std::cell::RefCell): a second holder panics.

use super::class_lock::{ClassLock, LockGuard, RawLock};
use super::statistics::Acquisition;
use super::taken::Manner;
use super::turns::Want;
use super::{LockClass, Locks};
use crate::executor;
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// The raw lock of a [`SimpleLock`].
pub(crate) struct SpinWord(AtomicU32);

/// A spin lock of class `C` that guards a `T`.
pub(crate) type SimpleLock<C, T> = ClassLock<C, SpinWord, T>;

/// A simple lock that is held.
pub(crate) type SimpleGuard<'a, C, T> = LockGuard<'a, C, SpinWord, T, false>;

impl<C: LockClass, T> SimpleLock<C, T> {
    /// Creates a free lock. `instance`, a slot number, identifies and orders the locks of one
    /// class.
    pub(crate) const fn new(instance: u32, value: T) -> Self {
        Self::with_raw(SpinWord(AtomicU32::new(FREE)), instance, value)
    }

    /// Acquires the lock, spinning while another thread holds it. Panics if the class is absent and
    /// the lock is held. With debug assertions, also panics if the acquisition is out of order or
    /// at the wrong spl.
    #[inline]
    #[track_caller]
    pub(crate) fn lock<'a>(&'a self, locks: &'a Locks) -> SimpleGuard<'a, C, T> {
        self.take_alone(locks, Manner::Alone)
    }
}

impl RawLock for SpinWord {
    const PARKS: bool = false;

    fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) == FREE
    }

    #[inline]
    fn try_take(&self, _: Want) -> bool {
        // SYNC simple: pairs with `give_back`: the effects of the last holder are visible.
        self.0.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn wait<C: LockClass>(&self, instance: u32, want: Want, _: &Locks) -> Acquisition {
        loop {
            executor::spin(&self.0);
            Locks::reach::<C>(instance, false);
            if self.is_idle() && self.try_take(want) {
                return Acquisition::Waited;
            }
        }
    }

    #[inline]
    fn give_back(&self, _: Want) {
        // SYNC simple: pairs with `try_take`.
        self.0.store(FREE, Ordering::Release);
    }

    #[inline]
    fn try_take_alone(&self, _: Want) -> bool {
        let is_free = self.is_idle();
        self.0.store(TAKEN, Ordering::Relaxed);
        is_free
    }

    #[inline]
    fn give_back_alone(&self, want: Want) {
        // An absent lock needs no ordering, but the ordering costs nothing here.
        self.give_back(want);
    }
}

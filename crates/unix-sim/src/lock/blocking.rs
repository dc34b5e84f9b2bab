//! Blocking locks (§2.2): [`BlockingLock`] is had by many readers or one writer; who waits is
//! blocked.
//!
//! Taken only by [`BlockingLock::write`] it is a mutex. A fiber that waits tries for a short while
//! and then parks; its worker runs others meanwhile. Who is next is the business of
//! [`super::turns`].
#![allow(unsafe_code, reason = "the lock hands out the value that it keeps others from")]

use super::statistics::Came;
use super::taken::{self, Manner, Taken};
use super::turns::{Turns, Want};
use super::{Class, Locks, Presence};
use crate::executor::At;
use crate::held::assert_may_park;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A blocking lock of class `C` around a `T`.
pub(crate) struct BlockingLock<C: Class, T> {
    turns: Turns,
    instance: u32,
    value: UnsafeCell<T>,
    class: PhantomData<fn() -> C>,
}

// SAFETY: guards are the only way to the value. `Turns` allows many that only read, so `T` is
// `Sync`, or one that writes, so `T` is `Send`; in a mode without the class, by the contract of
// `Locks::new`.
unsafe impl<C: Class, T: Send + Sync> Sync for BlockingLock<C, T> {}

impl<C: Class, T> BlockingLock<C, T> {
    /// A free lock. `instance` tells those of one class apart and orders them: a slot number.
    pub(crate) fn new(instance: u32, value: T) -> Self {
        Self { turns: Turns::new(), instance, value: UnsafeCell::new(value), class: PhantomData }
    }

    /// Takes it together with other readers; sleeps while a writer has it or waits for it.
    ///
    /// # Panics
    ///
    /// If the class is absent and a writer holds it, or if other locks stand in its place. With
    /// debug assertions also out of order or where it must not sleep.
    #[inline]
    #[track_caller]
    pub(crate) fn read<'a>(&'a self, locks: &'a Locks) -> ReadGuard<'a, C, T> {
        ReadGuard { hold: Hold::take(self, locks, Want::Read, Manner::Alone) }
    }

    /// Takes it alone; sleeps while anybody has it.
    ///
    /// # Panics
    ///
    /// If the class is absent and anybody holds it, or if other locks stand in its place. With
    /// debug assertions also out of order or where it must not sleep.
    #[inline]
    #[track_caller]
    pub(crate) fn write<'a>(&'a self, locks: &'a Locks) -> WriteGuard<'a, C, T> {
        self.write_as(locks, Manner::Alone)
    }

    /// [`Self::write`], or nothing where other locks stand in its place.
    #[inline]
    #[track_caller]
    pub(crate) fn write_if_any<'a>(&'a self, locks: &'a Locks) -> Option<WriteGuard<'a, C, T>> {
        if locks.has::<C>() { Some(self.write(locks)) } else { None }
    }

    /// Whether nobody had it or waited for it a moment ago.
    pub(crate) fn is_idle(&self) -> bool {
        self.turns.is_idle()
    }

    /// What tells it from others of its class.
    pub(crate) fn instance(&self) -> u32 {
        self.instance
    }

    /// How many sleep until they have it.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.turns.queued()
    }

    #[inline]
    #[track_caller]
    pub(super) fn write_as<'a>(&'a self, locks: &'a Locks, manner: Manner) -> WriteGuard<'a, C, T> {
        WriteGuard { hold: Hold::take(self, locks, Want::Write, manner) }
    }

    /// Takes it, and says how that came about.
    #[inline]
    fn take(&self, locks: &Locks, want: Want) -> Came {
        if self.turns.try_take(want) {
            Came::AtOnce
        } else {
            // Readers that wait change the queue.
            Locks::reach::<C>(self.instance, false);
            self.turns.wait(want, locks.busy_turns())
        }
    }

    /// Takes it where acquisitions are counted; says when that was.
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

impl<C: Class, T> fmt::Debug for BlockingLock<C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", C::NAME, self.instance)
    }
}

/// What both guards are made of.
struct Hold<'a, C: Class, T> {
    lock: &'a BlockingLock<C, T>,
    locks: &'a Locks,
    want: Want,
    presence: Presence,
    since: u64,
    taken: Taken,
}

impl<'a, C: Class, T> Hold<'a, C, T> {
    #[inline]
    #[track_caller]
    fn take(lock: &'a BlockingLock<C, T>, locks: &'a Locks, want: Want, manner: Manner) -> Self {
        let presence = locks.presence::<C>();
        if presence != Presence::Absent {
            assert_may_park();
        }
        let taken = Taken::note::<C>(lock.instance, manner, presence);
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

impl<C: Class, T> fmt::Debug for Hold<'_, C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, held to {:?}", self.lock, self.want)
    }
}

impl<C: Class, T> Drop for Hold<'_, C, T> {
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

/// A blocking lock that is held together with other readers.
#[derive(Debug)]
#[must_use]
pub(crate) struct ReadGuard<'a, C: Class, T> {
    hold: Hold<'a, C, T>,
}

/// A blocking lock that is held alone.
#[derive(Debug)]
#[must_use]
pub(crate) struct WriteGuard<'a, C: Class, T> {
    hold: Hold<'a, C, T>,
}

impl<'a, C: Class, T> ReadGuard<'a, C, T> {
    /// What the lock was taken with.
    pub(super) fn locks(&self) -> &'a Locks {
        self.hold.locks
    }
}

impl<'a, C: Class, T> WriteGuard<'a, C, T> {
    /// What the lock was taken with.
    pub(super) fn locks(&self) -> &'a Locks {
        self.hold.locks
    }
}

impl<C: Class, T> Deref for ReadGuard<'_, C, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: while this guard lives, all others of the lock only read too.
        unsafe { &*self.hold.lock.value.get() }
    }
}

impl<C: Class, T> Deref for WriteGuard<'_, C, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard is the lock's only one, and lends the value for no longer than itself.
        unsafe { &*self.hold.lock.value.get() }
    }
}

impl<C: Class, T> DerefMut for WriteGuard<'_, C, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the lock's only one, and is borrowed exclusively.
        unsafe { &mut *self.hold.lock.value.get() }
    }
}

//! A lock taken while another one is held (§5.5): [`Holding`] lets the compiler check the order.
//!
//! `group.then_lock(&process.lock)` compiles if the class of `group` is [`RanksBefore`] that of the
//! lock. The inner guard does not borrow the outer one. For locks that other functions take, the
//! order is checked only at run time.

use super::class_lock::{LockGuard, RawLock};
use super::lock_order::RanksBefore;
use super::{BlockingLock, LockClass, Locks, ReadGuard, SimpleGuard, SimpleLock, WriteGuard};

/// A lock that is held.
pub(crate) trait Holding<'a> {
    /// The class of the lock.
    type Class: LockClass;

    /// Returns the [`Locks`] with which the lock was acquired.
    fn taken_with(&self) -> &'a Locks;

    /// Acquires a simple lock of a later class.
    #[inline]
    #[track_caller]
    fn then_lock<C: LockClass, T>(&self, inner: &'a SimpleLock<C, T>) -> SimpleGuard<'a, C, T>
    where
        Self::Class: RanksBefore<C>,
    {
        inner.lock(self.taken_with())
    }

    /// Acquires a blocking lock of a later class, for reading.
    #[inline]
    #[track_caller]
    fn then_read<C: LockClass, T>(&self, inner: &'a BlockingLock<C, T>) -> ReadGuard<'a, C, T>
    where
        Self::Class: RanksBefore<C>,
    {
        inner.read(self.taken_with())
    }

    /// Acquires a blocking lock of a later class, exclusively.
    #[inline]
    #[track_caller]
    fn then_write<C: LockClass, T>(&self, inner: &'a BlockingLock<C, T>) -> WriteGuard<'a, C, T>
    where
        Self::Class: RanksBefore<C>,
    {
        inner.write(self.taken_with())
    }
}

impl<'a, C: LockClass, W: RawLock, T, const SHARED: bool> Holding<'a>
    for LockGuard<'a, C, W, T, SHARED>
{
    type Class = C;

    fn taken_with(&self) -> &'a Locks {
        self.locks()
    }
}

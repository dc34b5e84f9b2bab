//! Two locks of one class held together (§5.5). This is the only way to hold two locks of one rank.
//!
//! The paper orders such locks by address. Here the instance number decides, because addresses
//! differ from run to run.

use super::taken::Manner;
use super::{BlockingLock, LockClass, Locks, SimpleGuard, SimpleLock, WriteGuard};

/// Acquires both locks, the one with the smaller instance number first. If both arguments are the
/// same lock, acquires it once and returns `None` as the second guard.
///
/// # Panics
///
/// Panics like [`SimpleLock::lock`], and also if two different locks have the same instance number.
#[track_caller]
pub(crate) fn lock_both<'a, C: LockClass, T>(
    a: &'a SimpleLock<C, T>,
    b: &'a SimpleLock<C, T>,
    locks: &'a Locks,
) -> (SimpleGuard<'a, C, T>, Option<SimpleGuard<'a, C, T>>) {
    if std::ptr::eq(a, b) {
        return (a.lock(locks), None);
    }
    assert_ne!(a.instance(), b.instance(), "two locks of class {} have one instance", C::NAME);
    if a.instance() < b.instance() {
        let a = a.lock(locks);
        (a, Some(b.lock_as(locks, Manner::Second)))
    } else {
        let b = b.lock(locks);
        (a.lock_as(locks, Manner::Second), Some(b))
    }
}

/// Acquires both locks for writing, the one with the smaller instance number first. If both
/// arguments are the same lock, acquires it once and returns `None` as the second guard.
///
/// # Panics
///
/// Panics like [`BlockingLock::write`], and also if two different locks have the same instance
/// number.
#[track_caller]
pub(crate) fn write_both<'a, C: LockClass, T>(
    a: &'a BlockingLock<C, T>,
    b: &'a BlockingLock<C, T>,
    locks: &'a Locks,
) -> (WriteGuard<'a, C, T>, Option<WriteGuard<'a, C, T>>) {
    if std::ptr::eq(a, b) {
        return (a.write(locks), None);
    }
    assert_ne!(a.instance(), b.instance(), "two locks of class {} have one instance", C::NAME);
    if a.instance() < b.instance() {
        let a = a.write(locks);
        (a, Some(b.write_as(locks, Manner::Second)))
    } else {
        let b = b.write(locks);
        (a.write_as(locks, Manner::Second), Some(b))
    }
}

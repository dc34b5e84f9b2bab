//! Two locks of one class held together (§5.5). This is the only way to hold two locks of one rank.
//!
//! The paper orders such locks by address. Here the instance number decides, because addresses
//! differ from run to run.

use super::class_lock::{ClassLock, ExclusiveGuard, RawLock};
use super::taken::Manner;
use super::{LockClass, Locks};

/// The guards of one or two locks.
type GuardPair<'a, C, W, T> = (ExclusiveGuard<'a, C, W, T>, Option<ExclusiveGuard<'a, C, W, T>>);

/// Acquires both locks exclusively, the one with the smaller instance number first. If both
/// arguments are the same lock, acquires it once and returns `None` as the second guard. Panics
/// like [`SimpleLock::lock`](super::SimpleLock::lock) or
/// [`BlockingLock::write`](super::BlockingLock::write), and also if two different locks have the
/// same instance number.
#[track_caller]
pub(crate) fn lock_both<'a, C: LockClass, W: RawLock, T>(
    a: &'a ClassLock<C, W, T>,
    b: &'a ClassLock<C, W, T>,
    locks: &'a Locks,
) -> GuardPair<'a, C, W, T> {
    if std::ptr::eq(a, b) {
        return (a.take_alone(locks, Manner::Alone), None);
    }
    assert_ne!(a.instance(), b.instance(), "two locks of class {} have one instance", C::NAME);
    if a.instance() < b.instance() {
        let a = a.take_alone(locks, Manner::Alone);
        (a, Some(b.take_alone(locks, Manner::Second)))
    } else {
        let b = b.take_alone(locks, Manner::Alone);
        (a.take_alone(locks, Manner::Second), Some(b))
    }
}

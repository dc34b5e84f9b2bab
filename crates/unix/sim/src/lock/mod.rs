//! Locks: [`SimpleLock`] spins, [`BlockingLock`] busy-waits briefly and then blocks.
//!
//! Every lock belongs to a [`LockClass`], and [`lock_order`] arranges the classes in one total
//! order. The [`LockingMode`](crate::LockingMode) determines the set of classes; [`Locks`] stores
//! the set and counts acquisitions. A lock that the mode does not need costs a load and a branch.
//! Builds with debug assertions check the order of every acquisition, by class and by instance, and
//! the [`spl`] at which it happens.
//!
//! The executor runs threads and lets them sleep; the locks call its `point`, `spin`, `park` and
//! `unpark`. The kernel owns the data that the locks guard.

mod blocking;
mod both;
mod class_lock;
#[cfg(not(loom))]
mod gate;
pub(crate) mod lock_order;
mod locks;
#[cfg(all(test, loom))]
mod models;
mod nested;
mod page;
mod simple;
pub(crate) mod spl;
mod statistics;
mod sync;
mod taken;
#[cfg(all(test, not(loom)))]
mod tests;
mod turns;

pub(crate) use blocking::{BlockingLock, ReadGuard, WriteGuard};
pub(crate) use both::lock_both;
pub(crate) use lock_order::LockClass;
pub(crate) use locks::{HoldClock, LockOptions, Locks, Presence};
pub(crate) use nested::Holding;
pub use page::lock_order_page;
pub(crate) use simple::{SimpleGuard, SimpleLock};
pub use statistics::{LockRow, LockStatistics};

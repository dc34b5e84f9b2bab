//! What the protocol of blocking locks is written with: the processor's atomics and the executor's
//! fibers, or loom's when it is checked as a model (`RUSTFLAGS="--cfg loom"`).

#[cfg(loom)]
pub(super) mod model;

#[cfg(not(loom))]
pub(super) use crate::executor;
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicBool, AtomicU32};

#[cfg(loom)]
pub(super) use loom::cell::UnsafeCell;
#[cfg(loom)]
pub(super) use model::{AtomicBool, AtomicU32, executor};

pub(super) use std::sync::atomic::Ordering;

/// The standard one, with loom's way in.
#[cfg(not(loom))]
#[derive(Debug)]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub(super) fn with_mut<R>(&self, body: impl FnOnce(*mut T) -> R) -> R {
        body(self.0.get())
    }
}

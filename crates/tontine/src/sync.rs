//! The atomics of the protocols: the standard library's, or loom's in a model
//! (`RUSTFLAGS="--cfg loom"`).

pub(crate) mod clock;
#[cfg(loom)]
pub(crate) mod weakened;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use weakened::{AtomicU64, fence};

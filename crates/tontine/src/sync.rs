//! The atomics that the protocols are written with: the processor's, or loom's when they are
//! checked as a model (`RUSTFLAGS="--cfg loom"`).

#[cfg(loom)]
pub(crate) mod weakened;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use weakened::{AtomicU64, fence};

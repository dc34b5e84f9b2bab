//! The primitives of the protocol of blocking locks: the processor's atomics and the executor's
//! fibers, or loom's if the protocol is checked as a model (`RUSTFLAGS="--cfg loom"`).

#[cfg(loom)]
pub(super) mod model;

#[cfg(not(loom))]
pub(super) use super::gate::Gate;
#[cfg(not(loom))]
pub(super) use crate::executor;
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicBool, AtomicU32};

#[cfg(loom)]
pub(super) use model::{AtomicBool, AtomicU32, Gate, executor};

pub(super) use std::sync::atomic::Ordering;

//! Communication between the processes of one Linux machine, of which any may be killed at any
//! instruction, and any may be hostile.
//!
//! - [`life`]: liveness of processes. A word of shared memory that the kernel itself marks when its
//!   owner ends. Reading it costs one load.
//! - [`mailbox`]: messages from many processes to one.
//! - [`heap`]: memory by the block.
//! - [`signal`]: signals as values, blocked in every thread and taken in one place.
//! - [`Error`], [`Peer`]: what can go wrong, and who is to blame.
//!
//! The guides are `docs/mailbox.md`, `docs/heap.md` and `docs/signal.md`. The bytes that two
//! processes share are laid out in `docs/layout.md`; what is left behind by a process that dies in
//! the middle of something, and who clears it up, in `docs/recovery.md`.
//!
//! Floors, from the bottom up: `error`, `sync`; `sys`; `lane`, `life`; `mailbox`; `heap`, `signal`;
//! `layout`, `fuzzing`.

#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "models need no more than words and lanes")
)]

#[cfg(not(loom))]
mod error;
#[cfg(all(any(test, fuzzing), not(loom)))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(not(loom))]
pub mod heap;
/// Of the heap, what its models need.
#[cfg(loom)]
mod heap {
    mod shared {
        #[cfg(test)]
        mod models;
        mod word;
    }
}
mod lane;
#[cfg(all(test, not(loom)))]
mod layout;
#[cfg(not(loom))]
pub mod life;
#[cfg(not(loom))]
pub mod mailbox;
#[cfg(not(loom))]
pub mod signal;
mod sync;
#[cfg(not(loom))]
mod sys;

#[cfg(not(loom))]
pub use error::{Error, Peer, Result};

/// The programs in the guides compile.
#[cfg(all(doctest, not(loom)))]
mod guides {
    #[doc = include_str!("../../../docs/mailbox.md")]
    mod mailbox {}
    #[doc = include_str!("../../../docs/heap.md")]
    mod heap {}
    #[doc = include_str!("../../../docs/signal.md")]
    mod signal {}
    #[doc = include_str!("../../../docs/coming-from.md")]
    mod coming_from {}
}

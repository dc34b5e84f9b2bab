//! Communication between the processes of one Linux machine, of which any may be killed at any
//! instruction, and any may be hostile.
//!
//! - [`life`]: who is still there? A word of shared memory that the kernel itself marks when its
//!   owner ends. Asking costs one load.
//! - [`Error`], [`Peer`]: what can go wrong, and who is to blame.
//!
//! The bytes that two processes share are laid out in `docs/layout.md`; what is left behind by a
//! process that dies in the middle of something, and who clears it up, in `docs/recovery.md`.

#[cfg(not(loom))]
mod error;
mod lane;
#[cfg(not(loom))]
pub mod life;
#[cfg(not(loom))]
pub mod mailbox;
mod sync;
#[cfg(not(loom))]
mod sys;

#[cfg(not(loom))]
pub use error::{Error, Peer, Result};

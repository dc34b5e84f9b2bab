//! The guides of this crate: how to use each part, its guarantees, and its limits.
//!
//! The modules have no items. The same pages are in the folder `docs` of the repository, which also
//! has pages about the shared layout, the recovery from each death, and the design decisions.

#[doc = include_str!("mailbox.md")]
pub mod mailbox {}

#[doc = include_str!("heap.md")]
pub mod heap {}

#[doc = include_str!("signal.md")]
pub mod signal {}

#[doc = include_str!("coming-from.md")]
pub mod coming_from {}

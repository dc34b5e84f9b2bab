//! Memory by the block.
//!
//! - [`classic`]: the allocator of a textbook, to the letter: one arena, an implicit list, one lock
//!   for all threads. The reference that others are compared with, and the lesson.
//!
//! The guide is `docs/heap.md`. Source: seed 003.

pub mod classic;
mod error;

pub use error::{Error, Result};

//! Memory by the block.
//!
//! - [`classic`]: the allocator of a textbook, to the letter: one arena, an implicit list, one lock
//!   for all threads. The reference that others are compared with, and the lesson.
//! - [`shared`]: one heap for many processes, of which any may be killed at any instruction.
//!
//! The guide is `docs/heap.md`. Source: seed 003.

pub mod classic;
mod error;
pub mod shared;

pub use error::{HeapError, Result};

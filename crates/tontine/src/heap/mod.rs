//! Memory allocators: [`shared`] for many processes, [`classic`] for one.
//!
//! - [`shared`]: one heap for many processes, any of which may be killed at any instruction. Its
//!   processes trust each other.
//! - [`classic`]: a textbook allocator for one process, with one arena, an implicit list of blocks,
//!   and one lock for all threads. It serves as a reference for comparisons with other allocators.
//!
//! The functions of both modules return [`HeapError`].

pub mod classic;
mod error;
pub mod shared;

pub use error::{HeapError, Result};

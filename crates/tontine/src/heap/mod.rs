//! Memory allocators.
//!
//! - [`shared`]: one heap for many processes, of which any may be killed at any instruction.
//! - [`classic`]: a textbook's allocator for one process: one arena, an implicit list, one lock for
//!   all threads. Others are compared with it.
//!
//! Both return [`HeapError`].

pub mod classic;
mod error;
pub mod shared;

pub use error::{HeapError, Result};

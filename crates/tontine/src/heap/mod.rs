//! A memory allocator for many processes, any of which may be killed at any instruction:
//! [`shared`]. The processes of one heap trust each other.

mod error;
pub mod shared;

pub use error::{HeapError, Result};

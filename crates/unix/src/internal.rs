//! What the other crates of the Unix use beside the public interface. No promise is made of it.

pub use crate::sys::compute_by_polls;

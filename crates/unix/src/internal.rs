//! Items that the other crates of the Unix use in addition to the public interface. They may change
//! in any release.

pub use crate::sys::compute_by_polls;

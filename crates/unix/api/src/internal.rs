//! Items that `tontine-unix-sim` and `tontine-unix-lab` use in addition to the public interface.
//! The items may change in any release.

pub use crate::sys::compute_by_polls;

//! From samples to figures that hold when they are checked.

pub mod summary;

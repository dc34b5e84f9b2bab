//! What this machine is, and what of it spoils measurements.

pub mod topology;

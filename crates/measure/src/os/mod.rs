//! The few system facilities that experiments share, each behind a safe face.
//!
//! [`shared`] is memory that two processes see, [`child`] a forked process that cannot outlive its
//! handle, [`pin`] puts a thread on one processor.

pub mod child;
pub mod pin;
pub mod shared;

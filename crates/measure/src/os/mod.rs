//! The few system facilities that experiments share, each behind a safe face.
//!
//! [`shared`] is memory that two processes see, [`child`] a forked process that cannot outlive its
//! handle, [`pin`] puts a thread on one processor, [`room`] asks whether more fits on the machine.
//! [`program`] finds other programs, [`herd`] runs them and what they start.

pub mod child;
pub(crate) mod herd;
pub mod pin;
pub(crate) mod program;
pub mod room;
pub mod shared;

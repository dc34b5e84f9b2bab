//! The few system facilities that experiments share, each behind a safe face.
//!
//! [`shared`] is memory that two processes see, [`child`] a forked process that cannot outlive its
//! handle, [`pin`] puts a thread on one processor, [`room`] asks whether more fits on the machine,
//! `lean` makes this process fork as a small one does.

pub mod child;
pub(crate) mod lean;
pub mod pin;
pub mod room;
pub mod shared;

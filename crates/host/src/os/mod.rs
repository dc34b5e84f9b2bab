//! The few system facilities that experiments share, each behind a safe face.
//!
//! [`shared`] is memory that two processes see, [`child`] a forked process that cannot outlive its
//! handle, [`pin`] puts a thread on one processor, [`room`] asks whether more fits on the machine,
//! [`signal`] masks and handles signals, [`state`] tells whether a thread sleeps. [`program`] finds
//! other programs, [`herd`] runs them and what they start; `deadline` knows when we are given up;
//! `lean` makes this process fork as a small one does; `namespaces` are a container's, `netlink`
//! joins them.

pub mod child;
pub mod deadline;
pub mod files;
pub mod herd;
pub mod lean;
pub mod namespaces;
pub mod netlink;
pub mod pin;
pub mod program;
pub mod room;
pub mod shared;
pub mod signal;
pub mod state;

/// A C return value as a result, with `errno`.
#[inline]
pub fn checked(returned: libc::c_int) -> std::io::Result<libc::c_int> {
    if returned < 0 { Err(std::io::Error::last_os_error()) } else { Ok(returned) }
}

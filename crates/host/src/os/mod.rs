//! The system facilities that experiments share, each behind a safe interface.
//!
//! [`shared`] is memory that two processes share, [`child`] a forked process that cannot outlive
//! its handle, [`pin`] binds a thread to one processor, [`room`] checks whether the machine has
//! enough free memory and processes, [`signal`] masks and handles signals, [`state`] checks whether
//! a thread sleeps. [`program`] finds other programs, [`process_group`] runs them and their
//! descendants; `deadline` has the deadline of this process; `fork_trim` makes this process fork
//! like a small one; `namespaces` are those of a container, `netlink` connects them.

pub mod child;
pub mod deadline;
pub mod files;
pub mod fork_trim;
pub mod namespaces;
pub mod netlink;
pub mod pin;
pub mod process_group;
pub mod program;
pub mod room;
pub mod shared;
pub mod signal;
pub mod state;

/// Converts a C return value to a result, with `errno`.
#[inline]
pub fn checked(returned: libc::c_int) -> std::io::Result<libc::c_int> {
    if returned < 0 { Err(std::io::Error::last_os_error()) } else { Ok(returned) }
}

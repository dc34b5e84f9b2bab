//! The system facilities that experiments share, each behind a safe interface.
//!
//! [`shared`] provides memory that two processes share, and [`child`] a forked process that cannot
//! outlive its handle. [`pin`] binds a thread to one processor, [`capacity`] checks that enough
//! memory and processes are free, [`signal`] masks and handles signals, and [`state`] checks
//! whether a thread sleeps. [`program`] finds other programs, and [`process_group`] runs them with
//! their descendants. `deadline` holds this process's deadline, and `fork_trim` makes a fork of
//! this process as cheap as a fork of a small process. `namespaces` makes hosts of processes.

pub mod capacity;
pub mod child;
pub mod deadline;
pub mod files;
pub mod fork_trim;
pub mod namespaces;
pub mod pin;
pub mod process_group;
pub mod program;
pub mod shared;
pub mod signal;
pub mod state;

/// Converts a C return value to a result, with `errno`.
#[inline]
pub fn checked(returned: libc::c_int) -> std::io::Result<libc::c_int> {
    if returned < 0 { Err(std::io::Error::last_os_error()) } else { Ok(returned) }
}

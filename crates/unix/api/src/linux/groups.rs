//! Process groups and sessions.
//!
//! If a child of this process leads or led a group, the calls return that child's handle as the
//! group.

#![allow(unsafe_code, reason = "the C library's calls about groups, which take any number")]

use super::convert::check;
use super::table::{self, ProcessTable, named, with_number};
use crate::errno::{Errno, Result};
use crate::process::Pid;

/// Returns the group of a process: `getpgid`.
pub(super) fn group(process: Pid) -> Result<Pid> {
    with_number(process, of_number).map(named)
}

/// Puts a process into a group: `setpgid`.
pub(super) fn set_group(process: Pid, group: Pid) -> Result<()> {
    // The kernel is not called for a reaped process, so this function makes the kernel's first
    // check.
    if group.number() < 0 {
        return Err(Errno::EINVAL);
    }
    let table = table::read();
    let process = table.number(process)?;
    // As in `terminal::set_foreground`, the kernel looks up the process first and the group last,
    // so a stale group must not hide an error of the process.
    let group = numbered(&table, group).unwrap_or(i32::MAX);
    // SAFETY: the call takes integers.
    check(unsafe { libc::setpgid(process, group) }).map(drop)
}

/// Returns the session of a process: `getsid`.
pub(super) fn session(process: Pid) -> Result<Pid> {
    // SAFETY: the call takes an integer.
    with_number(process, |process| check(unsafe { libc::getsid(process) })).map(named)
}

/// Starts a session: `setsid`.
pub(super) fn set_session() -> Result<Pid> {
    // SAFETY: the call takes no arguments.
    check(unsafe { libc::setsid() }).map(Pid::number_only)
}

/// Returns the number of a group that a process may join. If the leader's handle is stale and the
/// group has no members, returns `EPERM`, as for every group that does not exist.
pub(super) fn member_of(group: Pid) -> Result<i32> {
    numbered(&table::read(), group)
}

fn numbered(table: &ProcessTable, group: Pid) -> Result<i32> {
    table.group_number(group).map_err(|_| Errno::EPERM)
}

/// Returns the number of the group of a process; 0 denotes the caller.
pub(super) fn of_number(process: i32) -> Result<i32> {
    // SAFETY: the call takes an integer.
    check(unsafe { libc::getpgid(process) })
}

/// Returns the number of the caller's group.
pub(super) fn own() -> i32 {
    rustix::process::getpgrp().as_raw_nonzero().get()
}

//! Process groups and sessions.
//!
//! A group that a child of this process leads or led is told as that child's handle.

#![allow(unsafe_code, reason = "the C library's calls about groups, which take any number")]

use super::convert::check;
use super::table::{self, Table, named, with_number};
use crate::errno::{Errno, Result};
use crate::process::Pid;

/// `getpgid`.
pub(super) fn group(process: Pid) -> Result<Pid> {
    with_number(process, of_number).map(named)
}

/// `setpgid`.
pub(super) fn set_group(process: Pid, group: Pid) -> Result<()> {
    // Of a process that is gone nothing is asked of the kernel, which looks at the numbers first.
    if group.number() < 0 {
        return Err(Errno::EINVAL);
    }
    let table = table::read();
    let process = table.number(process)?;
    // As in `terminal::set_foreground`: the kernel looks at the process first, and last of all for
    // the group.
    let group = numbered(&table, group).unwrap_or(i32::MAX);
    // SAFETY: it takes integers.
    check(unsafe { libc::setpgid(process, group) }).map(drop)
}

/// `getsid`.
pub(super) fn session(process: Pid) -> Result<Pid> {
    // SAFETY: it takes an integer.
    with_number(process, |process| check(unsafe { libc::getsid(process) })).map(named)
}

/// `setsid`.
pub(super) fn set_session() -> Result<Pid> {
    // SAFETY: it takes nothing.
    check(unsafe { libc::setsid() }).map(Pid::number_only)
}

/// The number of a group that somebody may be put into; `EPERM`, as for every group that is not
/// there, if its leader's handle is stale and it has no members.
pub(super) fn member_of(group: Pid) -> Result<i32> {
    numbered(&table::read(), group)
}

fn numbered(table: &Table, group: Pid) -> Result<i32> {
    table.group_number(group).map_err(|_| Errno::EPERM)
}

/// The group of a process, by numbers; 0 for the caller.
pub(super) fn of_number(process: i32) -> Result<i32> {
    // SAFETY: it takes an integer.
    check(unsafe { libc::getpgid(process) })
}

/// The caller's.
pub(super) fn own() -> i32 {
    rustix::process::getpgrp().as_raw_nonzero().get()
}

//! Users, limits, priorities, processor time.

#![allow(
    unsafe_code,
    reason = "the C library's calls, which change all threads or take any number"
)]

use super::convert::{check, check_long, to_errno};
use super::table;
use super::table::with_number;
use super::wait::used;
use crate::errno::Result;
use crate::limit::{Resource, Rlimit};
use crate::process::{Pid, PriorityScope};
use crate::wait::Usage;

/// The constant from which the system call getpriority(2) subtracts the nice value, so that it
/// never returns a negative number.
const NICE_FROM: i32 = 20;

/// Sets the user of all threads: `setuid`.
pub(super) fn set_user(uid: u32) -> Result<()> {
    // SAFETY: the call takes an integer.
    check(unsafe { libc::setuid(uid) }).map(drop)
}

/// Returns a limit: `getrlimit`.
pub(super) fn limit(resource: Resource) -> Rlimit {
    let limit = rustix::process::getrlimit(kernel_resource(resource));
    Rlimit { soft: limit.current.unwrap_or(u64::MAX), hard: limit.maximum.unwrap_or(u64::MAX) }
}

/// Sets a limit: `setrlimit`.
pub(super) fn set_limit(resource: Resource, limit: Rlimit) -> Result<()> {
    let finite = |limit: u64| (limit != u64::MAX).then_some(limit);
    let new = rustix::process::Rlimit { current: finite(limit.soft), maximum: finite(limit.hard) };
    rustix::process::setrlimit(kernel_resource(resource), new).map_err(to_errno)
}

fn kernel_resource(resource: Resource) -> rustix::process::Resource {
    match resource {
        Resource::Cpu => rustix::process::Resource::Cpu,
        Resource::Processes => rustix::process::Resource::Nproc,
        Resource::PendingSignals => rustix::process::Resource::Sigpending,
        Resource::Descriptors => rustix::process::Resource::Nofile,
    }
}

/// Returns the lowest nice value: `getpriority`.
pub(super) fn priority(whose: PriorityScope) -> Result<i32> {
    with_whose(whose, |which, who| {
        // SAFETY: the call takes integers.
        let found = check_long(unsafe { libc::syscall(libc::SYS_getpriority, which, who) })?;
        Ok(NICE_FROM - found as i32)
    })
}

/// Sets a nice value: `setpriority`.
pub(super) fn set_priority(whose: PriorityScope, nice: i32) -> Result<()> {
    with_whose(whose, |which, who| {
        // SAFETY: the call takes integers.
        let set = unsafe { libc::syscall(libc::SYS_setpriority, which, who, nice) };
        check_long(set).map(drop)
    })
}

fn with_whose<T>(whose: PriorityScope, act: impl FnOnce(i32, i32) -> Result<T>) -> Result<T> {
    match whose {
        PriorityScope::Process(pid) => {
            with_number(pid, |number| act(libc::PRIO_PROCESS as i32, number))
        }
        PriorityScope::Group(group) => {
            with_group(group, |number| act(libc::PRIO_PGRP as i32, number))
        }
        PriorityScope::User(user) => act(libc::PRIO_USER as i32, user.cast_signed()),
    }
}

fn with_group<T>(group: Pid, act: impl FnOnce(i32) -> Result<T>) -> Result<T> {
    let table = table::read();
    act(table.group_number(group)?)
}

/// Returns the processor time of the process: `getrusage`.
pub(super) fn usage() -> Usage {
    // SAFETY: an rusage is plain integers and outlives the call, which fails only for a bad
    // address.
    used(&unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    })
}

/// Makes the process a subreaper, or an ordinary process again: `PR_SET_CHILD_SUBREAPER`.
pub(super) fn set_subreaper(on: bool) -> Result<()> {
    // SAFETY: the call takes integers.
    let set =
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, libc::c_ulong::from(on), 0, 0, 0) };
    check(set)?;
    if on {
        table::write().has_adopted = true;
    }
    Ok(())
}

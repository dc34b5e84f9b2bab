//! A new network namespace for this process: [`leave_network`].
//!
//! The caller should be a forked, single-threaded process, because it cannot return to the
//! namespaces that it leaves, and only a single-threaded process can create a user namespace. A
//! process without the required privilege first creates a user namespace, in which it is
//! privileged. Namespaces and their contents are removed with the last process inside.

#![allow(unsafe_code, reason = "unshare")]

use std::fs;

use rustix::io::Errno;
use rustix::process::{Signal, getegid, geteuid, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::error::{ErrorContext, MeasureError, Result};

/// Moves the calling process to a new network namespace that it may configure. Skips, with a way to
/// permit the call, if the system refuses it.
pub fn leave_network() -> Result<()> {
    match unshare(UnshareFlags::NEWNET) {
        Err(Errno::PERM) => {}
        done => return done.setting_up("unshare of the network namespace"),
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER).map_err(|error| {
        MeasureError::skip(format!(
            "needs root or unprivileged user namespaces: unshare: {error}; see \
             user.max_user_namespaces, kernel.unprivileged_userns_clone"
        ))
    })?;
    // A new user namespace may clear the parent-death signal.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // Older kernels do not have this file and do not need it.
    let _ = fs::write("/proc/self/setgroups", "deny");
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).setting_up("writing uid_map")?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).setting_up("writing gid_map")?;
    unshare(UnshareFlags::NEWNET).map_err(|error| {
        MeasureError::skip(format!(
            "needs root or user namespaces with rights: unshare of the network namespace: {error}; \
             see kernel.apparmor_restrict_unprivileged_userns"
        ))
    })
}

fn unshare(what: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: none of the flags used here unshares file descriptors; the call accesses no memory of
    // this process.
    unsafe { unshare_unsafe(what) }
}

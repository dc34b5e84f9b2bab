//! Namespaces of this process's own, like a container's: [`leave_network`] and [`leave_all`].
//!
//! For a forked process of one thread: it cannot return to the namespaces that it leaves, and only
//! processes of one thread can create a user namespace. If the process lacks the permission, it
//! gets it from a user namespace of its own. Namespaces and their contents end with the last
//! process inside.

#![allow(unsafe_code, reason = "unshare")]

use std::fs;

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Signal, getegid, geteuid, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::error::{ErrorContext, MeasureError, Result};

/// The namespaces that an engine gives a container; the PID namespace is for the next child.
const CONTAINER: UnshareFlags = UnshareFlags::NEWNET
    .union(UnshareFlags::NEWNS)
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWUTS);

/// Gives the calling process a network namespace of its own, with permission to configure it.
///
/// # Errors
/// Skipped, with what would allow it, if the system refuses.
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
    // A new user namespace may clear the signal that ties this process to its parent.
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

/// Gives the calling process network, mount, IPC and UTS namespaces of its own, and its children a
/// PID namespace, of which the next child is the first process.
///
/// # Errors
/// Skipped, if the system refuses.
pub fn leave_all() -> Result<()> {
    unshare(CONTAINER).setting_up("unshare of a container's namespaces")?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private).setting_up("mount(MS_PRIVATE)")
}

fn unshare(what: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: none of the flags used here unshares file descriptors; no memory of this process is
    // accessed.
    unsafe { unshare_unsafe(what) }
}

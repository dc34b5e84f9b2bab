//! A private view of the system in which temporary users can log in: [`LoginSandbox`].
//!
//! A child, the keeper, enters a new mount namespace and creates a PID namespace for its own child.
//! Inside, it mounts a *copy* of `/etc/passwd` that contains the users over the real file, which is
//! never written. `/run` and `/var/log`, where logins are recorded, are empty and in memory. The
//! server runs as the first process of the PID namespace. When it ends, the kernel kills all
//! processes of logged-in users, and the namespaces and all mounts in them disappear with the last
//! process. No clean-up is needed, even after a kill.

#![allow(unsafe_code, reason = "unshare, and a closure before exec")]

use std::cell::Cell;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::process::Signal;

use std::fs::{self, File};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::read;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::set_parent_process_death_signal;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::prelude::*;

/// Folders in which logins are recorded and servers store their pids.
pub(super) const HIDDEN: [&str; 2] = ["/run", "/var/log"];

/// A running sandbox. When it is dropped, or this process ends, all processes in it are killed.
#[derive(Debug)]
pub(super) struct LoginSandbox {
    keeper: Child,
    words: SharedMapping<ChildError>,
    /// The pipe whose end of file causes the keeper to end the server.
    open: Option<OwnedFd>,
}

impl LoginSandbox {
    /// Opens a sandbox in which `passwd` is `/etc/passwd` and `server` runs; the server's output
    /// goes to the file `log`. Call it in a single-threaded process only.
    pub(super) fn open(passwd: &Path, server: &[&str], log: &Path) -> Result<Self> {
        let (ended, open) = pipe_with(PipeFlags::CLOEXEC).setting_up("pipe2")?;
        let open = Cell::new(Some(open));
        let words = ChildError::new()?;
        let keeper = Child::fork(|| {
            drop(open.take());
            words.status(furnish(passwd).and_then(|()| keep(server, log, &ended)))
        })?;
        Ok(Self { keeper, words, open: open.take() })
    }

    /// Returns the reason why the sandbox could not be opened, or `None` if it was opened.
    pub(super) fn error(&self) -> Option<MeasureError> {
        self.words.heard()
    }
}

impl Drop for LoginSandbox {
    fn drop(&mut self) {
        drop(self.open.take());
        // The keeper ends after all processes in the sandbox, and uses SIGKILL if necessary.
        let _ = self.keeper.wait();
    }
}

/// Enters a new mount namespace and sets up the mounts in it.
fn furnish(passwd: &Path) -> Result<()> {
    // SAFETY: file descriptors stay shared and no memory is touched.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWPID) }
        .setting_up("unshare of mount and PID namespaces (CAP_SYS_ADMIN)")?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private).setting_up("mount(MS_PRIVATE)")?;
    mount_bind(passwd, "/etc/passwd").setting_up("mounting a copy over /etc/passwd")?;
    for place in HIDDEN.iter().filter(|place| Path::new(place).is_dir()) {
        mount("tmpfs", *place, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=755")
            .setting_up(&format!("mounting a tmpfs over {place}"))?;
    }
    // The server requires this folder, owned by root and writable only by root.
    fs::create_dir_all("/run/sshd").setting_up("mkdir /run/sshd")?;
    fs::set_permissions("/run/sshd", fs::Permissions::from_mode(0o755)).setting_up("chmod")
}

/// Starts the server as the first process of the PID namespace, and ends it when the pipe is
/// closed.
fn keep(server: &[&str], log: &Path, closed: &OwnedFd) -> Result<()> {
    let log = File::create(log).setting_up("creating the server's log")?;
    let mut command = Command::new(server[0]);
    command.args(&server[1..]).stdin(Stdio::null());
    command.stdout(log.try_clone().setting_up("dup")?).stderr(log);
    let pipe = closed.as_raw_fd();
    let begin = move || {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        // If the parent has ended before this point, the other end of the sandbox's pipe is closed.
        // SAFETY: the parent holds the descriptor until this process has called exec.
        let closed = unsafe { BorrowedFd::borrow_raw(pipe) };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&closed, PollFlags::IN)], Some(&now)) != Ok(0) {
            return Err(Errno::PIPE.into());
        }
        // Mounts the namespace's own proc, if that is allowed. The server works without it.
        let _ = mount("proc", "/proc", "proc", MountFlags::empty(), c"");
        Ok(())
    };
    // SAFETY: the closure makes system calls only.
    let mut first = unsafe { command.pre_exec(begin) }.spawn().setting_up("starting the server")?;
    while read(closed, &mut [0; 1]) == Err(Errno::INTR) {}
    let _ = first.kill();
    // The first process of a PID namespace is reaped after all other processes in it.
    first.wait().during("waitpid").map(drop)
}

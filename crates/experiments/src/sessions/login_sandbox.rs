//! A private view of the system in which temporary users can log in: [`LoginSandbox`].
//!
//! A child, the keeper, enters a new mount namespace and creates a PID namespace for its own child.
//! Inside, it mounts a *copy* of `/etc/passwd` that contains the users over the real file, which is
//! never written. `/run` and `/var/log`, where logins are recorded, are empty and in memory. The
//! server runs as the first process of the PID namespace. When it ends, the kernel kills all
//! processes of logged-in users, and the namespaces and all mounts in them disappear with the last
//! process. No clean-up is needed, even after a kill.
//!
//! Neighbours: [`super::login`] chooses the users and the server.

#![allow(unsafe_code, reason = "fork into a PID namespace, and exec")]

use std::cell::Cell;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::{Child, exit_at_once};
use tontine_host::os::shared::SharedMapping;
use tontine_host::peer::ChildError;

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
    ///
    /// # Errors
    /// Returns `Skipped` if the system refuses a process, a namespace or a mount: see also
    /// [`LoginSandbox::trouble`].
    pub(super) fn open(passwd: &Path, server: &[&str], log: &Path) -> Result<Self> {
        let (ended, open) = pipe_with(PipeFlags::CLOEXEC).setting_up("pipe2")?;
        let open = Cell::new(Some(open));
        let words = ChildError::new()?;
        let arguments = server
            .iter()
            .map(|argument| CString::new(*argument))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|_| MeasureError::fail("an argument of the server holds a NUL"))?;
        let keeper = Child::fork(|| {
            drop(open.take());
            match furnish(passwd).and_then(|()| keep(&arguments, log, &ended)) {
                Ok(()) => 0,
                Err(trouble) => {
                    words.say(&trouble);
                    1
                }
            }
        })?;
        Ok(Self { keeper, words, open: open.take() })
    }

    /// Returns the reason why the sandbox could not be opened, or `None` if it was opened.
    pub(super) fn trouble(&self) -> Option<MeasureError> {
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
fn keep(server: &[CString], log: &Path, told: &OwnedFd) -> Result<()> {
    let log = File::create(log).setting_up("creating the server's log")?;
    let nothing = File::open("/dev/null").setting_up("opening /dev/null")?;
    let mut arguments: Vec<*const libc::c_char> = server.iter().map(|one| one.as_ptr()).collect();
    arguments.push(std::ptr::null());
    // SAFETY: this process is single-threaded; the child makes system calls, and then calls exec or
    // exits.
    let first = match unsafe { libc::fork() } {
        -1 => return Err(std::io::Error::last_os_error()).setting_up("fork"),
        0 => {
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            // If the parent has ended before this point, the other end of the sandbox's pipe is
            // closed.
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut [PollFd::new(told, PollFlags::IN)], Some(&now)) != Ok(0) {
                exit_at_once(1);
            }
            // Mounts the namespace's own proc, if that is allowed. The server works without it.
            let _ = mount("proc", "/proc", "proc", MountFlags::empty(), c"");
            let _ = dup2_stdin(&nothing);
            let _ = dup2_stdout(&log);
            let _ = dup2_stderr(&log);
            // SAFETY: the arguments are live NUL-terminated strings, and the array ends with NULL.
            unsafe { libc::execv(arguments[0], arguments.as_ptr()) };
            exit_at_once(127)
        }
        pid => Pid::from_raw(pid).expect("fork returns a positive pid to the parent"),
    };
    while read(told, &mut [0; 1]) == Err(Errno::INTR) {}
    let _ = kill_process(first, Signal::KILL);
    // The first process of a PID namespace is reaped after all other processes in it.
    while matches!(waitpid(Some(first), WaitOptions::empty()), Err(Errno::INTR)) {}
    Ok(())
}

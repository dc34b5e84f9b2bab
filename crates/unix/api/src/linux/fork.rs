//! `fork`, `exec` and `exit`.
//!
//! The C library's fork creates the child, a copy of the process with only the calling thread, and
//! keeps the library's locks consistent. The parent opens a pidfd before another thread can reap
//! the child through the table.
//!
//! [`super::spawn`] starts programs without a copy.

#![allow(unsafe_code, reason = "fork, execve and _exit")]

use std::convert::Infallible;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno as KernelErrno;
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use super::convert::{check, last_error, to_errno};
use super::kill::{by_number, out_of_the_way};
use super::{Linux, handlers, stack, table};
use crate::errno::{Errno, Result};
use crate::process::Pid;
use crate::sys::Program;

/// Path and arguments of a program as execve(2) expects them: pointers to strings, and a null
/// pointer.
#[derive(Debug)]
pub(super) struct ExecArguments {
    path: CString,
    _arguments: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl ExecArguments {
    /// Converts a path and arguments. Returns `ENOENT` for a path that contains a NUL, because no
    /// file has such a name, and `EINVAL` for such an argument.
    pub(super) fn new<T: AsRef<str>>(path: &str, arguments: &[T]) -> Result<Self> {
        let path = CString::new(path).map_err(|_| Errno::ENOENT)?;
        let arguments = arguments.iter().map(|argument| CString::new(argument.as_ref()));
        let arguments: Vec<_> =
            arguments.collect::<std::result::Result<_, _>>().map_err(|_| Errno::EINVAL)?;
        let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Ok(Self { path, _arguments: arguments, pointers })
    }

    /// Calls execv(3), which keeps the environment of the process. Allocates nothing.
    pub(super) fn execute(&self) -> Errno {
        // SAFETY: path and arguments end with NUL, the array ends with null, and all outlive the
        // call.
        unsafe { libc::execv(self.path.as_ptr(), self.pointers.as_ptr()) };
        last_error()
    }
}

/// Creates a process that runs `child`: `fork`.
pub(super) fn fork(child: Program) -> Result<Pid> {
    let births = table::no_birth();
    let mut table = table::write();
    // If no descriptor is free for the child's pidfd, this fails before the child exists.
    let reserved = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).map_err(to_errno)?;
    // SAFETY: in the child, the only thread holds all locks of this backend. The program must not
    // depend on locks that other threads held in other libraries, as the docs of `Linux` say.
    match check(unsafe { libc::fork() })? {
        0 => {
            drop(reserved);
            table.forget();
            if handlers::begin_program() {
                stack::forget();
            }
            table.placement.apply();
            drop(table);
            drop(births);
            run(child)
        }
        number => {
            drop(reserved);
            held(&mut table, number)
        }
    }
}

/// Opens a pidfd for a new child. If SIGCHLD is ignored, the child may already have vanished, and
/// its number may belong to another process or thread.
fn held(table: &mut table::ProcessTable, number: i32) -> Result<Pid> {
    let child = rustix::process::Pid::from_raw(number).expect("a child's number is positive");
    match pidfd_open(child, PidfdFlags::empty()) {
        Ok(pidfd) if is_child(WaitId::PidFd(pidfd.as_fd())) => {
            Ok(table.insert(number, out_of_the_way(pidfd)))
        }
        // A descriptor was free before the fork, but another thread took it.
        Err(error @ (KernelErrno::MFILE | KernelErrno::NFILE | KernelErrno::NOMEM))
            if is_child(WaitId::Pid(child)) =>
        {
            by_number(number, libc::SIGKILL)?;
            let _ = waitid(WaitId::Pid(child), WaitIdOptions::EXITED);
            Err(to_errno(error))
        }
        _ => Ok(table.next(number)),
    }
}

/// Returns `true` if this process can wait for the child.
fn is_child(who: WaitId<'_>) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(who, look), Err(KernelErrno::CHILD))
}

/// Runs a forked process's program to its end. A panic never unwinds into the frames that were
/// copied from the parent.
fn run(program: Program) -> ! {
    match catch_unwind(AssertUnwindSafe(|| program(&Linux(())))) {
        Ok(status) => exit(status),
        Err(_) => std::process::abort(),
    }
}

/// Exits with `_exit`, so that data in buffers copied from the parent is not written twice.
pub(super) fn exit(status: i32) -> ! {
    // SAFETY: the call takes an integer and does not return.
    unsafe { libc::_exit(status & 0xff) }
}

/// Replaces the program of the process: `exec`.
pub(super) fn exec(path: &str, arguments: &[&str]) -> Result<Infallible> {
    let image = ExecArguments::new(path, arguments)?;
    Err(handlers::without_ignored(|| image.execute()))
}

//! `fork`, `exec` and the end of a process.
//!
//! The child is a copy of the process with the calling thread alone, made by the C library's fork,
//! which keeps its own locks sound. The parent opens a pidfd before anybody can reap through the
//! table.
//!
//! Programs started without a copy are [`super::spawn`]'s.

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

/// What a program's arguments look like to execve(2): pointers to strings, and null.
#[derive(Debug)]
pub(super) struct Image {
    path: CString,
    _arguments: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Image {
    /// `ENOENT` for a path and `EINVAL` for an argument with a NUL in it: no file has such a name.
    pub(super) fn new<T: AsRef<str>>(path: &str, arguments: &[T]) -> Result<Self> {
        let path = CString::new(path).map_err(|_| Errno::ENOENT)?;
        let arguments = arguments.iter().map(|argument| CString::new(argument.as_ref()));
        let arguments: Vec<_> =
            arguments.collect::<std::result::Result<_, _>>().map_err(|_| Errno::EINVAL)?;
        let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Ok(Self { path, _arguments: arguments, pointers })
    }

    /// Executes it with the process's environment. Allocates nothing.
    pub(super) fn execute(&self) -> Errno {
        // SAFETY: path and arguments end with NUL, the array with null, and all live across the
        // call.
        unsafe { libc::execv(self.path.as_ptr(), self.pointers.as_ptr()) };
        last_error()
    }
}

/// `fork`.
pub(super) fn fork(child: Program) -> Result<Pid> {
    let births = table::no_birth();
    let mut table = table::write();
    // Said before there is a child: no descriptor to hold it by.
    let room = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).map_err(to_errno)?;
    // SAFETY: the child goes on with the locks that matter here held by its only thread. What other
    // libraries locked in other threads is the program's to avoid, as `Linux` says.
    match check(unsafe { libc::fork() })? {
        0 => {
            drop(room);
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
            drop(room);
            held(&mut table, number)
        }
    }
}

/// Takes hold of a new child, which may be gone already if SIGCHLD is ignored: then whoever has the
/// number is somebody else, or a thread of somebody.
fn held(table: &mut table::Table, number: i32) -> Result<Pid> {
    let child = rustix::process::Pid::from_raw(number).expect("a child's number is positive");
    match pidfd_open(child, PidfdFlags::empty()) {
        Ok(pidfd) if is_child(WaitId::PidFd(pidfd.as_fd())) => {
            Ok(table.insert(number, out_of_the_way(pidfd)))
        }
        // There was a descriptor to hold the child by before the fork; another thread took it.
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

/// Whether it is there to be waited for.
fn is_child(who: WaitId<'_>) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(who, look), Err(KernelErrno::CHILD))
}

/// Runs a forked process's program to its end. A panic never gets to the frames that are copies of
/// the parent's.
fn run(program: Program) -> ! {
    match catch_unwind(AssertUnwindSafe(|| program(&Linux(())))) {
        Ok(status) => exit(status),
        Err(_) => std::process::abort(),
    }
}

/// `_exit`: nothing that the parent has in its buffers is written twice.
pub(super) fn exit(status: i32) -> ! {
    // SAFETY: it takes an integer and does not return.
    unsafe { libc::_exit(status & 0xff) }
}

/// `exec`.
pub(super) fn exec(path: &str, arguments: &[&str]) -> Result<Infallible> {
    let image = Image::new(path, arguments)?;
    Err(handlers::without_ignored(|| image.execute()))
}

//! Processes that exit by the C library's `_exit` or call exec: [`fork`], [`clone_as_vfork`],
//! [`posix_spawn`], [`clone3`]; and the wait for their end: [`reap`].

#![allow(unsafe_code, reason = "fork, clone, clone3, posix_spawn and waitpid")]

use std::ffi::c_void;
use std::io;

use tontine_bench::error::{ErrorContext, MeasureError, Result};
use tontine_bench::os::checked;
use tontine_bench::os::child::exit_at_once;

use super::bare;
use super::nothing::EmptyProgram;
use super::thread::succeeded;

/// Size in bytes of the stack of a child that shares the parent's memory and only exits.
const STACK: usize = 64 << 10;

#[derive(Debug)]
pub struct ChildStack(Box<[Aligned]>);

#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
struct Aligned([u8; 16]);

impl ChildStack {
    pub(super) fn new() -> Self {
        Self(vec![Aligned([0; 16]); STACK / size_of::<Aligned>()].into_boxed_slice())
    }
}

#[inline]
pub(super) fn fork() -> io::Result<libc::pid_t> {
    // SAFETY: the child only calls `_exit`, so locks held by other threads do not matter.
    match checked(unsafe { libc::fork() })? {
        0 => exit_at_once(0),
        pid => Ok(pid),
    }
}

/// Creates a child with its own stack in this process's memory, and suspends this thread until the
/// child ends. `vfork` itself lets the child run on the parent's frames, which is not allowed in a
/// Rust function.
#[inline]
pub(super) fn clone_as_vfork(stack: &ChildStack) -> io::Result<libc::pid_t> {
    extern "C" fn ends(_: *mut c_void) -> libc::c_int {
        exit_at_once(0)
    }
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is as long as the range, aligned to 16 bytes, and not used elsewhere: only
    // this thread has the handle, and CLONE_VFORK suspends it until the child has ended. The child
    // runs only `ends`, which accesses no memory but that stack.
    let pid = unsafe {
        let top = stack.0.as_ptr_range().end.cast_mut().cast::<c_void>();
        libc::clone(ends, top, flags, std::ptr::null_mut())
    };
    checked(pid)
}

/// Creates a child that calls exec to run the smallest program.
#[inline]
pub(super) fn posix_spawn(nothing: &EmptyProgram) -> io::Result<libc::pid_t> {
    let mut pid = 0;
    let arguments = [nothing.path().as_ptr().cast_mut(), std::ptr::null_mut()];
    let environment = [std::ptr::null_mut()];
    // SAFETY: the strings and both arrays, which end with a null pointer, live until the call
    // returns; actions and attributes are null.
    let error = unsafe {
        libc::posix_spawn(
            &mut pid,
            nothing.path().as_ptr(),
            std::ptr::null(),
            std::ptr::null(),
            arguments.as_ptr(),
            environment.as_ptr(),
        )
    };
    succeeded(error).map(|()| pid)
}

/// Creates a child without flags. As after `fork`, it has copies of all resources.
#[inline]
pub(super) fn clone3() -> io::Result<libc::pid_t> {
    let mut how = bare::arguments(0, libc::SIGCHLD as u64, 0);
    // SAFETY: the structure requests a full copy on the current stack; the child exits by `_exit`
    // and accesses no lock of the C library.
    let pid =
        unsafe { libc::syscall(libc::SYS_clone3, &raw mut how, size_of::<libc::clone_args>()) };
    match checked(pid as libc::pid_t)? {
        0 => exit_at_once(0),
        pid => Ok(pid),
    }
}

/// Waits for a child, which must exit with status 0.
#[inline]
pub(super) fn reap(pid: libc::pid_t) -> Result<()> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a live integer.
        match checked(unsafe { libc::waitpid(pid, &mut status, 0) }) {
            Ok(_) if status == 0 => return Ok(()),
            Ok(_) => {
                let text = format!("expected the process to exit with 0, found status {status:#x}");
                return Err(MeasureError::fail(text));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).during("waitpid"),
        }
    }
}

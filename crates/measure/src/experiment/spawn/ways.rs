//! The four ways to make a process that ends at once: [`Way`].

#![allow(unsafe_code, reason = "fork, clone, clone3, posix_spawn and waitpid")]

use std::ffi::c_void;
use std::io;

use super::nothing::Nothing;
use crate::mechanism::peer::checked;
use crate::os::child::exit_at_once;
use crate::trouble::{During, Result, Trouble};

/// Stack of a child that shares our memory and only ends.
const STACK: usize = 64 << 10;

/// A way, with what it needs.
#[derive(Debug)]
pub(super) enum Way {
    Fork,
    Vfork(Stack),
    PosixSpawn(Nothing),
    Clone3,
}

/// Memory for a child's stack.
#[derive(Debug)]
pub(super) struct Stack(Box<[Aligned]>);

#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
struct Aligned([u8; 16]);

impl Way {
    /// The way of that name.
    ///
    /// # Errors
    /// Failed, where there is none; otherwise as [`Nothing::new`].
    pub(super) fn named(variant: &str) -> Result<Self> {
        match variant {
            "fork" => Ok(Self::Fork),
            "vfork" => {
                let blocks = vec![Aligned([0; 16]); STACK / size_of::<Aligned>()];
                Ok(Self::Vfork(Stack(blocks.into_boxed_slice())))
            }
            "posix-spawn" => Nothing::new().map(Self::PosixSpawn),
            "clone3" => Ok(Self::Clone3),
            other => Err(Trouble::fail(format!("spawn has no variant {other}"))),
        }
    }

    /// Makes one process, which ends at once, and waits for it.
    ///
    /// # Errors
    /// Skipped, where the system refuses it; failed, where it does not exit with 0.
    #[inline]
    pub(super) fn once(&self) -> Result<()> {
        let pid = match self {
            Self::Fork => fork().setting_up("fork"),
            Self::Vfork(stack) => vfork(stack).setting_up("clone"),
            Self::PosixSpawn(nothing) => posix_spawn(nothing).setting_up("posix_spawn"),
            Self::Clone3 => clone3().setting_up("clone3"),
        }?;
        reap(pid)
    }
}

fn fork() -> io::Result<libc::pid_t> {
    // SAFETY: the child does nothing but leave by `_exit`, whatever other threads held.
    match checked(unsafe { libc::fork() })? {
        0 => exit_at_once(0),
        pid => Ok(pid),
    }
}

/// A child on a stack of its own in our memory, while this thread waits. `vfork` itself lets the
/// child run on the parent's frames, which no Rust function may.
fn vfork(stack: &Stack) -> io::Result<libc::pid_t> {
    extern "C" fn ends(_: *mut c_void) -> libc::c_int {
        exit_at_once(0)
    }
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is as long as the range, aligned to 16 bytes, used by nobody else:
    // CLONE_VFORK keeps this thread, the only one with the handle, until the child has ended. The
    // child runs only `ends`, which touches no memory but that stack.
    let pid = unsafe {
        let top = stack.0.as_ptr_range().end.cast_mut().cast::<c_void>();
        libc::clone(ends, top, flags, std::ptr::null_mut())
    };
    checked(pid)
}

fn posix_spawn(nothing: &Nothing) -> io::Result<libc::pid_t> {
    let mut pid = 0;
    let arguments = [nothing.path().as_ptr().cast_mut(), std::ptr::null_mut()];
    let environment = [std::ptr::null_mut()];
    // SAFETY: the strings and both arrays, which end with a null pointer, live across the call; no
    // actions and no attributes are given.
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
    if error == 0 { Ok(pid) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// No flag: the child gets copies of everything, as by `fork`.
fn clone3() -> io::Result<libc::pid_t> {
    // SAFETY: all-zero is valid for this plain structure, and asks for a copy of everything on the
    // stack where it stands; the child leaves by `_exit` and touches no lock of the C library.
    let pid = unsafe {
        let mut how: libc::clone_args = std::mem::zeroed();
        how.exit_signal = libc::SIGCHLD as u64;
        libc::syscall(libc::SYS_clone3, &raw mut how, size_of::<libc::clone_args>())
    };
    match checked(pid as libc::pid_t)? {
        0 => exit_at_once(0),
        pid => Ok(pid),
    }
}

fn reap(pid: libc::pid_t) -> Result<()> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a live integer.
        match checked(unsafe { libc::waitpid(pid, &mut status, 0) }) {
            Ok(_) if status == 0 => return Ok(()),
            Ok(_) => {
                let text = format!("expected the process to exit with 0, found status {status:#x}");
                return Err(Trouble::fail(text));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).during("waitpid"),
        }
    }
}

//! The creating system calls, without the C library: [`process`], [`vfork`], [`thread`].
//!
//! Each function is a few instructions around one system call. The only action of the new thread or
//! process is to exit: it needs no stack and no thread-local storage, accesses no memory, and
//! cannot return into the creator's frames.

#![allow(unsafe_code, reason = "creates threads and processes that the language does not manage")]

use std::arch::asm;
use std::io;
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

use tontine_bench::error::{ErrorContext, Result};

pub(super) const VM: u64 = libc::CLONE_VM as u64;
pub(super) const VFORK: u64 = libc::CLONE_VFORK as u64;
/// Flags of a C library thread, without the flags for its thread-local storage and for the parent's
/// copy of its id.
const THREAD: u64 = VM
    | (libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_CHILD_CLEARTID) as u64;
const SIGCHLD: u64 = libc::SIGCHLD as u64;

/// Creates a process with these flags by `clone3`; the process exits like `_exit`.
#[inline]
pub(super) fn process(flags: u64) -> io::Result<libc::pid_t> {
    checked(clone3_and_end(&arguments(flags, SIGCHLD, 0), libc::SYS_exit_group))
}

/// Creates a process by the system call `vfork` or its equivalent.
#[inline]
pub(super) fn vfork() -> io::Result<libc::pid_t> {
    checked(vfork_and_exit())
}

/// Creates a thread by `clone3`, and waits until the kernel has cleared the word.
#[inline]
pub(super) fn thread(word: &AtomicU32) -> Result<()> {
    // The kernel sets the word to 0 at the thread's end.
    word.store(1, Ordering::Relaxed);
    let creation = arguments(THREAD, 0, word.as_ptr() as u64);
    checked(clone3_and_end(&creation, libc::SYS_exit)).setting_up("clone3")?;
    // Acquire pairs with the kernel, which stores 0 and wakes this thread when the new thread has
    // ended.
    while word.load(Ordering::Acquire) != 0 {
        // SAFETY: the call waits while the word is 1; the kernel itself checks the address.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, 1, null::<()>()) };
    }
    Ok(())
}

/// Returns the structure of `clone3`; a task without a stack of its own runs on the caller's.
#[inline]
pub(super) fn arguments(flags: u64, exit_signal: u64, child_tid: u64) -> libc::clone_args {
    // SAFETY: all-zero is valid for this plain structure.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    (arguments.flags, arguments.exit_signal) = (flags, exit_signal);
    arguments.child_tid = child_tid;
    arguments
}

/// Converts the result of a bare system call to an id.
fn checked(returned: i64) -> io::Result<libc::pid_t> {
    if returned > 0 {
        Ok(returned as libc::pid_t)
    } else {
        Err(io::Error::from_raw_os_error(-returned as i32))
    }
}

/// Calls `vfork`; the child exits with 0. Returns the parent's result.
#[cfg(target_arch = "x86_64")]
fn vfork_and_exit() -> i64 {
    let mut returned = libc::SYS_vfork;
    // SAFETY: the child shares this process's memory and stack, but accesses neither: its next call
    // is its exit. The system call clobbers RCX and R11.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "2:",
            exit = const libc::SYS_exit_group,
            inout("rax") returned,
            out("rdi") _,
            out("rcx") _,
            out("r11") _,
            options(nostack)
        );
    }
    returned
}

/// Calls `clone3`; the new task's only call is `end`, with status 0. Returns the creator's result.
#[cfg(target_arch = "x86_64")]
fn clone3_and_end(creation: &libc::clone_args, end: libc::c_long) -> i64 {
    let mut returned = libc::SYS_clone3;
    // SAFETY: only the kernel reads the structure. The new task may share this process's memory and
    // stack, but accesses neither: its next call is its exit. The system call clobbers RCX and R11.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor edi, edi",
            "mov rax, {end}",
            "syscall",
            "2:",
            end = in(reg) end,
            inout("rax") returned,
            inout("rdi") creation => _,
            in("rsi") size_of::<libc::clone_args>(),
            out("rcx") _,
            out("r11") _,
            options(nostack)
        );
    }
    returned
}

/// Calls `clone` with the flags of `vfork`, a system call that this processor lacks.
#[cfg(target_arch = "aarch64")]
fn vfork_and_exit() -> i64 {
    let mut returned = VM | VFORK | SIGCHLD;
    // SAFETY: as on x86-64; a stack of 0 means the caller's stack.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x8, {exit}",
            "svc #0",
            "2:",
            exit = const libc::SYS_exit_group,
            inout("x0") returned,
            in("x1") 0,
            in("x2") 0,
            in("x3") 0,
            in("x4") 0,
            inout("x8") libc::SYS_clone => _,
            options(nostack)
        );
    }
    returned.cast_signed()
}

/// Calls `clone3`; the new task's only call is `end`, with status 0. Returns the creator's result.
#[cfg(target_arch = "aarch64")]
fn clone3_and_end(creation: &libc::clone_args, end: libc::c_long) -> i64 {
    let mut returned = std::ptr::from_ref(creation) as i64;
    // SAFETY: as on x86-64.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x8, {end}",
            "svc #0",
            "2:",
            end = in(reg) end,
            inout("x0") returned,
            in("x1") size_of::<libc::clone_args>(),
            inout("x8") libc::SYS_clone3 => _,
            options(nostack)
        );
    }
    returned
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn vfork_and_exit() -> i64 {
    -i64::from(libc::ENOSYS)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn clone3_and_end(_: &libc::clone_args, _: libc::c_long) -> i64 {
    -i64::from(libc::ENOSYS)
}

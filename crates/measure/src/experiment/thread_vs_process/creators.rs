//! One way of creating each: [`Creator`].
//!
//! The bare ways are a few instructions around one system call, after which the new thread or
//! process only ends: it needs no stack and no thread-local storage, and could not return into our
//! frames. What the C library does, it does itself.

#![allow(unsafe_code, reason = "makes threads and processes behind the language's back")]

use std::arch::asm;
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use super::program::Program;
use crate::os::child::exit_at_once;
use crate::trace::clone::Creation;
use crate::trouble::{During, Result, Trouble};

const VM: u64 = libc::CLONE_VM as u64;
const VFORK: u64 = libc::CLONE_VFORK as u64;
/// What a thread of the C library asks for, but for its own storage and the parent's copy of its
/// id.
const THREAD: u64 = VM
    | (libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_CHILD_CLEARTID) as u64;
const SIGCHLD: u64 = libc::SIGCHLD as u64;

/// Creates somebody who does nothing, and waits for the end.
#[derive(Debug)]
pub(super) enum Creator {
    Thread,
    Fork,
    Vfork,
    Spawn(Program),
    /// A process, by `clone3` with these flags.
    Process(u64),
    /// A thread, by `clone3`; the kernel clears the word when it ends. All signals are blocked.
    BareThread(Box<AtomicU32>),
}

impl Creator {
    /// That of a variant.
    ///
    /// # Errors
    /// Skipped, where what it needs is refused.
    pub(super) fn of(variant: &str) -> Result<Self> {
        Ok(match variant {
            "thread" => Self::Thread,
            "fork" => Self::Fork,
            "vfork" => Self::Vfork,
            "posix-spawn" => Self::Spawn(Program::new()?),
            "clone3" => Self::Process(0),
            "clone3-vfork" => Self::Process(VM | VFORK),
            "clone3-thread" => {
                // It has our thread-local storage: a handler must not run in it.
                block_all_signals()?;
                Self::BareThread(Box::new(AtomicU32::new(0)))
            }
            other => {
                return Err(Trouble::fail(format!("thread-vs-process has no variant {other}")));
            }
        })
    }

    /// What is timed.
    ///
    /// # Errors
    /// Skipped, where the system refuses another thread or process; failed, where it does not end
    /// as it should.
    #[inline]
    pub(super) fn create_and_wait(&mut self) -> Result<()> {
        match self {
            Self::Thread => thread(),
            Self::Fork => {
                // SAFETY: the child leaves at once and never returns into our frames.
                match unsafe { libc::fork() } {
                    0 => exit_at_once(0),
                    child => wait(checked(child.into(), "fork")?),
                }
            }
            Self::Vfork => wait(checked(vfork_and_exit(), "vfork")?),
            Self::Spawn(program) => spawn(program),
            Self::Process(flags) => {
                let creation =
                    Creation { flags: *flags, exit_signal: SIGCHLD, ..Creation::default() };
                wait(checked(clone3_and_exit(&creation), "clone3")?)
            }
            Self::BareThread(word) => bare_thread(word),
        }
    }
}

/// With default attributes, as the C program does.
fn thread() -> Result<()> {
    extern "C" fn nothing(_: *mut libc::c_void) -> *mut libc::c_void {
        null_mut()
    }
    let mut thread = 0;
    // SAFETY: the function touches nothing; the thread is joined below, once.
    let made = unsafe { libc::pthread_create(&raw mut thread, null(), nothing, null_mut()) };
    succeeded(made).setting_up("pthread_create")?;
    // SAFETY: as above.
    succeeded(unsafe { libc::pthread_join(thread, null_mut()) }).during("pthread_join")
}

fn spawn(program: &Program) -> Result<()> {
    let mut child = 0;
    let arguments: [*mut c_char; 2] = [program.path().cast_mut(), null_mut()];
    // SAFETY: path and arguments are C strings that outlive the call, the lists end with null, and
    // no attribute or action is given.
    let made = unsafe {
        libc::posix_spawn(
            &raw mut child,
            program.path(),
            null(),
            null(),
            arguments.as_ptr(),
            arguments[1..].as_ptr(),
        )
    };
    succeeded(made).setting_up("posix_spawn")?;
    wait(child)
}

fn bare_thread(word: &AtomicU32) -> Result<()> {
    // Whatever it is before, the kernel makes it 0 at the end.
    word.store(1, Ordering::Relaxed);
    let creation =
        Creation { flags: THREAD, child_tid: word.as_ptr() as u64, ..Creation::default() };
    checked(clone3_and_exit(&creation), "clone3")?;
    // Acquire pairs with the kernel, which stores 0 and wakes us when the thread has ended.
    while word.load(Ordering::Acquire) != 0 {
        // SAFETY: waits while the word is 1; the kernel checks that itself.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, 1, null::<()>()) };
    }
    Ok(())
}

/// Waits for a child that exits with status 0.
fn wait(child: libc::pid_t) -> Result<()> {
    let mut status = 0;
    loop {
        // SAFETY: the pointer is to a live local.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            break;
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error).during("waitpid");
        }
    }
    if status == 0 {
        Ok(())
    } else {
        Err(Trouble::fail(format!("the child should exit with 0; its status is {status:#x}")))
    }
}

/// The `errno` that functions of the pthread family return.
fn succeeded(returned: libc::c_int) -> std::io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(returned)) }
}

/// A pid, of what `fork` or a bare system call returned.
fn checked(returned: i64, call: &str) -> Result<libc::pid_t> {
    let error = match returned {
        1.. => return Ok(returned as libc::pid_t),
        -1 => std::io::Error::last_os_error(),
        bare => std::io::Error::from_raw_os_error(-bare as i32),
    };
    Err(error).setting_up(call)
}

fn block_all_signals() -> Result<()> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is filled before it is used.
    let set = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), null_mut())
    };
    succeeded(set).during("pthread_sigmask")
}

/// `vfork` whose child exits with 0; returns what the parent gets.
#[cfg(target_arch = "x86_64")]
fn vfork_and_exit() -> i64 {
    let mut returned = libc::SYS_vfork;
    // SAFETY: the child has our memory and stack, of which it touches nothing: its next call is its
    // end. RCX and R11 are the system call's.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "2:",
            exit = const libc::SYS_exit,
            inout("rax") returned,
            out("rdi") _,
            out("rcx") _,
            out("r11") _,
            options(nostack)
        );
    }
    returned
}

/// `clone3` of somebody who ends at once with 0; returns what the creator gets.
#[cfg(target_arch = "x86_64")]
fn clone3_and_exit(creation: &Creation) -> i64 {
    let mut returned = libc::SYS_clone3;
    // SAFETY: the structure is read by the kernel alone. Who is created may have our memory and
    // stack, of which it touches nothing: its next call is its end. RCX and R11 are the call's.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "2:",
            exit = const libc::SYS_exit,
            inout("rax") returned,
            inout("rdi") creation => _,
            in("rsi") size_of::<Creation>(),
            out("rcx") _,
            out("r11") _,
            options(nostack)
        );
    }
    returned
}

/// A processor without a `vfork` has `clone` with its flags.
#[cfg(target_arch = "aarch64")]
fn vfork_and_exit() -> i64 {
    let mut returned = VM | VFORK | SIGCHLD;
    // SAFETY: as on x86-64; a stack of 0 is the caller's.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x8, {exit}",
            "svc #0",
            "2:",
            exit = const libc::SYS_exit,
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

/// `clone3` of somebody who ends at once with 0; returns what the creator gets.
#[cfg(target_arch = "aarch64")]
fn clone3_and_exit(creation: &Creation) -> i64 {
    let mut returned = std::ptr::from_ref(creation) as i64;
    // SAFETY: as on x86-64.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x8, {exit}",
            "svc #0",
            "2:",
            exit = const libc::SYS_exit,
            inout("x0") returned,
            in("x1") size_of::<Creation>(),
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
fn clone3_and_exit(_: &Creation) -> i64 {
    -i64::from(libc::ENOSYS)
}

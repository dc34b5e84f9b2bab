//! `spawn`, which starts a program in a new process without copying this process.
//!
//! The child runs in this process's memory, on the free part of this thread's stack, while this
//! thread sleeps (`CLONE_VM`, `CLONE_VFORK`). The cost therefore does not depend on the size of the
//! process, and a child that fails can store the reason in [`SpawnArgs::error`]. All signals are
//! blocked until the parent resumes, and handlers are reset in the child (`CLONE_CLEAR_SIGHAND`),
//! so no handler ever runs in the shared memory.
//!
//! A child that ends before exec succeeds sends no signal, and an ordinary wait does not find it,
//! because its exit signal is 0. exec sets the exit signal to SIGCHLD (execve(2)).

#![allow(unsafe_code, reason = "clone3 with shared memory, and what the child calls there")]

use std::arch::asm;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::convert::{check, check_long, to_sigset};
use super::fork::{self, ExecArguments};
use super::kill::out_of_the_way;
use super::place::CpuPlacement;
use super::{handlers, table};
use crate::errno::{Errno, Result};
use crate::process::{Pid, SpawnGroup, SpawnRequest};
use crate::signal::SigSet;

/// `CLONE_CLEAR_SIGHAND` (Linux 5.5), a bit above the bits that clone(2) accepts.
const CLEAR_HANDLERS: u64 = 1 << 32;

/// `struct clone_args`, in its first version.
#[derive(Debug, Default)]
#[repr(C)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

const _: () = assert!(size_of::<CloneArguments>() == 64);

/// The child's tasks, and the error that prevented its exec.
struct SpawnArgs {
    image: ExecArguments,
    session: bool,
    group: Option<i32>,
    defaults: SigSet,
    mask: libc::sigset_t,
    descriptors: Vec<Move>,
    placement: CpuPlacement,
    error: Option<Errno>,
}

/// A descriptor of the parent, and the number that the child gives it.
#[derive(Clone, Copy)]
struct Move {
    from: i32,
    to: i32,
    /// `true` if an earlier move overwrites `from`.
    in_the_way: bool,
}

/// Checks that the kernel has clone3: if it has, it rejects the missing arguments rather than the
/// call itself.
pub(super) fn probe() -> Result<()> {
    let nothing = std::ptr::null::<CloneArguments>();
    // SAFETY: the kernel refuses a size of 0 before it reads anything.
    match check_long(unsafe { libc::syscall(libc::SYS_clone3, nothing, 0) }) {
        Err(Errno::ENOSYS) => Err(Errno::ENOSYS),
        _ => Ok(()),
    }
}

/// Starts a program: `spawn`.
pub(super) fn spawn(spawn: &SpawnRequest) -> Result<Pid> {
    let births = table::birth();
    let group = match spawn.group {
        SpawnGroup::Parents => None,
        SpawnGroup::Own => Some(0),
        SpawnGroup::Of(group) => Some(super::groups::member_of(group)?),
    };
    let mut order = SpawnArgs {
        image: ExecArguments::new(&spawn.path, &spawn.arguments)?,
        session: spawn.session,
        group,
        defaults: spawn.defaults.union(handlers::host_ignores()),
        mask: spawn.mask.map_or(*births.mask_before(), to_sigset),
        descriptors: moves(spawn),
        placement: table::read().placement,
        error: None,
    };
    let (number, pidfd) = clone(&mut order)?;
    let executed = !reap_unexecuted(&pidfd);
    match order.error {
        Some(error) => Err(error),
        // A signal killed the child.
        None if !executed => Err(Errno::EAGAIN),
        None => Ok(table::write().insert(number, out_of_the_way(pidfd))),
    }
}

/// Reaps the child if it ended without a successful exec. Returns `true` if the child was reaped.
///
/// The exit signal distinguishes the two cases: exec sets it to SIGCHLD before the parent resumes,
/// and then this kind of wait does not find the child.
fn reap_unexecuted(pidfd: &OwnedFd) -> bool {
    let unexecuted = WaitIdOptions::from_bits_retain(libc::__WCLONE as u32);
    // Signals are blocked, so none interrupts the wait.
    waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | unexecuted).is_ok()
}

fn moves(spawn: &SpawnRequest) -> Vec<Move> {
    let all = &spawn.descriptors;
    let moves = all.iter().enumerate().map(|(at, (from, to))| {
        let in_the_way = all[..at].iter().any(|(_, earlier)| earlier == from);
        Move { from: from.0, to: to.0, in_the_way }
    });
    moves.collect()
}

/// Creates the child, which carries out `order`. Returns when the child has called exec or ended.
fn clone(order: &mut SpawnArgs) -> Result<(i32, OwnedFd)> {
    let mut pidfd = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;
    let arguments = CloneArguments {
        flags: flags as u64 | CLEAR_HANDLERS,
        pidfd: (&raw mut pidfd).expose_provenance() as u64,
        ..CloneArguments::default()
    };
    let number = clone_with(&arguments, order);
    if number < 0 {
        return Err(Errno::from_raw(-number));
    }
    // SAFETY: the kernel opened the descriptor for this process and stored its number there.
    Ok((number, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// Calls clone3. The child calls [`carry_out`] on the stack below this frame and never returns to
/// it.
#[cfg(target_arch = "x86_64")]
fn clone_with(arguments: &CloneArguments, order: &mut SpawnArgs) -> i32 {
    let result: i64;
    // SAFETY: the system call reads `arguments`, which outlives it and requests a child in this
    // memory on this stack, with the parent asleep until the child calls exec or ends. In the child
    // rax is 0, and the child does not change this frame: it aligns the stack, calls a function
    // that does not return, and writes only below the stack pointer, where nothing is kept across
    // an asm block without `nostack`. The child has its own registers; in the parent the system
    // call changes rax, rcx and r11.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "and rsp, -16",
            "mov rdi, {order}",
            "call {child}",
            "ud2",
            "2:",
            order = in(reg) std::ptr::from_mut(order),
            child = sym carry_out,
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") std::ptr::from_ref(arguments),
            in("rsi") size_of::<CloneArguments>(),
            out("rcx") _,
            out("r11") _,
        );
    }
    result as i32
}

/// Like the version for x86-64, but the kernel preserves all registers except x0, and the stack
/// pointer is already aligned.
#[cfg(target_arch = "aarch64")]
fn clone_with(arguments: &CloneArguments, order: &mut SpawnArgs) -> i32 {
    let result: i64;
    // SAFETY: as above, with x0 instead of rax: the child calls a function that does not return and
    // writes only below the stack pointer, where nothing is kept across an asm block without
    // `nostack`; in the parent the system call changes x0.
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, {order}",
            "bl {child}",
            "brk 1",
            "2:",
            order = in(reg) std::ptr::from_mut(order),
            child = sym carry_out,
            inlateout("x0") std::ptr::from_ref(arguments) => result,
            in("x1") size_of::<CloneArguments>(),
            in("x8") libc::SYS_clone3,
        );
    }
    result as i32
}

/// The entry point of the child. It allocates nothing and takes no lock, because it runs in the
/// parent's memory.
unsafe extern "C" fn carry_out(order: *mut SpawnArgs) -> ! {
    // SAFETY: the parent sleeps, and does not access `order` until the child has left the shared
    // memory.
    let order = unsafe { &mut *order };
    order.error = Some(match prepare(order) {
        Ok(()) => order.image.execute(),
        Err(error) => error,
    });
    fork::exit(1)
}

fn prepare(order: &mut SpawnArgs) -> Result<()> {
    if order.session {
        // SAFETY: the call takes no arguments.
        check(unsafe { libc::setsid() })?;
    }
    if let Some(group) = order.group {
        // SAFETY: the call takes integers.
        check(unsafe { libc::setpgid(0, group) })?;
    }
    for signal in order.defaults.difference(SigSet::UNBLOCKABLE).iter() {
        // SAFETY: the child does not share its handlers with the parent, and SIG_DFL is not a
        // handler.
        unsafe { libc::signal(signal.number(), libc::SIG_DFL) };
    }
    place_descriptors(&mut order.descriptors)?;
    order.placement.apply();
    let mask = &raw const order.mask;
    // SAFETY: the set outlives the call; the mask is the child's own.
    let error = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
    if error == 0 { Ok(()) } else { Err(Errno::from_raw(error)) }
}

/// Moves the descriptors, which the child does not share with the parent (no `CLONE_FILES`).
fn place_descriptors(moves: &mut [Move]) -> Result<()> {
    let above = moves.iter().map(|one| one.to).max().unwrap_or(0).saturating_add(1);
    for one in moves.iter_mut().filter(|one| one.in_the_way) {
        // SAFETY: the call takes integers.
        one.from = check(unsafe { libc::fcntl(one.from, libc::F_DUPFD_CLOEXEC, above) })?;
    }
    for one in moves.iter() {
        // SAFETY: the calls take integers. dup2 to the same number would leave the close-on-exec
        // flag set.
        unsafe {
            if one.from == one.to {
                check(libc::fcntl(one.from, libc::F_SETFD, 0))?;
            } else {
                check(libc::dup2(one.from, one.to))?;
            }
        }
    }
    Ok(())
}

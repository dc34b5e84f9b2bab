//! The processor-dependent parts: registers, breakpoint registers, two instructions.
//!
//! Only x86-64 is supported; elsewhere every function returns ENOSYS, and targets are skipped.

#![allow(unsafe_code, reason = "ptrace requests that read and write registers")]

use std::io;

/// The state of a stopped thread that the walk needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Registers {
    pub(super) at: u64,
    /// Number of the system call that the thread is in, if it is in one.
    pub(super) call: i64,
    /// General registers, indexed by their numbers in instructions.
    pub(super) general: [u64; 16],
}

/// Breakpoint instruction: the mark of [`crate::actor`].
pub(super) const MARK: u8 = 0xCC;

/// First byte of the two-byte instructions that [`is_system_call`] must read completely.
pub(super) const TWO_BYTES: u8 = 0x0F;

/// Returns `true` if the instruction that begins with these bytes makes a system call.
pub(super) fn is_system_call(code: [u8; 2]) -> bool {
    code == [TWO_BYTES, 0x05]
}

/// Reads the registers of a stopped thread.
#[cfg(target_arch = "x86_64")]
pub(super) fn read(pid: libc::pid_t) -> io::Result<Registers> {
    let mut all = std::mem::MaybeUninit::<libc::user_regs_struct>::uninit();
    // SAFETY: this request makes the kernel fill the whole structure.
    let returned = unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0_usize, all.as_mut_ptr()) };
    if returned == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the successful call above initialised the structure.
    let all = unsafe { all.assume_init() };
    let general = [
        all.rax, all.rcx, all.rdx, all.rbx, all.rsp, all.rbp, all.rsi, all.rdi, all.r8, all.r9,
        all.r10, all.r11, all.r12, all.r13, all.r14, all.r15,
    ];
    Ok(Registers { at: all.rip, call: all.orig_rax.cast_signed(), general })
}

/// Sets the first breakpoint register of a stopped thread, or clears it. The register belongs to
/// that thread, so other threads run through the same code undisturbed.
#[cfg(target_arch = "x86_64")]
pub(super) fn stop_at(pid: libc::pid_t, at: Option<u64>) -> io::Result<()> {
    /// Enables the first breakpoint for this thread; the other bits, all zero, select execution.
    const FIRST_LOCAL: u64 = 1;
    let place = |register: usize| {
        std::mem::offset_of!(libc::user, u_debugreg) + register * size_of::<libc::c_ulonglong>()
    };
    let set = |register: usize, value: u64| {
        // SAFETY: this request writes a register of the stopped thread and none of this process's
        // memory.
        match unsafe { libc::ptrace(libc::PTRACE_POKEUSER, pid, place(register), value) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    match at {
        None => set(7, 0),
        Some(at) => set(7, 0).and_then(|()| set(0, at)).and_then(|()| set(7, FIRST_LOCAL)),
    }
}

/// Other processors are not supported.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn read(_pid: libc::pid_t) -> io::Result<Registers> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// Other processors are not supported.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn stop_at(_pid: libc::pid_t, _at: Option<u64>) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

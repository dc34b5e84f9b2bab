//! Stack overflow: the fault handler, which ends only the affected fiber, if that is safe.
//!
//! A fault in the guard below the stack of the running fiber ends that fiber, if it is in user
//! mode: its stack is leaked with its contents, and the owner is notified. The handler jumps over
//! the program's frames. It does so only if the fault cannot have interrupted anything but the
//! program itself. It therefore does not jump in kernel mode ([`enter_kernel`], [`leave_kernel`]),
//! while a panic unwinds, or if the faulting instruction is in a different object from this code
//! (such as the C library, which may hold a lock or have half linked a list). The remaining damage
//! is limited to the program: a lock that it held stays locked, and so does an allocator that is
//! linked into the same object. In the excluded cases the process prints the number of the fiber
//! and aborts.
//!
//! Faults at other addresses go to the previous handler.
#![allow(unsafe_code, reason = "handles faults, and redirects the code that caused them")]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use corosensei::trap::TrapHandlerRegs;

use super::footprint::Object;
use super::here::running;
use super::reach::changes;
use super::task::{SwitchReason, Task};

/// Enters kernel mode in the running fiber; calls nest. Running out of stack in kernel mode aborts
/// the process. A fiber begins in kernel mode, entered once. Does nothing outside of fibers.
#[inline]
pub fn enter_kernel() {
    if let Some(task) = running() {
        let depth = task.kernel_depth.load(Ordering::Relaxed);
        if depth == 0 {
            changes(Object::User);
        }
        task.kernel_depth.store(depth + 1, Ordering::Relaxed);
    }
}

/// Undoes one [`enter_kernel`], or the initial entry. After the last entry is undone, the fiber is
/// in user mode.
#[inline]
pub fn leave_kernel() {
    if let Some(task) = running() {
        let depth = task.kernel_depth.load(Ordering::Relaxed);
        debug_assert!(depth > 0, "kernel mode is left as often as it is entered");
        task.kernel_depth.store(depth.saturating_sub(1), Ordering::Relaxed);
    }
}

/// Returns `true` if the running fiber is in kernel mode. Async-signal-safe.
pub(crate) fn in_kernel() -> bool {
    running().is_some_and(|task| task.kernel_depth.load(Ordering::Relaxed) > 0)
}

/// Returns the number of bytes left on the stack of the running fiber; unlimited outside of fibers.
pub(crate) fn stack_left() -> usize {
    let here = 0_u8;
    running().map_or(usize::MAX, |task| (&raw const here).addr() - task.guard().end)
}

/// Resets the fiber to kernel mode, entered once, because the stack of its program was unwound.
pub(crate) fn back_in_kernel() {
    if let Some(task) = running() {
        changes(Object::User);
        task.kernel_depth.store(1, Ordering::Relaxed);
    }
}

/// The previous handlers, and the address range of the object that contains this code.
struct PreviousHandlers {
    segv: libc::sigaction,
    bus: libc::sigaction,
    code: (usize, usize),
}

static BEFORE: OnceLock<PreviousHandlers> = OnceLock::new();

/// Installs the handler for the process, once.
pub(super) fn install() {
    BEFORE.get_or_init(|| {
        let code = code();
        PreviousHandlers { segv: handle(libc::SIGSEGV), bus: handle(libc::SIGBUS), code }
    });
}

/// Sets the handler of one signal. Returns the previous action.
fn handle(signal: c_int) -> libc::sigaction {
    // SAFETY: an all-zero action is valid. It has no flags and an empty mask.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) =
        unsafe { (MaybeUninit::zeroed().assume_init(), MaybeUninit::zeroed().assume_init()) };
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `on_fault` takes three arguments, as SA_SIGINFO requires, and is async-signal-safe.
    let result = unsafe { libc::sigaction(signal, &raw const action, &raw mut before) };
    assert_eq!(result, 0, "SIGSEGV and SIGBUS can be handled");
    before
}

/// Returns the address range of the instructions in the object that contains this function.
fn code() -> (usize, usize) {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: `dl_iterate_phdr` passes valid headers, and the pointer that it was given below.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<(usize, usize)>()) };
        let here = code as *const () as usize;
        for index in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: the index is below the number of headers that the object declares.
            let header = unsafe { &*info.dlpi_phdr.add(index) };
            let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
            let end = start.wrapping_add(header.p_memsz as usize);
            if header.p_type == libc::PT_LOAD && (start..end).contains(&here) {
                *found = (start, end);
                return 1;
            }
        }
        0
    }
    let mut found = (0, 0);
    // SAFETY: `look` retains no pointer, and receives the address of a pair that outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel fills in the address for both signals.
    let address = unsafe { (*info).si_addr() } as usize;
    if let Some(task) = running().filter(|task| task.guard().contains(&address)) {
        // SAFETY: the kernel passes the context of the code that it interrupted on this thread.
        let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        if let Some(reason) = forbidden(task, context) {
            say(task.id, reason);
            // SAFETY: `abort` has no preconditions.
            unsafe { libc::abort() };
        }
        end(task, context);
        return;
    }
    chain(signal, info, context);
}

/// Returns the reason why the fiber cannot be ended alone, or `None` if it can.
fn forbidden(task: &Task, context: &libc::ucontext_t) -> Option<&'static str> {
    let (counter, pointer) = place(context);
    let code = BEFORE.get().map_or((0, 0), |before| before.code);
    if task.kernel_depth.load(Ordering::Relaxed) > 0 {
        Some("in kernel mode")
    } else if std::thread::panicking() {
        Some("while a panic unwound")
    } else if !(code.0..code.1).contains(&counter) {
        Some("in a library")
    } else if !task.trap().is_some_and(|trap| trap.stack_ptr_in_bounds(pointer)) {
        Some("below its guard")
    } else {
        None
    }
}

/// Redirects the fiber so that it stops as [`SwitchReason::Overflow`] once the handler returns.
fn end(task: &Task, context: &mut libc::ucontext_t) {
    let Some(trap) = task.trap() else { return };
    // SAFETY: execution never returns to the fiber's frames, and its stack is never reused. The
    // stack pointer is within that stack, and all registers are set as given. `forbidden` limits
    // which other data the fiber may have been writing.
    let registers = unsafe { trap.setup_trap_handler(|| SwitchReason::Overflow) };
    redirect(context, registers);
}

/// Returns the program counter and the stack pointer of the code that faulted.
#[cfg(target_arch = "x86_64")]
fn place(context: &libc::ucontext_t) -> (usize, usize) {
    let registers = &context.uc_mcontext.gregs;
    let register = |name: c_int| registers[name as usize] as usize;
    (register(libc::REG_RIP), register(libc::REG_RSP))
}

#[cfg(target_arch = "x86_64")]
fn redirect(context: &mut libc::ucontext_t, registers: TrapHandlerRegs) {
    let TrapHandlerRegs { rip, rsp, rbp, rdi, rsi } = registers;
    let to = &mut context.uc_mcontext.gregs;
    for (name, value) in [
        (libc::REG_RIP, rip),
        (libc::REG_RSP, rsp),
        (libc::REG_RBP, rbp),
        (libc::REG_RDI, rdi),
        (libc::REG_RSI, rsi),
    ] {
        to[name as usize] = value.cast_signed();
    }
}

/// Returns the program counter and the stack pointer of the code that faulted.
#[cfg(target_arch = "aarch64")]
fn place(context: &libc::ucontext_t) -> (usize, usize) {
    (context.uc_mcontext.pc as usize, context.uc_mcontext.sp as usize)
}

#[cfg(target_arch = "aarch64")]
fn redirect(context: &mut libc::ucontext_t, registers: TrapHandlerRegs) {
    let TrapHandlerRegs { pc, sp, x0, x1, x29, lr } = registers;
    let to = &mut context.uc_mcontext;
    (to.pc, to.sp) = (pc, sp);
    (to.regs[0], to.regs[1], to.regs[29], to.regs[30]) = (x0, x1, x29, lr);
}

/// Prints the fiber's number and the reason, without allocating memory or taking locks.
fn say(id: u32, reason: &str) {
    let mut digits = [0; 10];
    let mut rest = id;
    let mut first = digits.len();
    while rest > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let parts: [&[u8]; 5] = [
        b"tontine-unix: fiber ",
        &digits[first..],
        b" ran out of stack ",
        reason.as_bytes(),
        b"\n",
    ];
    for part in parts {
        // SAFETY: the pointer and the length describe a slice.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
}

/// Passes the fault to the previous handler.
fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = BEFORE.get().map(|before| match signal {
        libc::SIGBUS => &before.bus,
        _ => &before.segv,
    });
    match before {
        Some(before) if before.sa_sigaction > libc::SIG_IGN => {
            // SAFETY: the address is a handler of the kind that its flags specify.
            unsafe {
                if before.sa_flags & libc::SA_SIGINFO == 0 {
                    let handler: extern "C" fn(c_int) = std::mem::transmute(before.sa_sigaction);
                    handler(signal);
                } else {
                    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                        std::mem::transmute(before.sa_sigaction);
                    handler(signal, info, context);
                }
            }
        }
        // SAFETY: sets the default action, which the repeated fault then triggers.
        _ => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}

//! Dispositions of this process: `sigaction`, and the function that the kernel calls.
//!
//! Only one handler is ever installed in the kernel, [`trampoline`]. A slot for each signal holds
//! the [`Handler`] that the trampoline calls. The contents of a slot are never freed, because a
//! handler may be running in any thread. A program that keeps installing new closures leaks them.
//!
//! A handler that other code installed (the standard library installs some) is returned as an
//! opaque [`Handler`]. Installing that value again restores the foreign handler.

#![allow(unsafe_code, reason = "sigaction(2), and a function that the kernel calls")]

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

use super::convert::{check, from_sigset, to_sigset};
use super::foreign::{Foreign, SigactionRecord};
use super::{Linux, info, table, wait};
use crate::errno::Result;
use crate::signal::{SigSet, Signal};
use crate::sys::{ActionFlags, Disposition, Handler, SigAction};

/// Length of a table that is indexed by signal number.
const SIGNALS: usize = 65;

/// The handler of each signal; null until a handler is installed.
static SLOTS: [AtomicPtr<InstalledHandler>; SIGNALS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; SIGNALS];

/// `true` if this process was forked as a program of the backend, `false` in the host that embeds
/// the backend.
static IS_PROGRAM: AtomicBool = AtomicBool::new(false);

/// Bit mask of the signals whose action [`action`] has set, in this process or, before the fork, in
/// an ancestor.
static CHOSEN: AtomicU64 = AtomicU64::new(0);

/// The signals whose actions Rust's runtime sets: it ignores SIGPIPE, and handles the others to
/// report stack overflows.
const RUNTIMES: [Signal; 3] = [Signal::PIPE, Signal::SEGV, Signal::BUS];

/// The handler of a slot, and the action with which it was installed.
#[derive(Debug)]
struct InstalledHandler {
    handler: Handler,
    action: SigAction,
}

/// Returns the action for a signal, and with `Some` replaces it: `sigaction`.
pub(super) fn action(signal: Signal, new: Option<SigAction>) -> Result<SigAction> {
    let mut table = table::write();
    let old_slot = slot(signal);
    let mut kernel = kernel_action(signal, None)?;
    if let Some(new) = new {
        let wanted = match &new.disposition {
            Disposition::Default => plain(libc::SIG_DFL, &new),
            Disposition::Ignore => plain(libc::SIG_IGN, &new),
            Disposition::Handler(handler) => match table.foreign.0.get(&signal) {
                Some((returned, foreign)) if returned == handler => foreign.0,
                _ => {
                    // The kernel refuses handlers for SIGKILL and SIGSTOP, so their slots must stay
                    // empty.
                    if !SigSet::UNBLOCKABLE.contains(signal) {
                        fill(signal, handler, &new);
                    }
                    caught(&new)
                }
            },
        };
        kernel = kernel_action(signal, Some(&wanted))?;
        CHOSEN.fetch_or(SigSet::of(&[signal]).bits(), Relaxed);
    }
    Ok(from_kernel(signal, &kernel, old_slot, &mut table.foreign))
}

/// Marks this process as a program of the backend, which inherits no dispositions of a host.
pub(super) fn mark_as_program() {
    IS_PROGRAM.store(true, Relaxed);
}

/// Prepares a forked child. If the host forked it, resets the dispositions that Rust's runtime set,
/// and returns `true`. The reset removes any handler of SIGSEGV or SIGBUS that was not set through
/// the backend, and stops ignoring SIGPIPE. Other ignored signals stay ignored, as under nohup(1).
/// Other handlers stay, because the library that installed a handler expects it in the child.
pub(super) fn begin_program() -> bool {
    if IS_PROGRAM.load(Relaxed) {
        return false;
    }
    let default = plain(libc::SIG_DFL, &SigAction::DEFAULT);
    let chosen = chosen();
    for signal in RUNTIMES.into_iter().filter(|signal| !chosen.contains(*signal)) {
        let ignored =
            || kernel_action(signal, None).is_ok_and(|now| now.sa_sigaction == libc::SIG_IGN);
        let is_runtimes =
            if signal == Signal::PIPE { ignored() } else { is_foreign(signal) == Ok(true) };
        if is_runtimes {
            // The kernel refuses SIGKILL and SIGSTOP only.
            let _ = kernel_action(signal, Some(&default));
        }
    }
    mark_as_program();
    true
}

/// Returns the signals that the host's runtime ignores but that must have their default action when
/// a program begins.
pub(super) fn host_ignores() -> SigSet {
    if IS_PROGRAM.load(Relaxed) {
        return SigSet::EMPTY;
    }
    SigSet::of(&[Signal::PIPE]).difference(chosen())
}

/// Calls `execute` with the default action for the signals of [`host_ignores`], and ignores them
/// again if `execute` returns.
pub(super) fn without_ignored<T>(execute: impl FnOnce() -> T) -> T {
    let default = plain(libc::SIG_DFL, &SigAction::DEFAULT);
    let set = |signal| kernel_action(signal, Some(&default)).map(|before| (signal, before));
    let before: Vec<_> = host_ignores().iter().filter_map(|signal| set(signal).ok()).collect();
    let returned = execute();
    for (signal, action) in &before {
        // The kernel accepts an action that it returned.
        let _ = kernel_action(*signal, Some(action));
    }
    returned
}

fn chosen() -> SigSet {
    SigSet::from_bits(CHOSEN.load(Relaxed))
}

/// Returns `true` if the signal has a handler that the backend did not install.
pub(super) fn is_foreign(signal: Signal) -> Result<bool> {
    let address = kernel_action(signal, None)?.sa_sigaction;
    Ok(![libc::SIG_DFL, libc::SIG_IGN, trampoline_address()].contains(&address))
}

/// Returns the kernel's action for the signal, and with `Some` replaces it.
fn kernel_action(signal: Signal, new: Option<&libc::sigaction>) -> Result<libc::sigaction> {
    let mut old = plain(libc::SIG_DFL, &SigAction::DEFAULT);
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both outlive the call. A handler in `new` is either `trampoline`, whose slot is
    // filled, or a handler that other code has already installed.
    check(unsafe { libc::sigaction(signal.number(), new, &raw mut old) })?;
    Ok(old)
}

/// Converts the kernel's action to the crate's.
fn from_kernel(
    signal: Signal,
    kernel: &libc::sigaction,
    slot: Option<&InstalledHandler>,
    foreign: &mut Foreign,
) -> SigAction {
    let disposition = match (kernel.sa_sigaction, slot) {
        (libc::SIG_DFL, _) => Disposition::Default,
        (libc::SIG_IGN, _) => Disposition::Ignore,
        (address, Some(installed)) if address == trampoline_address() => {
            return installed.action.clone().with_mask(from_sigset(&kernel.sa_mask));
        }
        (address, _) => Disposition::Handler(match foreign.0.get(&signal) {
            Some((handler, record)) if record.0.sa_sigaction == address => handler.clone(),
            _ => {
                let handler = Handler::new(|_, _| {});
                foreign.0.insert(signal, (handler.clone(), SigactionRecord(*kernel)));
                handler
            }
        }),
    };
    SigAction { disposition, mask: from_sigset(&kernel.sa_mask), flags: flags(kernel.sa_flags) }
}

/// Stores a handler in the signal's slot, unless the slot holds it already.
fn fill(signal: Signal, handler: &Handler, action: &SigAction) {
    if slot(signal).is_some_and(|installed| installed.action == *action) {
        return;
    }
    let installed = InstalledHandler { handler: handler.clone(), action: action.clone() };
    let installed = Box::into_raw(Box::new(installed));
    // SYNC handler-slot: pairs with `slot`, which reads the value behind the pointer.
    SLOTS[signal.number() as usize].store(installed, Release);
}

fn slot(signal: Signal) -> Option<&'static InstalledHandler> {
    // SYNC handler-slot: pairs with `fill`.
    let installed = SLOTS[signal.number() as usize].load(Acquire);
    // SAFETY: the pointer is null or refers to a box that `fill` leaked and no thread changes.
    unsafe { installed.as_ref() }
}

fn plain(disposition: libc::sighandler_t, action: &SigAction) -> libc::sigaction {
    libc::sigaction {
        sa_sigaction: disposition,
        sa_mask: to_sigset(action.mask),
        sa_flags: kernel_flags(action.flags),
        sa_restorer: None,
    }
}

fn caught(action: &SigAction) -> libc::sigaction {
    let mut kernel = plain(trampoline_address(), action);
    kernel.sa_flags |= libc::SA_SIGINFO;
    kernel
}

fn trampoline_address() -> libc::sighandler_t {
    trampoline as *const () as libc::sighandler_t
}

/// Runs the handler of the signal's slot. If the handler panics, the process ends as if killed by
/// SIGABRT.
extern "C" fn trampoline(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the call has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: a thread's errno lives as long as the thread.
    let before = unsafe { *errno };
    wait::take_first();
    // SAFETY: with SA_SIGINFO the kernel passes an initialized siginfo_t.
    let info = info::decode(unsafe { &*info });
    let signal = Signal::new(signal);
    if let (Some(info), Some(installed)) = (info, signal.and_then(slot)) {
        if !installed.action.flags.contains(ActionFlags::RESTART) {
            wait::interrupt();
        }
        installed.handler.call(&Linux(()), &info);
    }
    // SAFETY: as above; the handler's calls may have written errno in between, but no reference to
    // it exists.
    unsafe { *errno = before };
}

const FLAGS: [(ActionFlags, libc::c_int); 7] = [
    (ActionFlags::NOCLDSTOP, libc::SA_NOCLDSTOP),
    (ActionFlags::NOCLDWAIT, libc::SA_NOCLDWAIT),
    (ActionFlags::SIGINFO, libc::SA_SIGINFO),
    (ActionFlags::ONSTACK, libc::SA_ONSTACK),
    (ActionFlags::RESTART, libc::SA_RESTART),
    (ActionFlags::NODEFER, libc::SA_NODEFER),
    (ActionFlags::RESETHAND, libc::SA_RESETHAND),
];

fn kernel_flags(flags: ActionFlags) -> libc::c_int {
    FLAGS.iter().filter(|(ours, _)| flags.contains(*ours)).fold(0, |all, (_, flag)| all | flag)
}

fn flags(kernel: libc::c_int) -> ActionFlags {
    let set = FLAGS.iter().filter(|(_, flag)| kernel & flag != 0);
    set.fold(ActionFlags::empty(), |all, (ours, _)| all | *ours)
}

//! Signal handling on a worker's thread: [`SignalStack`], [`hold_others`].
//!
//! Handlers run on a separate stack of the thread, because a fiber's stack may be exhausted, or too
//! small to save the registers of some processors. The handlers are in `overflow.rs` and `tick.rs`.
//! The application's own handlers, which do not expect such a stack, run on the application's
//! threads.
#![allow(unsafe_code, reason = "sets the thread's signal stack and mask")]

use std::mem::MaybeUninit;
use std::ptr;

/// Size of the stack on which signals are handled, in bytes.
const SIZE: usize = 64 << 10;

/// Blocks all signals on this thread except those of its own faults and `tick`.
pub(super) fn hold_others(tick: libc::c_int) {
    let mut held = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` fills in the set, which is then read and changed in place. The mask is
    // that of this thread, which belongs to the executor.
    unsafe {
        libc::sigfillset(held.as_mut_ptr());
        for taken in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGTRAP,
            libc::SIGSYS,
            libc::SIGABRT,
            libc::SIGPROF,
            tick,
        ] {
            libc::sigdelset(held.as_mut_ptr(), taken);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, held.as_ptr(), ptr::null_mut());
    }
}

/// The stack on which this thread handles signals, until it is dropped.
pub struct SignalStack {
    /// Freed after the signal stack has been replaced.
    _memory: Box<[MaybeUninit<u8>]>,
    before: libc::stack_t,
}

impl SignalStack {
    /// Installs a stack for signals on this thread.
    pub fn install() -> Self {
        let mut memory = Box::new_uninit_slice(SIZE);
        let mut before = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: 0, ss_size: 0 };
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: SIZE };
        // SAFETY: `memory` is this thread's signal stack until `drop`, which replaces the signal
        // stack first.
        let result = unsafe { libc::sigaltstack(&raw const stack, &raw mut before) };
        assert_eq!(result, 0, "a stack of {SIZE} bytes is large enough for signals");
        Self { _memory: memory, before }
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        // SAFETY: restores the previous stack. No handler runs on the memory, because this code
        // does not run on it.
        unsafe { libc::sigaltstack(&raw const self.before, ptr::null_mut()) };
    }
}

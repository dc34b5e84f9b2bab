//! Signal masks and handlers of the calling thread: [`Only`], [`BlockedSignal`],
//! [`handle`].
//!
//! Only [`BlockedSignal`] restores the mask. The other items change a mask or install a handler in
//! a child that was created for this purpose.

#![allow(unsafe_code, reason = "signal masks and handlers")]

use rustix::process::Pid;

use crate::error::{ErrorContext, Result};
use crate::os::checked;

/// The signal that experiments send, which no terminal generates.
pub const SIGNAL: libc::c_int = libc::SIGUSR1;

/// A set of the signals that an experiment sends, usually only [`SIGNAL`].
#[derive(Clone, Copy)]
pub struct Only(libc::sigset_t);

impl Only {
    pub fn signal() -> Self {
        Self::of(&[SIGNAL])
    }

    pub fn of(signals: &[libc::c_int]) -> Self {
        // SAFETY: a `sigset_t` is a plain C structure that `sigemptyset` initialises; both calls
        // only write to it.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for &signal in signals {
                libc::sigaddset(&mut set, signal);
            }
            Self(set)
        }
    }

    /// Returns the set itself, for system calls that take a signal set.
    pub fn set(&self) -> &libc::sigset_t {
        &self.0
    }

    #[inline(always)]
    pub fn block(&self) {
        // SAFETY: the set is initialised; the pointer for the old mask may be null. The call fails
        // only if the first argument is not one of the three constants.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &self.0, std::ptr::null_mut()) };
    }

    #[inline(always)]
    pub fn unblock(&self) {
        // SAFETY: as in `block`.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &self.0, std::ptr::null_mut()) };
    }

    /// Returns the calling thread's mask without the signals.
    pub fn unblocked_mask(&self) -> libc::sigset_t {
        // SAFETY: zero is the empty set; the calls read initialised sets and write `mask`.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
            for signal in 1..=libc::SIGRTMAX() {
                if libc::sigismember(&self.0, signal) == 1 {
                    libc::sigdelset(&mut mask, signal);
                }
            }
            mask
        }
    }
}

/// A signal that is blocked in the calling thread. Dropping it consumes a pending signal and
/// restores the mask.
pub struct BlockedSignal {
    only: libc::sigset_t,
    before: libc::sigset_t,
}

impl BlockedSignal {
    pub fn new(signal: libc::c_int) -> Result<Self> {
        // SAFETY: all-zero bytes are a valid `sigset_t`; the calls read and write these two sets.
        let (returned, sets) = unsafe {
            let mut sets: Self = std::mem::zeroed();
            libc::sigemptyset(&mut sets.only);
            libc::sigaddset(&mut sets.only, signal);
            (libc::pthread_sigmask(libc::SIG_BLOCK, &sets.only, &mut sets.before), sets)
        };
        if returned != 0 {
            // The call changed nothing, so there is nothing to restore.
            std::mem::forget(sets);
            let error = std::io::Error::from_raw_os_error(returned);
            return Err(error).setting_up("pthread_sigmask");
        }
        Ok(sets)
    }

    #[inline(always)]
    pub fn set(&self) -> &libc::sigset_t {
        &self.only
    }
}

impl Drop for BlockedSignal {
    fn drop(&mut self) {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `new` initialised both sets; a standard signal is not queued, so at most one is
        // pending.
        unsafe {
            libc::sigtimedwait(&self.only, std::ptr::null_mut(), &at_once);
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

/// Sends a signal to a process by its id, including real-time signals, which rustix does not name.
pub fn send(to: Pid, signal: libc::c_int) -> std::io::Result<()> {
    // SAFETY: the call takes two numbers.
    checked(unsafe { libc::kill(to.as_raw_nonzero().get(), signal) }).map(drop)
}

/// Installs `handler` for [`SIGNAL`], as [`handle_signal`] does.
pub fn handle(handler: extern "C" fn(libc::c_int)) -> std::io::Result<()> {
    handle_signal(SIGNAL, handler)
}

/// Installs `handler` for a signal, which is blocked while the handler runs. `handler` may call
/// only async-signal-safe functions, unless undefined behaviour in its process is acceptable.
pub fn handle_signal(
    signal: libc::c_int,
    handler: extern "C" fn(libc::c_int),
) -> std::io::Result<()> {
    // SAFETY: zero is a valid pattern (plain integers, a null restorer) that the calls fill in; the
    // handler lives as long as the program.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        libc::sigemptyset(&mut action.sa_mask);
        checked(libc::sigaction(signal, &action, std::ptr::null_mut())).map(drop)
    }
}

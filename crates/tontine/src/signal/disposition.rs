//! Dispositions of signals, [`KernelDisposition`], and the disposition of SIGCHLD while it is
//! blocked, [`SigchldGuard`].
//!
//! If SIGCHLD is ignored, or has `SA_NOCLDWAIT`, the kernel sends no SIGCHLD, and leaves no child
//! to wait for. All other dispositions stay unchanged, because a blocked signal can be taken under
//! any disposition.
//!
//! Each process has its own lock, so that a forked child never waits for a thread that it does not
//! have. The data that the lock protects are valid at each step. If a child is forked while another
//! thread changes the data, the child may keep the default although none of its threads holds a
//! [`SigchldGuard`].

#![allow(unsafe_code, reason = "sigaction, and handlers of the program")]

use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Signal;
use super::error::SignalError;
use super::number::MAX_SIGNAL;
use crate::sys::fork::PerProcess;

/// A disposition, as the kernel returns it. Its functions neither allocate nor lock.
#[derive(Clone, Copy)]
pub(super) struct KernelDisposition(libc::sigaction);

impl KernelDisposition {
    /// Returns the action for a handler, `SIG_DFL` or `SIG_IGN`. While the handler runs, only its
    /// own signal is blocked.
    pub(super) fn new(handler: libc::sighandler_t, flags: libc::c_int) -> Self {
        // SAFETY: zero is a valid action; the call writes to a live local.
        let mut action: libc::sigaction = unsafe { zeroed() };
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        // SAFETY: as above.
        unsafe { libc::sigemptyset(&mut action.sa_mask) };
        Self(action)
    }

    /// Returns the disposition of the signal.
    pub(super) fn current(signal: Signal) -> Result<Self, SignalError> {
        // SAFETY: zero is a valid action; the call writes to a live local.
        unsafe {
            let mut current = zeroed();
            match libc::sigaction(signal.as_raw(), null_mut(), &mut current) {
                0 => Ok(Self(current)),
                _ => Err(SignalError::last("sigaction")),
            }
        }
    }

    /// Installs the action as the disposition of the signal. Returns the previous disposition.
    pub(super) fn install(&self, signal: Signal) -> Result<Self, SignalError> {
        // SAFETY: the kernel returned the action, or it is one of this module's handlers, which
        // exist as long as the program. The call writes to a live local.
        unsafe {
            let mut replaced = zeroed();
            match libc::sigaction(signal.as_raw(), &self.0, &mut replaced) {
                0 => Ok(Self(replaced)),
                _ => Err(SignalError::last("sigaction")),
            }
        }
    }

    pub(super) fn handler(&self) -> libc::sighandler_t {
        self.0.sa_sigaction
    }

    /// Calls the handler as the kernel does, but with the calling thread's current mask.
    ///
    /// # Safety
    /// 1. The action is neither `SIG_DFL` nor `SIG_IGN`.
    /// 2. `info` and `context` are the arguments that the kernel passed to a running handler.
    pub(super) unsafe fn call(
        &self,
        signal: Signal,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        type Long = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        type Short = extern "C" fn(libc::c_int);
        // SAFETY: the action is a handler (1) and has valid arguments (2). The kernel calls it in
        // the same way, and a flag of the action determines how many arguments the handler takes.
        unsafe {
            if self.0.sa_flags & libc::SA_SIGINFO != 0 {
                std::mem::transmute::<usize, Long>(self.handler())(signal.as_raw(), info, context);
            } else {
                std::mem::transmute::<usize, Short>(self.handler())(signal.as_raw());
            }
        }
    }

    fn discards_children(&self) -> bool {
        self.handler() == libc::SIG_IGN || self.0.sa_flags & libc::SA_NOCLDWAIT != 0
    }

    fn is_same(&self, other: &Self) -> bool {
        // SAFETY: both sets are initialised.
        let has = |one: &Self, signal| unsafe { libc::sigismember(&one.0.sa_mask, signal) };
        self.handler() == other.handler()
            && self.0.sa_flags == other.0.sa_flags
            && (1..=MAX_SIGNAL).all(|signal| has(self, signal) == has(other, signal))
    }
}

/// Replaces the disposition of the signal if it is `expected`. Returns `true` if it was.
///
/// A disposition that another thread installs between the two calls is restored.
pub(super) fn exchange(
    signal: Signal,
    expected: fn(&KernelDisposition) -> bool,
    by: &KernelDisposition,
) -> bool {
    if !KernelDisposition::current(signal).is_ok_and(|current| expected(&current)) {
        return false;
    }
    match by.install(signal) {
        Ok(replaced) if !expected(&replaced) => {
            let _ = replaced.install(signal);
            false
        }
        replaced => replaced.is_ok(),
    }
}

/// A saved disposition, which a handler may read at any moment. Its memory is never freed.
#[derive(Debug)]
pub(super) struct Saved(AtomicPtr<KernelDisposition>);

impl Saved {
    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Saves a disposition. If it is equal to the saved one, nothing is allocated.
    pub(super) fn set(&self, action: KernelDisposition) {
        if self.get().is_none_or(|saved| !saved.is_same(&action)) {
            // SYNC disposition-saved: pairs with the load in `get`.
            self.0.store(Box::into_raw(Box::new(action)), Ordering::Release);
        }
    }

    pub(super) fn get(&self) -> Option<&'static KernelDisposition> {
        // SYNC disposition-saved: pairs with the store in `set`.
        let saved = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or comes from `Box::into_raw` and is never freed.
        unsafe { saved.as_ref() }
    }
}

/// Number of [`SigchldGuard`]s.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The disposition before the first guard; valid while [`IS_CHANGED`] is `true`.
static BEFORE: Saved = Saved::new();

/// `true` if the default was installed instead of [`BEFORE`].
static IS_CHANGED: AtomicBool = AtomicBool::new(false);

/// The lock that protects these three statics. A forked child has its own lock.
static LOCK: PerProcess<Mutex<()>> = PerProcess::new(Mutex::default);

/// A guard of SIGCHLD's disposition: while it exists, the kernel sends SIGCHLD when a child ends,
/// and keeps the child so that it can be waited for.
#[derive(Debug)]
pub(super) struct SigchldGuard(());

impl SigchldGuard {
    /// Installs the default disposition, unless the current one lets the kernel report children.
    pub(super) fn new() -> Result<Self, SignalError> {
        let _changes = lock()?;
        let current = KernelDisposition::current(Signal::CHLD)?;
        if current.discards_children() {
            if !IS_CHANGED.load(Ordering::Relaxed) {
                BEFORE.set(current);
                // SYNC disposition-changed: pairs with the load in `before`. The flag is stored
                // before the change, so that a child forked in between can restore the disposition.
                IS_CHANGED.store(true, Ordering::Release);
            }
            let flags = current.0.sa_flags & libc::SA_NOCLDSTOP;
            KernelDisposition::new(libc::SIG_DFL, flags).install(Signal::CHLD)?;
        }
        HELD.fetch_add(1, Ordering::Relaxed);
        Ok(Self(()))
    }

    /// Returns the previous disposition, if it was changed, for a child that calls exec.
    pub(super) fn before(&self) -> Option<&'static KernelDisposition> {
        // SYNC disposition-changed: pairs with the store in `new`.
        IS_CHANGED.load(Ordering::Acquire).then(|| BEFORE.get()).flatten()
    }
}

impl Drop for SigchldGuard {
    fn drop(&mut self) {
        // If a forked child has no memory for a lock, it keeps the default.
        let Ok(_changes) = lock() else { return };
        if HELD.fetch_sub(1, Ordering::Relaxed) == 1
            && let Some(before) = self.before()
        {
            // Another library's handler is kept.
            let is_ours = |action: &KernelDisposition| {
                action.handler() == libc::SIG_DFL && !action.discards_children()
            };
            exchange(Signal::CHLD, is_ours, before);
            IS_CHANGED.store(false, Ordering::Relaxed);
        }
    }
}

fn lock() -> Result<MutexGuard<'static, ()>, SignalError> {
    let lock = LOCK.get().map_err(|error| SignalError::system("mmap", error.errno()))?;
    Ok(lock.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::child::in_child;

    /// Regression test: threads block and unblock SIGCHLD while another thread forks. If one of
    /// them held the lock that protects the saved disposition at the fork, the child hung when it
    /// dropped its own guard.
    #[test]
    fn child_forked_during_sigchld_changes_does_not_hang() {
        assert!(in_child(|| {
            let ignore = KernelDisposition::new(libc::SIG_IGN, 0);
            ignore.install(Signal::CHLD).expect("installed");
            let _held = SigchldGuard::new().expect("held");
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            drop(SigchldGuard::new());
                        }
                    });
                }
                let all = (0..60).all(|_| in_child(|| SigchldGuard::new().is_ok()));
                stop.store(true, Ordering::Relaxed);
                all
            })
        }));
    }

    #[test]
    fn exchange_leaves_unexpected_disposition() {
        assert!(in_child(|| {
            let by = KernelDisposition::new(libc::SIG_IGN, 0);
            let is_ignored = |action: &KernelDisposition| action.handler() == libc::SIG_IGN;
            let now = || KernelDisposition::current(Signal::USR1).map(|current| current.handler());
            !exchange(Signal::USR1, is_ignored, &by)
                && now() == Ok(libc::SIG_DFL)
                && exchange(Signal::USR1, |action| action.handler() == libc::SIG_DFL, &by)
                && now() == Ok(libc::SIG_IGN)
        }));
    }
}

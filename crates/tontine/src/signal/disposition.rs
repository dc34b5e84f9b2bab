//! SIGCHLD's disposition while it is blocked: [`Reaped`].
//!
//! Where it is ignored, or has `SA_NOCLDWAIT`, the kernel sends none and leaves no child to wait
//! for. All other dispositions are well as they are: a blocked signal is taken, whatever it has.

#![allow(unsafe_code, reason = "sigaction")]

use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::{Error, Result};

/// How many hold the default, and what there was before the first of them.
static HELD: Mutex<(usize, Option<libc::sigaction>)> = Mutex::new((0, None));

/// As long as it lives, an ended child is told of and can be waited for.
#[derive(Debug)]
pub(super) struct Reaped(());

impl Reaped {
    /// Sets the default, if it must be.
    pub(super) fn new() -> Result<Self> {
        let mut held = held();
        // SAFETY: zero is a valid action; the calls read and write live locals.
        unsafe {
            let mut before: libc::sigaction = zeroed();
            if libc::sigaction(libc::SIGCHLD, null_mut(), &mut before) != 0 {
                return Err(Error::last("sigaction"));
            }
            let throws_away =
                before.sa_sigaction == libc::SIG_IGN || before.sa_flags & libc::SA_NOCLDWAIT != 0;
            if throws_away {
                let mut default: libc::sigaction = zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                default.sa_flags = before.sa_flags & libc::SA_NOCLDSTOP;
                if libc::sigaction(libc::SIGCHLD, &default, null_mut()) != 0 {
                    return Err(Error::last("sigaction"));
                }
                held.1.get_or_insert(before);
            }
        }
        held.0 += 1;
        Ok(Self(()))
    }

    /// What there was before, if it was changed: to be given to a child that executes another
    /// program.
    pub(super) fn before(&self) -> Option<Before> {
        held().1.map(Before)
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        let mut held = held();
        held.0 -= 1;
        if held.0 == 0
            && let Some(before) = held.1.take()
        {
            Before(before).restore();
        }
    }
}

fn held() -> MutexGuard<'static, (usize, Option<libc::sigaction>)> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What SIGCHLD's disposition was.
#[derive(Clone, Copy)]
pub(super) struct Before(libc::sigaction);

impl Before {
    /// Puts it back. Allocates nothing and locks nothing.
    pub(super) fn restore(&self) {
        // SAFETY: what the kernel said it was; it fails for no signal that it was asked of.
        unsafe { libc::sigaction(libc::SIGCHLD, &self.0, null_mut()) };
    }
}

//! A stop by SIGTSTP in a process that catches the signal: [`suspend`].

#![allow(unsafe_code, reason = "restores a signal's default action for a moment")]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use libc::{SIG_DFL, SIGTSTP, raise, sigaction};

/// Stops the process as SIGTSTP does by default, and catches the signal again once the process
/// continues. A process whose group is orphaned is not stopped.
pub(super) fn suspend() -> io::Result<()> {
    // SAFETY: all zeros are a valid `sigaction`: no flags, an empty mask, the default action.
    let mut default: sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    default.sa_sigaction = SIG_DFL;
    let mut caught = default;
    // SAFETY: both structures are valid, and the default action calls no function.
    if unsafe { sigaction(SIGTSTP, &default, &mut caught) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the first call takes a number; the second restores the action that was read above.
    let restored = unsafe {
        raise(SIGTSTP);
        sigaction(SIGTSTP, &caught, ptr::null_mut())
    };
    if restored == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

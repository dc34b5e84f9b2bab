//! Being stopped by SIGTSTP although it is caught: [`suspend`].

#![allow(unsafe_code, reason = "a signal's default action is had by restoring it for a moment")]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use libc::{SIG_DFL, SIGTSTP, raise, sigaction};

/// Does what SIGTSTP does by default, and catches it again once the process goes on. A process
/// whose group is orphaned is not stopped.
pub(super) fn suspend() -> io::Result<()> {
    // SAFETY: all zeroes is a value of it: no flags, an empty mask, the default action.
    let mut default: sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    default.sa_sigaction = SIG_DFL;
    let mut caught = default;
    // SAFETY: both are valid; the default action calls nothing.
    if unsafe { sigaction(SIGTSTP, &default, &mut caught) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a call with a number, and one that puts back what was found above.
    let restored = unsafe {
        raise(SIGTSTP);
        sigaction(SIGTSTP, &caught, ptr::null_mut())
    };
    if restored == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

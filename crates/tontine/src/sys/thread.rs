//! Threads with small stacks that receive no signals: [`start`].
//!
//! The crate starts threads for two purposes only: to hold a life (`life::anchor`), and to receive
//! and close what peers passed ([`super::quarantine`]).

#![allow(unsafe_code, reason = "a signal mask")]

use std::mem::MaybeUninit;

use rustix::io::Errno;

use crate::error::{Error, Result};

/// Stack size in bytes. A thread touches only a page or two. A smaller stack would suffice, but the
/// first allocation in a thread may initialise the program's own allocator.
const STACK_BYTES: usize = 64 * 1024;

/// Runs `body` on a new thread. All signals are blocked before it starts.
///
/// # Errors
/// [`Error::System`] if the kernel refuses a thread.
pub(crate) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES);
    let started = with_signals_blocked(|| thread.spawn(body))?;
    started.map(drop).map_err(|error| {
        Error::system("pthread_create", Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
    })
}

/// Runs `body` with all signals blocked. A thread that `body` starts inherits the mask.
fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> Result<T> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are writable; `sigfillset` initialises the first, `pthread_sigmask` the
    // second.
    let code = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
    };
    if code != 0 {
        return Err(Error::system("pthread_sigmask", Errno::from_raw_os_error(code)));
    }
    let answer = body();
    // SAFETY: the successful call has initialised `before`.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    Ok(answer)
}

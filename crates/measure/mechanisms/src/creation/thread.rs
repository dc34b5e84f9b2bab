//! A thread of the C library that does nothing: [`create_and_join`].

#![allow(unsafe_code, reason = "calls pthread functions")]

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use tontine_bench::error::{ErrorContext, Result};

#[inline]
pub(super) fn create_and_join() -> Result<()> {
    extern "C" fn nothing(_: *mut c_void) -> *mut c_void {
        null_mut()
    }
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let place = thread.as_mut_ptr();
    // SAFETY: the function accesses nothing; the thread is joined below, once.
    let made = unsafe { libc::pthread_create(place, null(), nothing, null_mut()) };
    succeeded(made).setting_up("pthread_create")?;
    // SAFETY: `pthread_create` has written the thread; it is joined here, once.
    let joined = unsafe { libc::pthread_join(thread.assume_init(), null_mut()) };
    succeeded(joined).during("pthread_join")
}

pub(super) fn block_all_signals() -> Result<()> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is filled before it is used.
    let set = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), null_mut())
    };
    succeeded(set).during("pthread_sigmask")
}

/// Converts the error number that pthread functions return.
pub(super) fn succeeded(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(returned)) }
}

//! The two creations that source 003 shows, made by the C library and traced: [`pthread_create`],
//! [`fork`].

#![allow(unsafe_code, reason = "pthread_create and fork of the C library")]

use std::mem::MaybeUninit;
use std::ptr;

use super::{TraceEvent, events};
use crate::error::Result;
use crate::os::child::exit_at_once;

/// Traces a C `pthread_create` of a function that does nothing, and its `pthread_join`.
///
/// # Errors
/// Like [`events`].
pub fn pthread_create() -> Result<Vec<TraceEvent>> {
    extern "C" fn nothing(_: *mut libc::c_void) -> *mut libc::c_void {
        ptr::null_mut()
    }
    events(|| {
        let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
        // SAFETY: the attributes are the defaults; the function accesses nothing; the thread, if it
        // was created, is joined once.
        unsafe {
            let place = thread.as_mut_ptr();
            if libc::pthread_create(place, ptr::null(), nothing, ptr::null_mut()) == 0 {
                libc::pthread_join(thread.assume_init(), ptr::null_mut());
            }
        }
    })
}

/// Traces a C `fork` whose child exits immediately, and its `waitpid`.
///
/// # Errors
/// Like [`events`].
pub fn fork() -> Result<Vec<TraceEvent>> {
    // SAFETY: the child exits immediately and never returns into the caller's frames.
    events(|| match unsafe { libc::fork() } {
        0 => exit_at_once(0),
        child if child > 0 => {
            // SAFETY: the pointer for the status may be null.
            unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
        }
        _ => {}
    })
}

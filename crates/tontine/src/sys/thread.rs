//! Threads with small stacks that receive no signals: [`start`].
//!
//! The crate starts threads for two purposes only: to hold a life (`life::anchor`), and to receive
//! and close what peers passed ([`super::quarantine`]).
//!
//! The C library creates them. A thread of the standard library first acquires a lock that all
//! threads share, and a child that was forked while another thread held this lock would block there
//! indefinitely.

#![allow(unsafe_code, reason = "pthread_create and a signal mask")]

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use rustix::io::Errno;

use crate::error::{Error, Result};

/// Stack size in bytes. A thread touches only a page or two. A smaller stack would suffice, but the
/// first allocation in a thread may initialise the program's own allocator.
const STACK_BYTES: usize = 64 * 1024;

/// The code of a new thread.
struct ThreadTask {
    name: &'static CStr,
    body: Box<dyn FnOnce() + Send>,
}

/// Runs `body` on a new thread, which ends if `body` panics. All signals are blocked before it
/// starts.
///
/// # Errors
/// [`Error::System`] if the kernel refuses a thread.
pub(crate) fn start(name: &'static CStr, body: impl FnOnce() + Send + 'static) -> Result<()> {
    let main = Box::new(ThreadTask { name, body: Box::new(body) });
    let code = with_signals_blocked(|| create(main))?;
    if code == 0 {
        return Ok(());
    }
    Err(Error::system("pthread_create", Errno::from_raw_os_error(code)))
}

/// Calls pthread_create(3) for a detached thread, and returns the error number.
fn create(main: Box<ThreadTask>) -> i32 {
    extern "C" fn run(main: *mut c_void) -> *mut c_void {
        // SAFETY: the pointer is the one that `create` passes, and only this thread receives it.
        let main = unsafe { Box::from_raw(main.cast::<ThreadTask>()) };
        let _ = rustix::thread::set_name(main.name);
        let _ = catch_unwind(AssertUnwindSafe(main.body));
        ptr::null_mut()
    }
    let main = Box::into_raw(main);
    let mut attributes = MaybeUninit::uninit();
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the attributes are initialised by the first call and destroyed after their last use;
    // `run` has the expected signature, and `main` stays valid until it runs.
    let code = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        let size = STACK_BYTES.max(min_stack(attributes.as_ptr()));
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), size);
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let code = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, main.cast());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        code
    };
    if code != 0 {
        // SAFETY: no thread was created, so the pointer is still this function's.
        drop(unsafe { Box::from_raw(main) });
    }
    code
}

/// Returns the minimum size of a stack, which includes the thread-local memory of the program and
/// its libraries; 0 if the C library does not report it.
///
/// # Safety
/// The attributes are initialised.
unsafe fn min_stack(attributes: *const libc::pthread_attr_t) -> usize {
    type GetMinStack = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    // SAFETY: the name ends with a zero; glibc's function of this name has this signature.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr());
        let function = std::mem::transmute::<*mut c_void, Option<GetMinStack>>(found);
        function.map_or(0, |function| function(attributes))
    }
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

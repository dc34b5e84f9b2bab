//! A process-shared pthread mutex, a condition variable and the value that they guard: [`Monitor`].
//!
//! The mutex is not robust: a process that dies while it holds the mutex never releases it.

#![allow(unsafe_code, reason = "process-shared pthread objects")]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use tontine_bench::error::{ErrorContext, Result};
use tontine_bench::os::shared::Shareable;

unsafe extern "C" {
    // A POSIX function that the libc crate omits on Linux.
    fn pthread_mutex_timedlock(
        mutex: *mut libc::pthread_mutex_t,
        deadline: *const libc::timespec,
    ) -> libc::c_int;
}

/// A mutex, a condition variable, and a `T` that is changed under the mutex.
#[repr(C)]
pub struct Monitor<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    turned: UnsafeCell<libc::pthread_cond_t>,
    pub guarded: T,
}

// SAFETY: mutex and condition variable are designed for concurrent use, and `T` is `Sync` itself.
unsafe impl<T: Sync> Sync for Monitor<T> {}
// SAFETY: zero bytes are valid for all fields; the creator calls `initialise` before the first use.
unsafe impl<T: Shareable> Shareable for Monitor<T> {}

/// Result of a wait with a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    Done,
    TimedOut,
}

impl<T> Monitor<T> {
    /// Initialises the mutex and the condition variable. Call it once, before any other use.
    pub fn initialise(&self) -> Result<()> {
        // SAFETY: the memory is mapped, and no thread uses it yet.
        unsafe {
            initialise_mutex(self.mutex.get(), false)?;
            initialise_condition(self.turned.get())
        }
    }

    #[inline(always)]
    pub fn lock(&self) -> Result<()> {
        // SAFETY: the mutex was initialised before its first use and stays mapped while it is
        // borrowed.
        error(unsafe { libc::pthread_mutex_lock(self.mutex.get()) }).during("pthread_mutex_lock")
    }

    /// Locks the mutex, or gives up at `deadline` (`CLOCK_REALTIME`).
    #[inline(always)]
    pub fn lock_until(&self, deadline: &libc::timespec) -> Result<Waited> {
        // SAFETY: as in `lock`; the deadline is borrowed for the call.
        waited(unsafe { pthread_mutex_timedlock(self.mutex.get(), deadline) })
            .during("pthread_mutex_timedlock")
    }

    /// Unlocks the mutex. The calling thread must hold it.
    #[inline(always)]
    pub fn unlock(&self) -> Result<()> {
        // SAFETY: as in `lock`, which must precede this call.
        error(unsafe { libc::pthread_mutex_unlock(self.mutex.get()) })
            .during("pthread_mutex_unlock")
    }

    #[inline(always)]
    pub fn signal(&self) -> Result<()> {
        // SAFETY: the condition variable was initialised before its first use and is mapped while
        // borrowed.
        error(unsafe { libc::pthread_cond_signal(self.turned.get()) }).during("pthread_cond_signal")
    }

    /// Waits for a signal. The caller must hold the mutex, and holds it again after the call.
    #[inline(always)]
    pub fn wait(&self) -> Result<()> {
        // SAFETY: both objects are initialised and mapped; the caller holds the mutex.
        error(unsafe { libc::pthread_cond_wait(self.turned.get(), self.mutex.get()) })
            .during("pthread_cond_wait")
    }

    /// Like [`Self::wait`], but only until `deadline` (`CLOCK_REALTIME`).
    #[inline(always)]
    pub fn wait_until(&self, deadline: &libc::timespec) -> Result<Waited> {
        let (turned, mutex) = (self.turned.get(), self.mutex.get());
        // SAFETY: as in `wait`; the deadline is borrowed for the call.
        waited(unsafe { libc::pthread_cond_timedwait(turned, mutex, deadline) })
            .during("pthread_cond_timedwait")
    }
}

/// Initialises a process-shared mutex, robust or not.
///
/// # Safety
/// `mutex` is valid for writes, and no thread uses the mutex yet.
pub unsafe fn initialise_mutex(mutex: *mut libc::pthread_mutex_t, robust: bool) -> Result<()> {
    let made = |returned, call| error(returned).setting_up(call);
    let mut attributes = MaybeUninit::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: the attributes are initialised first and destroyed last; the caller vouches for the
    // mutex.
    unsafe {
        made(libc::pthread_mutexattr_init(attributes), "pthread_mutexattr_init")?;
        let shared = libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED);
        let robust = if robust { libc::PTHREAD_MUTEX_ROBUST } else { libc::PTHREAD_MUTEX_STALLED };
        let robust = libc::pthread_mutexattr_setrobust(attributes, robust);
        let mutex = libc::pthread_mutex_init(mutex, attributes);
        libc::pthread_mutexattr_destroy(attributes);
        made(shared, "pthread_mutexattr_setpshared")?;
        made(robust, "pthread_mutexattr_setrobust")?;
        made(mutex, "pthread_mutex_init")
    }
}

/// Initialises a process-shared condition variable.
///
/// # Safety
/// `condition` is valid for writes, and no thread uses the condition variable yet.
pub unsafe fn initialise_condition(condition: *mut libc::pthread_cond_t) -> Result<()> {
    let made = |returned, call| error(returned).setting_up(call);
    let mut attributes = MaybeUninit::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: the attributes are initialised first and destroyed last; the caller vouches for the
    // condition variable.
    unsafe {
        made(libc::pthread_condattr_init(attributes), "pthread_condattr_init")?;
        let shared = libc::pthread_condattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED);
        let condition = libc::pthread_cond_init(condition, attributes);
        libc::pthread_condattr_destroy(attributes);
        made(shared, "pthread_condattr_setpshared")?;
        made(condition, "pthread_cond_init")
    }
}

pub fn error(returned: libc::c_int) -> std::io::Result<()> {
    match returned {
        0 => Ok(()),
        code => Err(std::io::Error::from_raw_os_error(code)),
    }
}

fn waited(returned: libc::c_int) -> std::io::Result<Waited> {
    match returned {
        libc::ETIMEDOUT => Ok(Waited::TimedOut),
        other => error(other).map(|()| Waited::Done),
    }
}

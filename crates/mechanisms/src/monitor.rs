//! A process-shared pthread mutex, a condition variable and what they guard: [`Monitor`].
//!
//! The mutex is not robust: whoever dies with it in hand keeps it for ever.

#![allow(unsafe_code, reason = "process-shared pthread objects")]

use std::cell::UnsafeCell;

use tontine_host::os::shared::Shareable;
use tontine_host::trouble::{During, Result};

unsafe extern "C" {
    // POSIX; the libc crate leaves it out on Linux.
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
    /// What it guards.
    pub guarded: T,
}

// SAFETY: mutex and condition variable are made for concurrent use, and `T` is `Sync` itself.
unsafe impl<T: Sync> Sync for Monitor<T> {}
// SAFETY: zero bytes are valid for all fields; whoever makes one calls `initialise` before its use.
unsafe impl<T: Shareable> Shareable for Monitor<T> {}

/// How a wait with a deadline ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// As it should.
    Done,
    /// By the deadline.
    TimedOut,
}

impl<T> Monitor<T> {
    /// Makes mutex and condition variable. Once, before anybody uses them.
    ///
    /// # Errors
    /// Skipped, where the system has no process-shared ones.
    pub fn initialise(&self) -> Result<()> {
        // SAFETY: the attribute objects are initialised before they are used and destroyed after;
        // the memory of mutex and condition variable is mapped and nobody uses them yet.
        unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut attributes);
            let shared = libc::PTHREAD_PROCESS_SHARED;
            error(libc::pthread_mutexattr_setpshared(&mut attributes, shared))
                .setting_up("pthread_mutexattr_setpshared")?;
            error(libc::pthread_mutex_init(self.mutex.get(), &attributes))
                .setting_up("pthread_mutex_init")?;
            libc::pthread_mutexattr_destroy(&mut attributes);
            let mut attributes: libc::pthread_condattr_t = std::mem::zeroed();
            libc::pthread_condattr_init(&mut attributes);
            error(libc::pthread_condattr_setpshared(&mut attributes, shared))
                .setting_up("pthread_condattr_setpshared")?;
            error(libc::pthread_cond_init(self.turned.get(), &attributes))
                .setting_up("pthread_cond_init")?;
            libc::pthread_condattr_destroy(&mut attributes);
        }
        Ok(())
    }

    /// Locks.
    ///
    /// # Errors
    /// Failed, as `pthread_mutex_lock(3)`.
    #[inline(always)]
    pub fn lock(&self) -> Result<()> {
        // SAFETY: initialised before its use, mapped as long as it is borrowed.
        error(unsafe { libc::pthread_mutex_lock(self.mutex.get()) }).during("pthread_mutex_lock")
    }

    /// Locks, or gives up at `deadline` (`CLOCK_REALTIME`).
    ///
    /// # Errors
    /// Failed, as `pthread_mutex_timedlock(3)`.
    #[inline(always)]
    pub fn lock_until(&self, deadline: &libc::timespec) -> Result<Waited> {
        // SAFETY: as in `lock`; the deadline is borrowed for the call.
        waited(unsafe { pthread_mutex_timedlock(self.mutex.get(), deadline) })
            .during("pthread_mutex_timedlock")
    }

    /// Unlocks. By the thread that has locked.
    ///
    /// # Errors
    /// Failed, as `pthread_mutex_unlock(3)`.
    #[inline(always)]
    pub fn unlock(&self) -> Result<()> {
        // SAFETY: as in `lock`, whose success is the only way here.
        error(unsafe { libc::pthread_mutex_unlock(self.mutex.get()) })
            .during("pthread_mutex_unlock")
    }

    /// Wakes one who waits.
    ///
    /// # Errors
    /// Failed, as `pthread_cond_signal(3)`.
    #[inline(always)]
    pub fn signal(&self) -> Result<()> {
        // SAFETY: initialised before its use, mapped as long as it is borrowed.
        error(unsafe { libc::pthread_cond_signal(self.turned.get()) }).during("pthread_cond_signal")
    }

    /// Waits for a signal. With the mutex locked, as it is again afterwards.
    ///
    /// # Errors
    /// Failed, as `pthread_cond_wait(3)`.
    #[inline(always)]
    pub fn wait(&self) -> Result<()> {
        // SAFETY: both are initialised and mapped; the caller holds the mutex.
        error(unsafe { libc::pthread_cond_wait(self.turned.get(), self.mutex.get()) })
            .during("pthread_cond_wait")
    }

    /// The same, or until `deadline` (`CLOCK_REALTIME`).
    ///
    /// # Errors
    /// Failed, as `pthread_cond_timedwait(3)`.
    #[inline(always)]
    pub fn wait_until(&self, deadline: &libc::timespec) -> Result<Waited> {
        let (turned, mutex) = (self.turned.get(), self.mutex.get());
        // SAFETY: as in `wait`; the deadline is borrowed for the call.
        waited(unsafe { libc::pthread_cond_timedwait(turned, mutex, deadline) })
            .during("pthread_cond_timedwait")
    }
}

/// What a pthread call returned, as a result.
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

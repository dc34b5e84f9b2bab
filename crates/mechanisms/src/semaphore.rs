//! An unnamed POSIX semaphore in shared memory: [`Semaphore`].

#![allow(unsafe_code, reason = "POSIX semaphores")]

use std::cell::UnsafeCell;
use std::io;

use tontine_host::os::checked;
use tontine_host::os::shared::Shareable;
use tontine_host::trouble::{During, Result};

/// A semaphore, alone on its lines.
#[repr(C, align(128))]
pub struct Semaphore(UnsafeCell<libc::sem_t>);

// SAFETY: a semaphore is made for concurrent use; only the C library looks into it.
unsafe impl Sync for Semaphore {}
// SAFETY: zero bytes are a valid `sem_t`; whoever makes one calls `start_at_zero` before its use.
unsafe impl Shareable for Semaphore {}

impl Semaphore {
    /// Makes it usable by several processes, at zero. Once, before anybody posts or waits.
    ///
    /// # Errors
    /// Skipped, where the system has none.
    pub fn start_at_zero(&self) -> Result<()> {
        // SAFETY: the memory is mapped, nobody else's so far, and aligned.
        checked(unsafe { libc::sem_init(self.0.get(), 1, 0) }).setting_up("sem_init")?;
        Ok(())
    }

    /// Adds one.
    ///
    /// # Errors
    /// Failed, where the semaphore is full.
    #[inline(always)]
    pub fn post(&self) -> Result<()> {
        // SAFETY: initialised by `start_at_zero`, mapped as long as it is borrowed.
        checked(unsafe { libc::sem_post(self.0.get()) }).during("sem_post")?;
        Ok(())
    }

    /// Waits until it is above zero and takes one; true where a signal came instead.
    ///
    /// # Errors
    /// Failed, where the semaphore is none.
    #[inline(always)]
    pub fn wait_or_signal(&self) -> Result<bool> {
        // SAFETY: as in `post`.
        if unsafe { libc::sem_wait(self.0.get()) } == 0 {
            return Ok(false);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            error => Err(error).during("sem_wait"),
        }
    }
}

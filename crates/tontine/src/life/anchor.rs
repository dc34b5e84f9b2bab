//! The anchor thread, which holds a life and does nothing else: [`hold`].
//!
//! The kernel marks a liveness word when the *thread* that holds it ends. If no thread of the
//! program is known to last as long as the process, the anchor thread holds the life: all signals
//! are blocked in it, its stack is small, and it sleeps until the process ends. Neighbours:
//! [`super::Life::register`], when called off the main thread, and
//! [`super::Life::register_anchor_thread`] request it; [`crate::sys::thread`] starts it.

use std::sync::mpsc;

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::sys::thread;

/// Runs `make` on a new thread and returns its result. The thread stays until the process ends,
/// unless `make` failed.
///
/// # Errors
/// The error of `make`; [`Error::System`] if no thread can be started.
pub(super) fn hold<T: Send + 'static>(make: fn() -> Result<T>) -> Result<T> {
    let (made, receiver) = mpsc::sync_channel(1);
    let body = move || {
        let life = make();
        let is_made = life.is_ok();
        // The send cannot fail, because the receiving end waits below.
        let _ = made.send(life);
        drop(made);
        if !is_made {
            return;
        }
        loop {
            rustix::event::pause();
        }
    };
    thread::start(c"tontine-anchor", body)?;
    receiver.recv().unwrap_or(Err(Error::system("pthread_create", Errno::AGAIN)))
}

//! A thread that does nothing but be there: [`hold`].
//!
//! The kernel marks a life word when the *thread* that holds it ends. Where no thread of the
//! program lasts as long as the process, this one does: it receives no signals, has a small
//! stack, and sleeps for ever. Neighbours: [`super::Life::with_anchor_thread`] asks for it,
//! [`crate::sys::thread`] starts it.

use std::sync::mpsc;

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::sys::thread;

/// Runs `make` on a new thread and returns what it made. The thread stays until the process ends,
/// unless `make` failed.
pub(super) fn hold<T: Send + 'static>(make: fn() -> Result<T>) -> Result<T> {
    let (made, receiver) = mpsc::sync_channel(1);
    let body = move || {
        let made_it = make();
        let stays = made_it.is_ok();
        // The other end waits below: this cannot fail.
        let _ = made.send(made_it);
        drop(made);
        if !stays {
            return;
        }
        loop {
            rustix::event::pause();
        }
    };
    thread::start("tontine-anchor", body)?;
    receiver.recv().unwrap_or(Err(Error::system("pthread_create", Errno::AGAIN)))
}

//! Waking a receiver from another thread: [`Waker`].
//!
//! The token is a word, which a receiver that polls sees; an eventfd in the mailbox's epoll set
//! ends its sleep. Neighbours: [`super::waiting`] takes the token.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use super::Mailbox;
use super::listener::EventSource;
use crate::error::{Error, Result};
use crate::sys::fork::Guard;

/// A handle that ends a blocking receiving call of a [`Mailbox`] from another thread.
///
/// [`Mailbox::waker`] returns it. It stays valid when the mailbox is dropped, and then wakes none.
///
/// # Examples
/// ```
/// use tontine::{Error, mailbox::Mailbox};
///
/// let mut mailbox = Mailbox::unbound()?;
/// let waker = mailbox.waker()?;
/// let stop = std::thread::spawn(move || waker.wake());
/// assert_eq!(mailbox.recv().unwrap_err(), Error::Woken);
/// # stop.join().expect("no panic")?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Waker(Arc<WakeToken>);

#[derive(Debug)]
struct WakeToken {
    is_set: AtomicBool,
    /// Readable from each setting of the token until the mailbox has processed the event.
    event: OwnedFd,
    guard: Guard,
}

impl Waker {
    fn new() -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::system("eventfd2", errno))?;
        let guard = Guard::here()?;
        Ok(Self(Arc::new(WakeToken { is_set: AtomicBool::new(false), event, guard })))
    }

    /// Makes the mailbox's blocking receiving call, or else its next one, return [`Error::Woken`].
    ///
    /// Works like `std::thread::Thread::unpark`: calls before the mailbox has returned the error
    /// count as one. Everything that this thread did before `wake` is visible to the thread that
    /// receives the error.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn wake(&self) -> Result<()> {
        let token = &*self.0;
        if token.guard.is_forked() {
            return Err(Error::Forked);
        }
        // SYNC wake: pairs with `Waker::take`. The token precedes the event: a receiver that has
        // processed the event sees the token.
        if !token.is_set.swap(true, Ordering::AcqRel) {
            // A full counter is readable, too.
            let _ = rustix::io::write(&token.event, &1_u64.to_ne_bytes());
        }
        Ok(())
    }

    /// Takes the token. Returns `true` if it was set.
    fn take(&self) -> bool {
        let token = &self.0.is_set;
        // SYNC wake: pairs with `Waker::wake`.
        token.load(Ordering::Relaxed) && token.swap(false, Ordering::AcqRel)
    }

    /// Makes the descriptor unreadable.
    pub(super) fn drain(&self) {
        let _ = rustix::io::read(&self.0.event, &mut [0; 8]);
    }
}

impl Mailbox {
    /// Returns a handle with which another thread ends a blocking receiving call of this mailbox.
    ///
    /// After [`Waker::wake`], the call that blocks ([`Mailbox::recv`], [`Mailbox::recv_timeout`],
    /// [`Mailbox::recv_batch`], [`Mailbox::recv_in_place`]) or else the next one returns
    /// [`Error::Woken`] once, whatever the [`WaitStrategy`](crate::mailbox::WaitStrategy). Calls
    /// return a few messages before that if they are already there. Calls that do not block leave
    /// the token alone. All handles of a mailbox share one token and one descriptor, which the
    /// first call makes.
    ///
    /// # Errors
    /// [`Error::System`] if no descriptor is left, [`Error::Forked`] in a forked child.
    pub fn waker(&mut self) -> Result<Waker> {
        self.check()?;
        if let Some(waker) = &self.waker {
            return Ok(waker.clone());
        }
        let waker = self.options.with_descriptors(Waker::new)?;
        self.door.watch(waker.0.event.as_fd(), EventSource::Waker)?;
        self.waker = Some(waker.clone());
        Ok(waker)
    }

    /// Takes the token of the mailbox's wakers. Returns `true` if it was set.
    #[inline]
    pub(super) fn is_woken(&self) -> bool {
        self.waker.as_ref().is_some_and(Waker::take)
    }
}

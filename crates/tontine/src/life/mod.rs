//! Who is still there? [`Life`], [`Watch`], [`Claim`].
//!
//! A process that joins gets one page of shared memory with one word in it, the lock word of a
//! robust mutex that it holds and never lets go. When it ends, by whatever way (it exits, it is
//! killed, it crashes, it calls `exec`), the kernel marks the word. Everybody else asks with one
//! load, without a system call and without the owner's help: [`Watch::is_alive`].
//!
//! ```
//! use tontine::life::{Life, Watch};
//!
//! # fn main() -> tontine::Result<()> {
//! // A program calls `Life::join` on its main thread. Off the main thread, as in a test or in an
//! // asynchronous runtime, a tiny thread holds the word.
//! let life = Life::with_anchor_thread()?;
//!
//! // The other process gets the descriptor: over a Unix socket, or by inheritance.
//! let watch = Watch::from_descriptor(life.descriptor())?;
//! assert!(watch.is_alive());
//! # Ok(())
//! # }
//! ```
//!
//! What the word cannot say:
//!
//! - A stopped process is alive, and so is one that is still writing its core dump.
//! - A process that lies can look alive for ever. Whoever blocks on a peer that it does not trust
//!   also watches the connection and a pidfd, as the mailbox does.
//! - The word is a *thread's*; see [`Life::join`] for the three ways to choose it.
//! - The word says *dead* when its thread ends, an instant before the process's last thread does.
//!   Who takes over what the dead one owned needs a proof: that is a [`Claim`].
//!
//! Neighbours: `word` makes the page and the mutex, `watch` reads a peer's, `anchor` starts the
//! tiny thread, `claim` locks files, `desk` gives out the page's other words. Nothing here waits.

#![allow(unsafe_code, reason = "lives that are never freed")]

mod anchor;
mod claim;
mod desk;
#[doc(hidden)]
pub mod robust_list;
mod watch;
mod word;

use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::sys::fork::{Guard, PerProcess};

pub use claim::Claim;
pub(crate) use desk::Desk;
pub use watch::Watch;
pub(crate) use word::PAGE_SIZE;

use desk::Desks;
use word::Page;

static JOINED: PerProcess<Joined> = PerProcess::new(Joined::default);

/// What this process knows of its life.
#[derive(Debug, Default)]
struct Joined {
    /// Held while a life is made: a process has one.
    joining: Mutex<()>,
    newest: AtomicPtr<Life>,
}

/// This process's life, which ends with it.
#[derive(Debug)]
pub struct Life {
    page: Page,
    desks: Desks,
    guard: Guard,
}

impl Life {
    /// Lets the calling thread, the main one, hold this process's life: it then ends with the
    /// process. Where the process has a life already, that one is returned, on any thread.
    ///
    /// A process has one life, and whoever joins first decides which thread it is bound to:
    ///
    /// - `join`: the main thread. No thread is started. (A main thread that leaves by
    ///   `pthread_exit` while others stay ends the life; returning from `main` ends the process
    ///   anyway.)
    /// - [`Life::join_thread`]: whichever thread calls.
    /// - [`Life::with_anchor_thread`]: a thread made for it.
    ///
    /// A forked child has no life until it joins; `exec` ends the life.
    ///
    /// # Errors
    /// [`Error::NotMainThread`] elsewhere; [`Error::NoLife`] where a process was made behind the C
    /// library's back, by a bare `clone`, as the kernel would never mark its end.
    pub fn join() -> Result<&'static Self> {
        Self::held_by(|| {
            // Both ids are of the caller's own PID namespace.
            if rustix::thread::gettid() == rustix::process::getpid() {
                Self::begin()
            } else {
                Err(Error::NotMainThread)
            }
        })
    }

    /// Lets the calling thread hold this process's life: it ends with that *thread*. For a thread
    /// whose end should count as the end of the whole.
    ///
    /// # Errors
    /// As [`Life::join`], on any thread.
    pub fn join_thread() -> Result<&'static Self> {
        Self::held_by(Self::begin)
    }

    /// Starts a thread that does nothing but hold this process's life: it ends with the process.
    /// For tests and for runtimes that own the main thread. The thread has a minimal stack and
    /// receives no signals.
    ///
    /// # Errors
    /// As [`Life::join`], and where no thread can be started.
    pub fn with_anchor_thread() -> Result<&'static Self> {
        Self::held_by(|| anchor::hold(Self::begin))
    }

    /// This process's life, if it has joined. None in a forked child that has not, and none once
    /// the thread that held the life has ended.
    pub fn current() -> Option<&'static Self> {
        JOINED.peek()?.current()
    }

    /// What others need to watch this life: pass it on, and let them call
    /// [`Watch::from_descriptor`].
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.page.descriptor()
    }

    fn held_by(begin: impl FnOnce() -> Result<Box<Self>>) -> Result<&'static Self> {
        let joined = JOINED.get()?;
        if let Some(life) = joined.current() {
            return Ok(life);
        }
        // A panic in there leaves nothing behind.
        let _joining = joined.joining.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(life) = joined.current() {
            return Ok(life);
        }
        // The page of a life must never be unmapped: the kernel looks at it at the thread's end.
        let life: &'static Self = Box::leak(begin()?);
        // SYNC own-life: pairs with the load in `Joined::current`.
        joined.newest.store(ptr::from_ref(life).cast_mut(), Ordering::Release);
        Ok(life)
    }

    /// A life that the calling thread holds.
    fn begin() -> Result<Box<Self>> {
        let guard = Guard::here()?;
        Ok(Box::new(Self { page: Page::hold()?, desks: Desks::default(), guard }))
    }
}

/// What the mailbox needs of its own process's life.
impl Life {
    /// One of the page's desks, until it is dropped.
    ///
    /// # Errors
    /// [`Error::Full`], where all are taken; [`Error::Forked`] in a forked child.
    pub(crate) fn desk(&'static self) -> Result<Desk> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        Desk::take(self)
    }

    /// Whether this is the life of the process that forked this one.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.guard.is_forked()
    }
}

impl Joined {
    fn current(&self) -> Option<&'static Life> {
        // SYNC own-life: pairs with the store in `Life::held_by`.
        let newest = self.newest.load(Ordering::Acquire);
        // SAFETY: null, or a life that was leaked; `Life` may be shared between threads.
        let life: &'static Life = unsafe { newest.as_ref() }?;
        life.page.is_held().then_some(life)
    }
}

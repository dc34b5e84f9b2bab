//! Liveness of processes: [`Life`] (of this process), [`Watch`] (of another process), [`PathLock`]
//! (proof that the last owner of a path has ended).
//!
//! A *life* is the registration of a process with one page of shared memory. One word of that page,
//! the *liveness word*, is the lock word of a robust mutex that one thread of the process, the
//! *holder*, locks and never unlocks. When that thread ends, for any reason (its process exits, is
//! killed, crashes or calls `exec`), the kernel marks the word. Other processes read it with one
//! load, without a system call and without the owner's help: [`Watch::is_alive`].
//!
//! # Examples
//! ```
//! use tontine::life::{Life, Watch};
//!
//! let life = Life::register()?;
//!
//! // The other process receives the descriptor over a Unix socket, or inherits it.
//! let watch = Watch::from_fd(life)?;
//! assert!(watch.is_alive());
//! # Ok::<(), tontine::Error>(())
//! ```
//!
//! # Which thread holds the life
//!
//! A process has one life. The first call decides which thread holds it; every later call, on any
//! thread, returns that life while it lasts. [`Mailbox::bind`](crate::mailbox::Mailbox::bind) and
//! [`Sender::connect`](crate::mailbox::Sender::connect) call [`register`](Life::register).
//!
//! | first call | on | holder | the life ends with |
//! | --- | --- | --- | --- |
//! | [`register`](Life::register) | the main thread | that thread | that thread: see below |
//! | [`register`](Life::register) | another thread | an anchor thread | the process |
//! | [`register_thread`](Life::register_thread) | any thread | that thread | that thread |
//! | [`register_anchor_thread`][anchor] | any thread | an anchor thread | the process |
//!
//! [anchor]: Life::register_anchor_thread
//!
//! - An *anchor thread* is started by this crate, holds the life, and sleeps until the process
//!   ends.
//! - The process ends when its last thread ends, or (for other processes) when it calls `exec`. The
//!   main thread ends with the process, unless it calls `pthread_exit` while other threads run.
//! - Once its holder has ended, a process has no life: [`Life::current`] returns `None`, and the
//!   next call is treated as a first call. It makes a new life; the old one stays dead. So if the
//!   main thread has exited, [`register`](Life::register) on another thread starts an anchor
//!   thread.
//! - A forked child has no life until its own first call. The thread that called `fork` is the
//!   child's main thread, so [`register`](Life::register) on it starts no thread.
//!
//! # Limits
//!
//! - A stopped process is alive, and so is a process that is still writing its core dump.
//! - A malicious process can look alive indefinitely. A caller that blocks on an untrusted peer
//!   therefore watches the connection and a pidfd as well, as the mailbox does.
//! - The word reads *dead* when its thread ends, shortly before the process's last thread ends.
//!   A process that takes over a dead process's resources needs proof that the process has ended: a
//!   [`PathLock`].
//! - Nothing here blocks, except that a first call waits until its anchor thread has started.

// Neighbours: `word` makes the page and the mutex, `watch` reads a peer's page, `anchor` starts the
// anchor thread, `path_lock` locks files, `mailbox_slot` manages the page's other words.

#![allow(unsafe_code, reason = "lives that are never freed")]

mod anchor;
mod mailbox_slot;
mod path_lock;
#[doc(hidden)]
pub mod robust_list;
mod watch;
mod word;

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::sys::fork::{Guard, PerProcess};

pub(crate) use mailbox_slot::MailboxSlot;
pub use path_lock::PathLock;
pub use watch::Watch;
pub(crate) use word::PAGE_SIZE;

use mailbox_slot::Desks;
use word::LifePage;

static REGISTRATION: PerProcess<Registration> = PerProcess::new(Registration::default);

/// The lives of this process.
#[derive(Debug, Default)]
struct Registration {
    /// Locked while a life is made, so that the process has only one.
    making: Mutex<()>,
    newest: AtomicPtr<Life>,
}

/// The life of this process: the registration that shows other processes whether it is alive.
///
/// The first call to one of the functions below makes it; the
/// [module](self#which-thread-holds-the-life) documents which thread holds it. A `Life` is never
/// freed, hence `&'static`.
///
/// # Examples
/// ```
/// use std::os::fd::AsFd;
/// use tontine::life::{Life, Watch};
///
/// let life = Life::register()?;
/// assert!(std::ptr::eq(life, Life::register()?), "a process has one");
///
/// // A process that is to watch this one needs a descriptor.
/// let passed = life.as_fd().try_clone_to_owned().expect("a free descriptor");
/// assert!(Watch::from_fd(passed)?.is_alive());
/// # Ok::<(), tontine::Error>(())
/// ```
#[derive(Debug)]
pub struct Life {
    page: LifePage,
    desks: Desks,
    guard: Guard,
}

impl Life {
    /// Returns this process's life, which lasts as long as the process. Makes the life if the
    /// process has none.
    ///
    /// - On the main thread, that thread holds the life, and no thread is started. If the main
    ///   thread later calls `pthread_exit` while other threads run, the life ends with it.
    ///   (Returning from `main` ends the process.)
    /// - On any other thread, as in a test or in an asynchronous runtime, this function behaves
    ///   like [`Life::register_anchor_thread`], because the calling thread may end before the
    ///   process.
    ///
    /// A program that calls this function first in `main` never has an anchor thread. Calling it is
    /// optional: [`Mailbox`](crate::mailbox::Mailbox) and [`Sender`](crate::mailbox::Sender) do so.
    ///
    /// A forked child has no life until it registers; `exec` ends the life.
    ///
    /// # Errors
    /// - [`Error::CannotRegister`] if the process was made without the C library, by a bare
    ///   `clone`: the kernel would never mark its end.
    /// - [`Error::System`] if memory, a descriptor or the anchor thread is not available (`EAGAIN`
    ///   at the limit of threads).
    /// - [`Error::FileTooLarge`] if the process's file size limit is below 4,096 bytes.
    ///
    /// # Examples
    /// ```
    /// use tontine::life::Life;
    ///
    /// fn main() -> tontine::Result<()> {
    ///     let life = Life::register()?; // on the main thread: starts no thread
    ///     assert!(Life::current().is_some_and(|current| std::ptr::eq(current, life)));
    ///     Ok(())
    /// }
    /// ```
    pub fn register() -> Result<&'static Self> {
        Self::held_by(|| {
            // Both ids are in the caller's PID namespace, so they can be compared.
            if rustix::thread::gettid() == rustix::process::getpid() {
                Self::begin()
            } else {
                anchor::hold(Self::begin)
            }
        })
    }

    /// Returns this process's life. If there is none, makes one that the calling thread holds and
    /// that ends with that *thread*. Use it for a thread whose end makes the whole process useless.
    ///
    /// # Errors
    /// [`Error::CannotRegister`], [`Error::System`] and [`Error::FileTooLarge`] like
    /// [`Life::register`], except that no thread is started, so the limit of threads cannot cause
    /// an error.
    ///
    /// # Examples
    /// ```
    /// let life = tontine::life::Life::register_thread()?; // ends with this thread
    /// # let _ = life;
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn register_thread() -> Result<&'static Self> {
        Self::held_by(Self::begin)
    }

    /// Returns this process's life. If there is none, starts a thread that holds a new life and
    /// does nothing else. That life lasts as long as the process, even if the main thread exits.
    ///
    /// The thread, `tontine-anchor`, costs one `clone` (about 0.1 ms, once) and 64 KiB of address
    /// space for its stack, of which it touches about two pages. It sleeps until the process ends,
    /// and all signals are blocked in it.
    ///
    /// # Errors
    /// [`Error::CannotRegister`], [`Error::System`] and [`Error::FileTooLarge`] like
    /// [`Life::register`] off the main thread.
    ///
    /// # Examples
    /// ```
    /// let life = tontine::life::Life::register_anchor_thread()?; // ends with the process
    /// # let _ = life;
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn register_anchor_thread() -> Result<&'static Self> {
        Self::held_by(|| anchor::hold(Self::begin))
    }

    /// Returns this process's life, or `None` if it has none: before it registers, in a forked
    /// child before the child registers, and after the thread that held the life has ended.
    pub fn current() -> Option<&'static Self> {
        REGISTRATION.peek()?.current()
    }

    fn held_by(begin: impl FnOnce() -> Result<Box<Self>>) -> Result<&'static Self> {
        let registration = REGISTRATION.get()?;
        if let Some(life) = registration.current() {
            return Ok(life);
        }
        // A panic while the lock is held leaves no partial change.
        let _making = registration.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(life) = registration.current() {
            return Ok(life);
        }
        // The page of a life must never be unmapped: the kernel accesses it at the thread's end.
        let life: &'static Self = Box::leak(begin()?);
        // SYNC own-life: pairs with the load in `Registration::current`.
        registration.newest.store(ptr::from_ref(life).cast_mut(), Ordering::Release);
        Ok(life)
    }

    /// Makes a life that the calling thread holds.
    fn begin() -> Result<Box<Self>> {
        let guard = Guard::here()?;
        Ok(Box::new(Self { page: LifePage::hold()?, desks: Desks::default(), guard }))
    }
}

/// Returns the descriptor that other processes need to watch this one, with [`Watch::from_fd`]:
/// pass it over a Unix socket, or let a child inherit it.
impl AsFd for Life {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.page.as_fd()
    }
}

/// Functions of this process's life that the mailbox uses.
impl Life {
    /// Returns one of the page's mailbox slots, which stays in use until it is dropped.
    ///
    /// # Errors
    /// [`Error::Full`] if all are in use; [`Error::Forked`] in a forked child.
    pub(crate) fn desk(&'static self) -> Result<MailboxSlot> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        MailboxSlot::take(self)
    }

    /// Returns `true` if this is the life of the process that forked this one.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.guard.is_forked()
    }
}

impl Registration {
    fn current(&self) -> Option<&'static Life> {
        // SYNC own-life: pairs with the store in `Life::held_by`.
        let newest = self.newest.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or points to a life that was leaked; `Life` may be shared
        // between threads.
        let life: &'static Life = unsafe { newest.as_ref() }?;
        life.page.is_held().then_some(life)
    }
}

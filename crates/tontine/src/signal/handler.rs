//! Signal handlers, for programs that must install one: [`SignalFlag`], [`SignalCounter`],
//! [`SelfPipe`].
//!
//! # What a handler may do
//! A handler runs in any thread that does not block its signal, between any two instructions.
//!
//! - It may call the functions of `signal-safety(7)`. In Rust these are loads and stores of
//!   atomics, `write` to a descriptor, `_exit`, `sem_post` and `kill`.
//! - It must not allocate or free, lock, print with `println!`, panic, or access a thread-local
//!   that is initialised on first use.
//! - When it returns, it must have restored `errno`.
//!
//! # The handlers of this module
//! The handlers do only what is allowed, and are installed with `SA_RESTART` and `SA_ONSTACK`. A
//! program may install several handlers for one signal. When the last of them is dropped, the
//! signal regains the disposition that it had before the first handler was installed.
//!
//! If another library has since installed its own handler, that handler stays, and it may call the
//! handler of this module that it replaced. Once this module no longer watches the signal, the
//! replaced handler acts like the disposition before the first handler: it calls the handler that
//! the program had then, or returns if the signal was ignored or had its default disposition.
//!
//! The memory that a handler refers to (some tens of bytes per handler) is never freed, because a
//! handler may still run during its removal.
//!
//! A forked child has the handlers that the forking thread had installed, and may install more.
//! Handlers that other threads of the parent had installed stay installed in the child. In the
//! child, a handler does not write to a [`SelfPipe`] of the parent.
//!
//! # Choosing between a handler and `Blocked`
//! A signal that every thread blocks never reaches its handler. Use either a handler or
//! [`Blocked`](super::Blocked) for each signal.

// Sources: `signal-safety(7)`, `sigaction(2)`, and D. J. Bernstein, *The self-pipe trick*.

#![allow(unsafe_code, reason = "installs signal handlers")]

mod installed;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::pipe::{PipeFlags, pipe_with};

use self::installed::{HandlerChanges, InstalledSite};
use super::Signal;
use super::error::SignalError;
use crate::sys::fork::Guard;

/// A signal handler that sets a flag. Dropping it removes the handler.
///
/// # Examples
/// ```
/// use tontine::signal::Signal;
/// use tontine::signal::handler::SignalFlag;
///
/// let reload = SignalFlag::install(Signal::HUP)?;
/// # unsafe { libc::raise(libc::SIGHUP) };
/// if reload.take() {
///     println!("the configuration is reloaded");
/// }
/// # assert!(!reload.take());
/// # Ok::<(), tontine::signal::SignalError>(())
/// ```
#[derive(Debug)]
pub struct SignalFlag(InstalledSite);

/// A signal handler that counts its runs. Dropping it removes the handler.
///
/// Coalesced signals are handled once, so they count once.
///
/// # Examples
/// ```
/// use tontine::signal::Signal;
/// use tontine::signal::handler::SignalCounter;
///
/// let count = SignalCounter::install(Signal::USR2)?;
/// # unsafe { libc::raise(libc::SIGUSR2) };
/// println!("{} times", count.get());
/// # assert_eq!(count.get(), 1);
/// # Ok::<(), tontine::signal::SignalError>(())
/// ```
#[derive(Debug)]
pub struct SignalCounter(InstalledSite);

/// A signal handler that makes a descriptor readable, for an event loop: the self-pipe trick.
/// Dropping it removes the handler.
///
/// The handler writes a byte to a nonblocking pipe. If the pipe is full, the descriptor is readable
/// already.
///
/// # Examples
/// ```
/// use rustix::event::{PollFd, PollFlags, poll};
/// use tontine::signal::Signal;
/// use tontine::signal::handler::SelfPipe;
///
/// let resized = SelfPipe::install(Signal::WINCH)?;
/// # unsafe { libc::raise(libc::SIGWINCH) };
/// # let timeout = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
/// # assert_eq!(poll(&mut [PollFd::new(&resized, PollFlags::IN)], Some(&timeout)), Ok(1));
/// if resized.take() {
///     println!("the terminal was resized");
/// }
/// # Ok::<(), tontine::signal::SignalError>(())
/// ```
#[derive(Debug)]
pub struct SelfPipe {
    // The handler is removed before the pipe is reused.
    installed: InstalledSite,
    pipe: &'static LeakedPipe,
}

impl SignalFlag {
    /// Installs the handler for `signal`.
    ///
    /// # Errors
    /// - [`SignalError::CannotTake`] for the signals that [`Blocked::new`](super::Blocked::new)
    ///   refuses.
    /// - [`SignalError::System`] if a system call fails.
    pub fn install(signal: Signal) -> Result<Self, SignalError> {
        InstalledSite::new(signal, None).map(Self)
    }

    /// Returns `true` if the signal has arrived since the flag was last cleared.
    ///
    /// # Examples
    /// ```
    /// use tontine::signal::Signal;
    /// use tontine::signal::handler::SignalFlag;
    ///
    /// let stop = SignalFlag::install(Signal::TERM)?;
    /// # unsafe { libc::raise(libc::SIGTERM) };
    /// while !stop.is_set() {
    ///     // one unit of work
    /// }
    /// # Ok::<(), tontine::signal::SignalError>(())
    /// ```
    pub fn is_set(&self) -> bool {
        // SYNC handler-flag: pairs with the handler's store. The sender's earlier stores are
        // visible through the kernel.
        self.0.site.came.load(Ordering::Acquire)
    }

    /// Returns `true` if the signal has arrived, and clears the flag. See [`SignalFlag`] for an
    /// example.
    pub fn take(&self) -> bool {
        // SYNC handler-flag: pairs with the handler's store.
        self.0.site.came.swap(false, Ordering::Acquire)
    }
}

impl SignalCounter {
    /// Installs the handler for `signal`.
    ///
    /// # Errors
    /// - [`SignalError::CannotTake`] for the signals that [`Blocked::new`](super::Blocked::new)
    ///   refuses.
    /// - [`SignalError::System`] if a system call fails.
    pub fn install(signal: Signal) -> Result<Self, SignalError> {
        InstalledSite::new(signal, None).map(Self)
    }

    /// Returns the number of times that the handler has run.
    pub fn get(&self) -> u64 {
        self.0.site.count.load(Ordering::Relaxed)
    }
}

impl SelfPipe {
    /// Installs the handler for `signal`.
    ///
    /// # Errors
    /// - [`SignalError::CannotTake`] for the signals that [`Blocked::new`](super::Blocked::new)
    ///   refuses.
    /// - [`SignalError::System`] if a system call fails, for example because the process has too
    ///   many descriptors.
    pub fn install(signal: Signal) -> Result<Self, SignalError> {
        let pipe = LeakedPipe::get()?;
        match InstalledSite::new(signal, Some(pipe)) {
            Ok(installed) => Ok(Self { installed, pipe }),
            Err(error) => {
                pipe.recycle();
                Err(error)
            }
        }
    }

    /// Returns `true` if the signal has arrived since the last call, and drains the pipe, so that
    /// the descriptor is not readable until the next signal.
    pub fn take(&self) -> bool {
        // The pipe is drained first because a byte drained after the flag was read could belong to
        // a signal that no call would report.
        self.pipe.drain();
        // SYNC handler-flag: pairs with the handler's store.
        self.installed.site.came.swap(false, Ordering::Acquire)
    }
}

/// Returns the descriptor, which is readable from the arrival of a signal until [`SelfPipe::take`].
impl AsFd for SelfPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.reader.as_fd()
    }
}

impl Drop for SelfPipe {
    fn drop(&mut self) {
        self.installed.remove();
        self.pipe.recycle();
    }
}

/// A pipe that is never closed, because a handler that began before its removal may still write to
/// it.
#[derive(Debug)]
struct LeakedPipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// A forked child has the same pipe and must not write to it: the parent would mistake the
    /// child's signals for its own.
    guard: Guard,
}

impl LeakedPipe {
    fn get() -> Result<&'static Self, SignalError> {
        if let Some(pipe) = HandlerChanges::lock()?.spare.pop() {
            pipe.drain();
            return Ok(pipe);
        }
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (reader, writer) =
            pipe_with(flags).map_err(|errno| SignalError::system("pipe2", errno.raw_os_error()))?;
        let guard = Guard::here().map_err(|error| SignalError::system("mmap", error.errno()))?;
        Ok(Box::leak(Box::new(Self { reader, writer, guard })))
    }

    /// Keeps the pipe for the next [`SelfPipe`]. A forked child does not reuse the parent's pipes.
    fn recycle(&'static self) {
        if !self.guard.is_forked()
            && let Ok(mut changes) = HandlerChanges::lock()
        {
            changes.spare.push(self);
        }
    }

    /// Writes a byte to the pipe, from a handler, so that the pipe becomes readable.
    fn fill(&self) {
        if !self.guard.is_forked() {
            // SAFETY: the descriptor is open, never closed, and nonblocking; the byte is a
            // constant. A full pipe is readable already.
            unsafe { libc::write(self.writer.as_raw_fd(), b"!".as_ptr().cast(), 1) };
        }
    }

    /// Empties the pipe. Reads at most the pipe's capacity, so that the loop ends even if handlers
    /// keep writing.
    fn drain(&self) {
        let mut bytes = [0; 4096];
        for _ in 0..16 {
            let read = rustix::io::retry_on_intr(|| rustix::io::read(&self.reader, &mut bytes));
            if !matches!(read, Ok(4096)) {
                break;
            }
        }
    }
}

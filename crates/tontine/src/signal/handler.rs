//! Handlers, for who must have one: [`Flag`], [`Counter`], [`Wake`].
//!
//! A handler runs at any moment, in any thread that does not block its signal, between any two
//! instructions. What it may call are the functions of `signal-safety(7)`, of which Rust has: loads
//! and stores of atomics; `write` to a descriptor; `_exit`; `sem_post`; `kill`. What it may not:
//! anything that allocates or frees, locks, prints by `println!`, panics, or touches a thread-local
//! that is made at its first use. `errno` must be the same when it returns as when it began.
//!
//! The three do only what is allowed. Their handlers have `SA_RESTART` and `SA_ONSTACK`. Several
//! may watch one signal; the disposition that was there comes back when the last of them is
//! dropped, unless another library has installed its handler meanwhile: that one stays. If it calls
//! the handler that it replaced, that one calls what was there before (`docs/signal.md` has the
//! details). What they refer to is never freed (some tens of bytes each), for a handler may still
//! be running when it is removed.
//!
//! A forked child has what the forking thread had, and may install more. What other threads of the
//! parent had installed stays installed in it. A [`Wake`] of the parent's is not written to.
//!
//! A signal that every thread blocks never gets to its handler: one program, one way for each
//! signal, this or [`Blocked`](super::Blocked).
//!
//! Source: seed 003 (what a handler may do); `signal-safety(7)`, `sigaction(2)`.

#![allow(unsafe_code, reason = "installs signal handlers")]

mod installed;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::pipe::{PipeFlags, pipe_with};

use self::installed::{Changes, Installed};
use super::Signal;
use super::error::{Error, Result};
use crate::sys::fork::Guard;

/// Stores `true` when its signal comes.
///
/// ```
/// use tontine::signal::Signal;
/// use tontine::signal::handler::Flag;
///
/// let reload = Flag::install(Signal::HUP)?;
/// # unsafe { libc::raise(libc::SIGHUP) };
/// if reload.take() {
///     println!("the configuration is read again");
/// }
/// # assert!(!reload.take());
/// # Ok::<(), tontine::signal::Error>(())
/// ```
#[derive(Debug)]
pub struct Flag(Installed);

/// Adds one when its signal comes. Signals that merged were handled once.
///
/// ```
/// use tontine::signal::Signal;
/// use tontine::signal::handler::Counter;
///
/// let count = Counter::install(Signal::USR2)?;
/// # unsafe { libc::raise(libc::SIGUSR2) };
/// println!("{} times", count.get());
/// # assert_eq!(count.get(), 1);
/// # Ok::<(), tontine::signal::Error>(())
/// ```
#[derive(Debug)]
pub struct Counter(Installed);

/// Makes a descriptor readable when its signal comes: writes a byte to a pipe, without waiting. A
/// pipe that is full is readable already.
///
/// ```
/// use rustix::event::{PollFd, PollFlags, poll};
/// use tontine::signal::Signal;
/// use tontine::signal::handler::Wake;
///
/// let wake = Wake::install(Signal::WINCH)?;
/// # unsafe { libc::raise(libc::SIGWINCH) };
/// # let timeout = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
/// # assert_eq!(poll(&mut [PollFd::new(&wake, PollFlags::IN)], Some(&timeout)), Ok(1));
/// if wake.take() {
///     println!("the terminal has another size");
/// }
/// # Ok::<(), tontine::signal::Error>(())
/// ```
#[derive(Debug)]
pub struct Wake {
    // Taken away before its pipe is given to another one.
    installed: Installed,
    pipe: &'static Pipe,
}

impl Flag {
    /// Watches the signal.
    ///
    /// # Errors
    /// [`Error::CannotTake`], as for [`Blocked::new`](super::Blocked::new); [`Error::System`].
    pub fn install(signal: Signal) -> Result<Self> {
        Installed::new(signal, None).map(Self)
    }

    /// Whether the signal has come.
    pub fn is_set(&self) -> bool {
        // SYNC handler-flag: pairs with the handler's store; what the sender did before it sent is
        // seen by way of the kernel.
        self.0.site.came.load(Ordering::Acquire)
    }

    /// The same, and sets it back.
    pub fn take(&self) -> bool {
        // SYNC handler-flag: pairs with the handler's store.
        self.0.site.came.swap(false, Ordering::Acquire)
    }
}

impl Counter {
    /// Watches the signal.
    ///
    /// # Errors
    /// As [`Flag::install`].
    pub fn install(signal: Signal) -> Result<Self> {
        Installed::new(signal, None).map(Self)
    }

    /// How often it was handled.
    pub fn get(&self) -> u64 {
        self.0.site.count.load(Ordering::Relaxed)
    }
}

impl Wake {
    /// Watches the signal.
    ///
    /// # Errors
    /// As [`Flag::install`].
    pub fn install(signal: Signal) -> Result<Self> {
        let pipe = Pipe::get()?;
        match Installed::new(signal, Some(pipe)) {
            Ok(installed) => Ok(Self { installed, pipe }),
            Err(error) => {
                pipe.give_back();
                Err(error)
            }
        }
    }

    /// Whether the signal has come; the descriptor is not readable any more then.
    pub fn take(&self) -> bool {
        // In this order: a byte taken after the look would be one whose signal nobody saw.
        self.pipe.drain();
        // SYNC handler-flag: pairs with the handler's store.
        self.installed.site.came.swap(false, Ordering::Acquire)
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.reader.as_fd()
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.installed.remove();
        self.pipe.give_back();
    }
}

/// A pipe that is never closed: a handler that began before it was taken away may still write.
#[derive(Debug)]
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// A forked child has the same pipe; its signals are none of the parent's.
    guard: Guard,
}

impl Pipe {
    fn get() -> Result<&'static Self> {
        if let Some(pipe) = Changes::lock()?.spare.pop() {
            pipe.drain();
            return Ok(pipe);
        }
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (reader, writer) = pipe_with(flags).map_err(|errno| Error::system("pipe2", errno))?;
        let guard = Guard::here().map_err(|error| {
            Error::system("mmap", rustix::io::Errno::from_raw_os_error(error.errno()))
        })?;
        Ok(Box::leak(Box::new(Self { reader, writer, guard })))
    }

    /// Keeps it for the next user; one of the parent's is left to the parent.
    fn give_back(&'static self) {
        if !self.guard.is_forked()
            && let Ok(mut changes) = Changes::lock()
        {
            changes.spare.push(self);
        }
    }

    /// Makes it readable, from a handler.
    fn fill(&self) {
        if !self.guard.is_forked() {
            // SAFETY: an open descriptor, never closed, that does not wait; a byte of ours. A full
            // pipe is readable already.
            unsafe { libc::write(self.writer.as_raw_fd(), b"!".as_ptr().cast(), 1) };
        }
    }

    /// Takes what is in it: at most as much as fits, so that one that is being filled has an end.
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

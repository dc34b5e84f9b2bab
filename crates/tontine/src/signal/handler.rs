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
//! dropped. What they refer to lives for ever (some tens of bytes each), for a handler may still be
//! running when it is taken away.
//!
//! A signal that every thread blocks never gets to its handler: one program, one way for each
//! signal, this or [`Blocked`](super::Blocked).
//!
//! Source: seed 003 (what a handler may do); `signal-safety(7)`, `sigaction(2)`.

#![allow(unsafe_code, reason = "installs signal handlers")]

use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::pipe::{PipeFlags, pipe_with};

use super::Signal;
use super::error::{Error, Result};
use super::number::MOST;
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

/// Pipes that nobody uses.
static SPARE: Mutex<Vec<&'static Pipe>> = Mutex::new(Vec::new());

impl Pipe {
    fn get() -> Result<&'static Self> {
        let spare = || SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        while let Some(pipe) = spare() {
            if !pipe.guard.is_forked() {
                pipe.drain();
                return Ok(pipe);
            }
        }
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (reader, writer) = pipe_with(flags).map_err(|errno| Error::system("pipe2", errno))?;
        let guard = Guard::here().map_err(|error| {
            Error::system("mmap", rustix::io::Errno::from_raw_os_error(error.errno()))
        })?;
        Ok(Box::leak(Box::new(Self { reader, writer, guard })))
    }

    fn give_back(&'static self) {
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(self);
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

/// What a handler writes to. Never freed; unlinked, it still leads on to the rest of its list.
#[derive(Debug)]
struct Site {
    came: AtomicBool,
    count: AtomicU64,
    pipe: Option<&'static Pipe>,
    next: AtomicPtr<Site>,
}

/// The sites of each signal, newest first.
static SITES: [AtomicPtr<Site>; MOST as usize + 1] =
    [const { AtomicPtr::new(null_mut()) }; MOST as usize + 1];

/// Who changes the lists; and the disposition that was there before the first site of each signal.
static BEFORE: Mutex<[Option<libc::sigaction>; MOST as usize + 1]> =
    Mutex::new([const { None }; MOST as usize + 1]);

/// A site in its list.
#[derive(Debug)]
struct Installed {
    signal: Signal,
    site: &'static Site,
    removed: bool,
}

impl Installed {
    fn new(signal: Signal, pipe: Option<&'static Pipe>) -> Result<Self> {
        if let Some(why) = signal.refusal() {
            return Err(Error::CannotTake { signal, why });
        }
        let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
        let head = &SITES[signal.as_raw() as usize];
        let first = head.load(Ordering::Relaxed);
        let site: &'static Site = Box::leak(Box::new(Site {
            came: AtomicBool::new(false),
            count: AtomicU64::new(0),
            pipe,
            next: AtomicPtr::new(first),
        }));
        // SYNC handler-sites: pairs with the handler's walk along the list.
        head.store(std::ptr::from_ref(site).cast_mut(), Ordering::Release);
        let was = &mut before[signal.as_raw() as usize];
        if was.is_none() {
            match install(signal) {
                Ok(action) => *was = Some(action),
                Err(error) => {
                    head.store(first, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(Self { signal, site, removed: false })
    }

    fn remove(&mut self) {
        if std::mem::replace(&mut self.removed, true) {
            return;
        }
        let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.signal.as_raw() as usize;
        let next = self.site.next.load(Ordering::Relaxed);
        let mut link = &SITES[number];
        loop {
            let to = link.load(Ordering::Relaxed);
            if std::ptr::eq(to, self.site) {
                // SYNC handler-sites: pairs with the handler's walk along the list.
                link.store(next, Ordering::Release);
                break;
            }
            // SAFETY: null, or a site of the list, which is never freed.
            match unsafe { to.as_ref() } {
                Some(site) => link = &site.next,
                None => break,
            }
        }
        if SITES[number].load(Ordering::Relaxed).is_null()
            && let Some(action) = before[number].take()
        {
            // SAFETY: what the kernel said the disposition was.
            unsafe { libc::sigaction(self.signal.as_raw(), &action, null_mut()) };
        }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Installs the handler; what there was before.
fn install(signal: Signal) -> Result<libc::sigaction> {
    // SAFETY: zero is a valid action, which is filled in; the handler lives as long as the program
    // and does only what is allowed in one.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        let mut before: libc::sigaction = zeroed();
        if libc::sigaction(signal.as_raw(), &action, &mut before) != 0 {
            return Err(Error::last("sigaction"));
        }
        Ok(before)
    }
}

/// The handler: loads and stores of atomics, and `write`.
extern "C" fn on_signal(number: libc::c_int) {
    // SAFETY: the location is this thread's, always.
    let errno = unsafe { *libc::__errno_location() };
    // SYNC handler-sites: pairs with who adds a site or takes one away.
    let mut next = match SITES.get(number as usize) {
        Some(first) => first.load(Ordering::Acquire),
        None => null_mut(),
    };
    // SAFETY: null, or a site of the list, which is never freed.
    while let Some(site) = unsafe { next.as_ref() } {
        // SYNC handler-flag: pairs with who looks.
        site.came.store(true, Ordering::Release);
        site.count.fetch_add(1, Ordering::Relaxed);
        if let Some(pipe) = site.pipe
            && !pipe.guard.is_forked()
        {
            // SAFETY: an open descriptor, never closed, that does not wait; a byte of ours. Where
            // the pipe is full it is readable, and nothing is owed.
            unsafe { libc::write(pipe.writer.as_raw_fd(), b"!".as_ptr().cast(), 1) };
        }
        // SYNC handler-sites: pairs with who takes a site away.
        next = site.next.load(Ordering::Acquire);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

//! The checks for whether a process is alive, from the monitor's side: [`Check`].
//!
//! A check is a small type whose [`Check::look`] is the whole check, so that the timed loops of
//! [`super::timing`] and the queue of [`crate::queue_with_check`] compile it in place.
//! [`with_check!`](crate::with_check) turns a variant's name into the type.
//!
//! Checks that wait for a hang-up are in `waits`; the thread that polls procfs is in `polling`; all
//! other checks are in this file.
//!
//! Neighbours: [`super::monitored`] starts the monitored process, [`super::word`] defines the words
//! that some checks read.

#![allow(unsafe_code, reason = "system calls that take a bare signal number, and empty assembly")]

mod polling;
#[cfg(test)]
pub mod refused;
mod waits;

use std::arch::asm;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Access, AtFlags, accessat};
use rustix::io::Errno;

use tontine::life::Watch;

use super::monitored::{Means, Monitored};
use super::word::{FUTEX_TID_MASK, MonitorPage, is_held};
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_mechanisms::mailbox;

pub use polling::{POLLING_PERIOD, PollingThread};
pub use waits::{Epoll, Poll, Select};

/// A liveness check.
pub trait Check {
    /// The name of the call that a check makes, for the error if the system refuses the call.
    const CALL: &'static str = "a memory access";

    /// Returns `true` if the process is alive, `false` if the mechanism reports that it is not.
    ///
    /// # Errors
    /// Returns any error of the system call that means neither alive nor dead.
    fn look(&self) -> std::result::Result<bool, Errno>;

    /// Waits until the check reflects all earlier events.
    ///
    /// # Errors
    /// Returns `Failed` if that takes more than a few seconds.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Checks once before the first timed check, while the process is known to be alive.
    ///
    /// # Errors
    /// Returns `Skipped`, naming the call, if the system refuses it, as a seccomp filter does.
    fn probe(&self) -> Result<()> {
        self.look().setting_up(Self::CALL).map(|_| ())
    }
}

/// Returns how the process must register for a variant, or `None` for an unknown name.
pub fn means_of(variant: &str) -> Option<Means> {
    super::ways::find(variant).map(|way| way.means)
}

/// Evaluates an expression with the check of a variant, created for a monitored process:
/// `with_check!(variant, &monitored, |check| expression)`. The expression is compiled once per type
/// and must be a [`Result`].
#[macro_export]
#[doc(hidden)]
macro_rules! with_check {
    ($variant:expr, $monitored:expr, |$check:ident| $body:expr) => {{
        use $crate::liveness_check::check as ways;
        let monitored: &$crate::liveness_check::monitored::Monitored = $monitored;
        macro_rules! with {
            ($made:expr) => {{
                let $check = $made;
                $body
            }};
        }
        match $variant {
            "dummy" => with!(ways::NoCheck),
            "load" => with!(ways::BareLoad(&monitored.page().plain)),
            "futex-word" => with!(ways::MarkedWord(monitored.page().lock_word())),
            "life-word" => with!(ways::LifeWord::of(monitored)?),
            "own-robust-list" => with!(ways::MarkedWord(monitored.page().own_word())),
            "lock-cmpxchg" => with!(ways::CompareExchange::new(monitored.page().lock_word())),
            "mutex-trylock" => with!(ways::TryLock::new(monitored.page())),
            "epoll-empty" => with!(ways::Epoll::of_nothing()?),
            "epoll-socket" => with!(ways::Epoll::of(monitored.line())?),
            "poll-socket" => with!(ways::Poll(monitored.line())),
            "select-socket" => with!(ways::Select::of(monitored.line())?),
            "kill-0" => with!(ways::Kill(monitored.own_pid())),
            "pidfd-signal-0" => with!(ways::PidfdSignal::to(monitored)?),
            "procfs-faccessat" => with!(ways::Procfs::of(monitored)?),
            "polling-thread" => with!(ways::PollingThread::of(monitored)?),
            other => {
                Err(tontine_host::error::MeasureError::fail(format!("no such variant: {other}")))
            }
        }
    }};
}

/// The empty check.
pub struct NoCheck;

impl Check for NoCheck {
    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        Ok(true)
    }
}

/// A single load, whose value is not used.
pub struct BareLoad<'a>(pub &'a AtomicU32);

impl Check for BareLoad<'_> {
    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        // The empty assembly uses the value, in a register, so that the compiler keeps the load.
        used(self.0.load(Ordering::Relaxed));
        Ok(true)
    }
}

/// A word that the kernel marks.
pub struct MarkedWord<'a>(pub &'a AtomicU32);

impl Check for MarkedWord<'_> {
    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        Ok(is_held(self.0))
    }
}

/// The life that a process passed, watched by the library's [`Watch`].
pub struct LifeWord(Watch);

impl LifeWord {
    /// Maps the life that the process passed.
    ///
    /// # Errors
    /// Returns `Failed` if the process passed no descriptor, and `Skipped` if the life cannot be
    /// mapped.
    pub fn of(monitored: &Monitored) -> Result<Self> {
        Watch::from_fd(passed(monitored)?).map(Self).map_err(mailbox::refused)
    }
}

impl Check for LifeWord {
    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        Ok(self.0.is_alive())
    }
}

/// The bare atomic instruction of `pthread_mutex_trylock`.
pub struct CompareExchange<'a> {
    word: &'a AtomicU32,
    mine: u32,
}

impl<'a> CompareExchange<'a> {
    /// Creates a check of a lock word.
    pub fn new(word: &'a AtomicU32) -> Self {
        let mine = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        Self { word, mine }
    }
}

impl Check for CompareExchange<'_> {
    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        // Relaxed is enough: this lock guards no data; on x86 the instruction is the same.
        let seen = self.word.compare_exchange(0, self.mine, Ordering::Relaxed, Ordering::Relaxed);
        Ok(matches!(seen, Err(word) if word & FUTEX_TID_MASK != 0))
    }
}

/// `pthread_mutex_trylock`, as the source describes it. After a success the mutex stays locked.
pub struct TryLock<'a>(&'a MonitorPage);

impl<'a> TryLock<'a> {
    /// Creates a check of a page's mutex.
    pub fn new(page: &'a MonitorPage) -> Self {
        Self(page)
    }
}

impl Check for TryLock<'_> {
    const CALL: &'static str = "pthread_mutex_trylock";

    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        match self.0.try_lock() {
            libc::EBUSY => Ok(true),
            0 | libc::EOWNERDEAD | libc::ENOTRECOVERABLE => Ok(false),
            error => Err(Errno::from_raw_os_error(error)),
        }
    }
}

/// `kill(pid, 0)`, with the process id that the process itself reported.
pub struct Kill(pub i32);

impl Check for Kill {
    const CALL: &'static str = "kill";

    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        // SAFETY: signal 0 is never delivered.
        gone_is_no(i64::from(unsafe { libc::kill(self.0, 0) }))
    }
}

/// `pidfd_send_signal` of signal 0.
pub struct PidfdSignal(RawFd);

impl PidfdSignal {
    /// Creates a check with the descriptor that the monitored process passed.
    ///
    /// # Errors
    /// Returns `Failed` if the process passed no descriptor.
    pub fn to(monitored: &Monitored) -> Result<Self> {
        Ok(Self(passed(monitored)?.as_raw_fd()))
    }
}

impl Check for PidfdSignal {
    const CALL: &'static str = "pidfd_send_signal";

    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: signal 0 is never delivered; a null siginfo is allowed.
        gone_is_no(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0, 0, no_info, 0) })
    }
}

/// `faccessat` of `stat` in the process's own directory.
pub struct Procfs<'a>(BorrowedFd<'a>);

impl<'a> Procfs<'a> {
    /// Creates a check with the descriptor that the monitored process passed.
    ///
    /// # Errors
    /// Returns `Failed` if the process passed no descriptor.
    pub fn of(monitored: &'a Monitored) -> Result<Self> {
        passed(monitored).map(Self)
    }
}

impl Check for Procfs<'_> {
    const CALL: &'static str = "faccessat";

    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        match accessat(self.0, c"stat", Access::READ_OK, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::SRCH) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn passed(monitored: &Monitored) -> Result<BorrowedFd<'_>> {
    monitored
        .passed()
        .ok_or_else(|| MeasureError::fail("the monitored process passed no descriptor"))
}

#[inline(always)]
fn gone_is_no(returned: i64) -> std::result::Result<bool, Errno> {
    if returned == 0 {
        return Ok(true);
    }
    match last_errno() {
        Errno::SRCH => Ok(false),
        error => Err(error),
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Marks a value in a register as used, at no cost.
#[inline(always)]
pub fn used(value: u32) {
    // SAFETY: the assembly contains no instruction.
    unsafe {
        asm!("/* {0} */", in(reg) u64::from(value), options(nomem, nostack, preserves_flags))
    };
}

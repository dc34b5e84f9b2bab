//! The checks for whether a process is alive, from the monitor's side: [`Check`].
//!
//! A check is a small type whose [`Check::look`] is the whole check, so that the timed loops
//! compile it in place. [`with_check!`](crate::with_check) turns a method's name into the type.

#![allow(unsafe_code, reason = "system calls as a C program makes them, and empty assembly")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use std::arch::asm;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread::{self, JoinHandle};

use rustix::event::epoll;
use rustix::fs::{Access, AtFlags, accessat};
use tontine::life::Watch;
use tontine_mechanisms::mailbox;

use super::methods;
use super::monitored::{Means, Monitored};
use super::word::{FUTEX_TID_MASK, MonitorPage, is_held};
use crate::prelude::*;

/// `true` if the process is alive, `false` if the mechanism reports that it is not, or an error
/// that means neither.
pub(crate) type CheckStatus = std::result::Result<bool, Errno>;

pub(crate) trait Check {
    fn look(&self) -> CheckStatus;

    /// Returns the name of the call that a check makes, for the error if the system refuses it.
    fn call(&self) -> &'static str {
        "a memory access"
    }

    /// Waits until the check reflects all earlier events.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Checks once before the first timed check, while the process is known to be alive. Skips,
    /// naming the call, if the system refuses it, as a seccomp filter does.
    fn probe(&self) -> Result<()> {
        self.look().setting_up(self.call()).map(|_| ())
    }
}

pub(crate) fn means_of(name: &str) -> Option<Means> {
    methods::find(name).map(|method| method.means)
}

/// Evaluates an expression with the check of a method, created for a monitored process:
/// `with_check!(name, &monitored, |check| expression)`. The expression is compiled once per type
/// and must be a [`Result`].
#[macro_export]
#[doc(hidden)]
macro_rules! with_check {
    ($name:expr, $monitored:expr, |$check:ident| $body:expr) => {{
        use $crate::liveness_check::check as checks;
        let monitored: &$crate::liveness_check::monitored::Monitored = $monitored;
        macro_rules! with {
            ($made:expr) => {{
                let $check = $made;
                $body
            }};
        }
        match $name {
            "dummy" => with!(checks::NoCheck),
            "load" => with!(checks::BareLoad(&monitored.page().plain)),
            "futex-word" => with!(checks::MarkedWord(monitored.page().lock_word())),
            "life-word" => with!(checks::LifeWord::of(monitored)?),
            "own-robust-list" => with!(checks::MarkedWord(monitored.page().own_word())),
            "lock-cmpxchg" => with!(checks::CompareExchange::new(monitored.page().lock_word())),
            "mutex-trylock" => with!(checks::try_lock(monitored.page())),
            "epoll-empty" => with!(checks::epoll(None)?),
            "epoll-socket" => with!(checks::epoll(Some(monitored.line()))?),
            "poll-socket" => with!(checks::poll(monitored.line())),
            "select-socket" => with!(checks::select(monitored.line())?),
            "kill-0" => with!(checks::kill(monitored.own_pid())),
            "pidfd-signal-0" => with!(checks::pidfd_signal(monitored.passed()?)),
            "procfs-faccessat" => with!(checks::procfs(monitored.passed()?)),
            "polling-thread" => with!(checks::PollingThread::of(monitored)?),
            other => {
                Err(tontine_bench::error::MeasureError::fail(format!("no such variant: {other}")))
            }
        }
    }};
}

pub(crate) struct NoCheck;

impl Check for NoCheck {
    #[inline(always)]
    fn look(&self) -> CheckStatus {
        Ok(true)
    }
}

/// A single load, whose value is not used.
pub(crate) struct BareLoad<'a>(pub(crate) &'a AtomicU32);

impl Check for BareLoad<'_> {
    #[inline(always)]
    fn look(&self) -> CheckStatus {
        let value = u64::from(self.0.load(Ordering::Relaxed));
        // The value counts as used, in a register, so that the compiler keeps the load. SAFETY: the
        // assembly contains no instruction.
        unsafe { asm!("/* {0} */", in(reg) value, options(nomem, nostack, preserves_flags)) };
        Ok(true)
    }
}

/// A word that the kernel marks.
pub(crate) struct MarkedWord<'a>(pub(crate) &'a AtomicU32);

impl Check for MarkedWord<'_> {
    #[inline(always)]
    fn look(&self) -> CheckStatus {
        Ok(is_held(self.0))
    }
}

/// The life that a process passed, watched by the library's [`Watch`].
pub(crate) struct LifeWord(Watch);

impl LifeWord {
    pub(crate) fn of(monitored: &Monitored) -> Result<Self> {
        Watch::from_fd(monitored.passed()?).map(Self).map_err(mailbox::refused)
    }
}

impl Check for LifeWord {
    #[inline(always)]
    fn look(&self) -> CheckStatus {
        Ok(self.0.is_alive())
    }
}

/// The bare atomic instruction of `pthread_mutex_trylock`.
pub(crate) struct CompareExchange<'a> {
    word: &'a AtomicU32,
    own: u32,
}

impl<'a> CompareExchange<'a> {
    pub(crate) fn new(word: &'a AtomicU32) -> Self {
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        Self { word, own }
    }
}

impl Check for CompareExchange<'_> {
    #[inline(always)]
    fn look(&self) -> CheckStatus {
        // Relaxed is enough: this lock guards no data; on x86 the instruction is the same.
        let seen = self.word.compare_exchange(0, self.own, Ordering::Relaxed, Ordering::Relaxed);
        Ok(matches!(seen, Err(word) if word & FUTEX_TID_MASK != 0))
    }
}

pub(crate) struct CallCheck<F>(&'static str, F);

impl<F: Fn() -> CheckStatus> Check for CallCheck<F> {
    #[inline(always)]
    fn look(&self) -> CheckStatus {
        (self.1)()
    }

    fn call(&self) -> &'static str {
        self.0
    }
}

/// `pthread_mutex_trylock`, as the source describes it. After a success the mutex stays locked.
pub(crate) fn try_lock(page: &MonitorPage) -> impl Check {
    CallCheck("pthread_mutex_trylock", || match page.try_lock() {
        libc::EBUSY => Ok(true),
        0 | libc::EOWNERDEAD | libc::ENOTRECOVERABLE => Ok(false),
        error => Err(Errno::from_raw_os_error(error)),
    })
}

/// `kill(pid, 0)`, with the process id that the process itself reported.
pub(crate) fn kill(pid: i32) -> impl Check {
    // SAFETY: signal 0 is never delivered.
    CallCheck("kill", move || alive_unless_gone(i64::from(unsafe { libc::kill(pid, 0) })))
}

pub(crate) fn pidfd_signal(pidfd: BorrowedFd<'_>) -> impl Check {
    CallCheck("pidfd_send_signal", move || {
        let (pidfd, no_info) = (pidfd.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: signal 0 is never delivered; a null siginfo is allowed.
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd, 0, no_info, 0) };
        alive_unless_gone(sent)
    })
}

/// `faccessat` of `stat` in the process's own directory.
pub(crate) fn procfs(directory: BorrowedFd<'_>) -> impl Check {
    CallCheck("faccessat", move || {
        match accessat(directory, c"stat", Access::READ_OK, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::SRCH) => Ok(false),
            Err(error) => Err(error),
        }
    })
}

#[inline(always)]
fn alive_unless_gone(returned: i64) -> CheckStatus {
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

/// An `epoll_wait` that returns immediately, for the hang-up of a connection. Without a connection
/// it shows the cost of the call and checks nothing.
pub(crate) fn epoll(line: Option<BorrowedFd<'_>>) -> Result<impl Check> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).setting_up("epoll_create1")?;
    if let Some(line) = line {
        let (data, hang_up) = (epoll::EventData::new_u64(0), epoll::EventFlags::RDHUP);
        epoll::add(&set, line, data, hang_up).setting_up("epoll_ctl")?;
    }
    Ok(CallCheck("epoll_wait", move || {
        let mut event = MaybeUninit::<libc::epoll_event>::uninit();
        // rustix's function is not used: it calls epoll_pwait2, which also reads the clock and
        // costs half as much again. SAFETY: the buffer has space for the one requested event.
        alive_if_not_ready(unsafe { libc::epoll_wait(set.as_raw_fd(), event.as_mut_ptr(), 1, 0) })
    }))
}

pub(crate) fn poll(line: BorrowedFd<'_>) -> impl Check {
    CallCheck("poll", move || {
        let mut line = libc::pollfd { fd: line.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // rustix's function is not used, because it calls ppoll.
        // SAFETY: the call passes one descriptor and a buffer of one entry.
        alive_if_not_ready(unsafe { libc::poll(&mut line, 1, 0) })
    })
}

/// `select` on the connection: readable means hung up, because the monitored process sends nothing.
/// Skips if the descriptor's number exceeds what `select` supports.
pub(crate) fn select(line: BorrowedFd<'_>) -> Result<impl Check> {
    let (fd, end) = (line.as_raw_fd(), libc::FD_SETSIZE);
    if fd as usize >= end {
        skip!("select: descriptor {fd} is beyond FD_SETSIZE ({end})");
    }
    Ok(CallCheck("select", move || {
        let mut readable = MaybeUninit::<libc::fd_set>::uninit();
        let mut at_once = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: FD_ZERO initialises the set; the descriptor is below FD_SETSIZE; null sets are
        // allowed.
        let ready = unsafe {
            libc::FD_ZERO(readable.as_mut_ptr());
            libc::FD_SET(fd, readable.as_mut_ptr());
            let none = std::ptr::null_mut();
            libc::select(fd + 1, readable.as_mut_ptr(), none, none, &mut at_once)
        };
        alive_if_not_ready(ready)
    }))
}

/// Interprets a wait that returned immediately: if nothing is ready, the peer has not hung up.
fn alive_if_not_ready(ready: i32) -> CheckStatus {
    if ready < 0 { Err(last_errno()) } else { Ok(ready == 0) }
}

pub(crate) const POLLING_PERIOD: Duration = Duration::from_millis(1);

/// A flag published by a thread that checks procfs every [`POLLING_PERIOD`].
pub(crate) struct PollingThread {
    shared: Arc<PublishedStatus>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct PublishedStatus {
    alive: AtomicBool,
    checks: AtomicU64,
    stop: AtomicBool,
}

impl PollingThread {
    /// Starts the thread. Returns after the thread's first check.
    pub(crate) fn of(monitored: &Monitored) -> Result<Self> {
        let directory = monitored.passed()?.try_clone_to_owned().setting_up("dup")?;
        // The call is probed here, because the thread only publishes "not alive", whatever the
        // reason.
        procfs(directory.as_fd()).probe()?;
        let shared = Arc::new(PublishedStatus::default());
        let publish = Arc::clone(&shared);
        let poll = move || {
            while !publish.stop.load(Ordering::Relaxed) {
                let alive = procfs(directory.as_fd()).look().unwrap_or(false);
                publish.alive.store(alive, Ordering::Relaxed);
                publish.checks.fetch_add(1, Ordering::Relaxed);
                thread::park_timeout(POLLING_PERIOD);
            }
        };
        let thread = thread::Builder::new().spawn(poll);
        let thread = Some(thread.setting_up("clone of the polling thread")?);
        let this = Self { shared, thread };
        this.until_checked(1)?;
        Ok(this)
    }

    fn until_checked(&self, times: u64) -> Result<()> {
        let enough = self.shared.checks.load(Ordering::Relaxed) + times;
        let checked = poll_for(Duration::from_secs(5), POLLING_PERIOD, || {
            Ok(self.shared.checks.load(Ordering::Relaxed) >= enough)
        })?;
        ensure!(checked, "the polling thread did not check within five seconds");
        Ok(())
    }
}

impl Check for PollingThread {
    #[inline(always)]
    fn look(&self) -> CheckStatus {
        Ok(self.shared.alive.load(Ordering::Relaxed))
    }

    fn settle(&self) -> Result<()> {
        // One check may have begun before the event, so only the second check counts.
        self.until_checked(2)
    }
}

impl Drop for PollingThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

//! The ways of asking whether a process is alive, from the monitor's side: [`Check`].
//!
//! Each is a small type whose [`Check::look`] is the whole check, so that the timed loops of
//! [`super::timing`] and the queue of [`crate::experiment::queue_with_check`] compile it in place.
//! [`with_check!`](crate::with_check) turns a variant's name into the type.
//!
//! Neighbours: [`super::monitored`] is the process that they watch, [`super::word`] the words that
//! some of them read.

#![allow(unsafe_code, reason = "system calls that take a bare signal number or an fd_set")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::epoll;
use rustix::fs::{Access, AtFlags, accessat};
use rustix::io::Errno;

use tontine::life::Watch;

use super::monitored::{Means, Monitored};
use super::word::{FUTEX_TID_MASK, Page, is_held};
use crate::mechanism::mailbox;
use crate::trouble::{During, Result, Trouble};

/// How often the polling thread looks.
pub const POLLING_PERIOD: Duration = Duration::from_millis(1);

/// One way of asking.
pub trait Check {
    /// The call that a look makes, for whoever is told that it was refused.
    const CALL: &'static str = "a look at memory";

    /// Whether the process is alive, or the error that the mechanism gave instead of an answer.
    ///
    /// # Errors
    /// Whatever the system call says that is neither yes nor no.
    fn look(&self) -> std::result::Result<bool, Errno>;

    /// Returns when an answer given from now on knows of all that has already happened.
    ///
    /// # Errors
    /// Failed, where that takes unreasonably long.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Looks once, at a process that is known to live, before it counts.
    ///
    /// # Errors
    /// Skipped, naming the call, where the system refuses it, as a seccomp filter does.
    fn probe(&self) -> Result<()> {
        self.look().setting_up(Self::CALL).map(|_| ())
    }
}

/// How the process must register for a variant; `None` for an unknown name.
pub fn means_of(variant: &str) -> Option<Means> {
    super::ways::find(variant).map(|way| way.means)
}

/// Evaluates an expression with the check of a variant, made for a monitored process:
/// `with_check!(variant, &monitored, |check| expression)`. The expression is compiled once a type
/// and must be a [`Result`].
#[macro_export]
#[doc(hidden)]
macro_rules! with_check {
    ($variant:expr, $monitored:expr, |$check:ident| $body:expr) => {{
        use $crate::experiment::liveness_check::check as ways;
        let monitored: &$crate::experiment::liveness_check::monitored::Monitored = $monitored;
        macro_rules! with {
            ($made:expr) => {{
                let $check = $made;
                $body
            }};
        }
        match $variant {
            "dummy" => with!(ways::Nothing),
            "load" => with!(ways::Load(&monitored.page().plain)),
            "futex-word" => with!(ways::Word(monitored.page().lock_word())),
            "life-word" => with!(ways::LifeWord::of(monitored)?),
            "own-robust-list" => with!(ways::Word(monitored.page().own_word())),
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
            other => Err($crate::trouble::Trouble::fail(format!("no such variant: {other}"))),
        }
    }};
}

/// No check at all.
pub struct Nothing;

impl Check for Nothing {
    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        Ok(true)
    }
}

/// One load, not looked at.
pub struct Load<'a>(pub &'a AtomicU32);

impl Check for Load<'_> {
    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        // The empty instruction "uses" the value, in a register, so that the load stays.
        crate::experiment::liveness_check::timing::used(self.0.load(Ordering::Relaxed));
        Ok(true)
    }
}

/// A word that the kernel marks.
pub struct Word<'a>(pub &'a AtomicU32);

impl Check for Word<'_> {
    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        Ok(is_held(self.0))
    }
}

/// The life that a process passed, watched as the library does.
pub struct LifeWord(Watch);

impl LifeWord {
    /// Maps the life.
    ///
    /// # Errors
    /// Failed, where none was passed; skipped, where it cannot be mapped.
    pub fn of(monitored: &Monitored) -> Result<Self> {
        Watch::from_descriptor(passed(monitored)?).map(Self).map_err(mailbox::refused)
    }
}

impl Check for LifeWord {
    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        Ok(self.0.is_alive())
    }
}

/// The instruction inside `pthread_mutex_trylock`, alone.
pub struct CompareExchange<'a> {
    word: &'a AtomicU32,
    mine: u32,
}

impl<'a> CompareExchange<'a> {
    /// Of that lock word.
    pub fn new(word: &'a AtomicU32) -> Self {
        let mine = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        Self { word, mine }
    }
}

impl Check for CompareExchange<'_> {
    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        // Relaxed: nothing is read under this lock; on x86 the instruction is the same.
        let seen = self.word.compare_exchange(0, self.mine, Ordering::Relaxed, Ordering::Relaxed);
        Ok(matches!(seen, Err(word) if word & FUTEX_TID_MASK != 0))
    }
}

/// `pthread_mutex_trylock`, as the seed describes it: a success is not undone.
pub struct TryLock<'a>(&'a Page);

impl<'a> TryLock<'a> {
    /// On that page's mutex.
    pub fn new(page: &'a Page) -> Self {
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

/// `epoll_wait` that returns at once.
pub struct Epoll {
    set: OwnedFd,
}

impl Epoll {
    /// On a set without descriptors: a price, no check.
    ///
    /// # Errors
    /// Skipped, where epoll is refused.
    pub fn of_nothing() -> Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).setting_up("epoll_create1")?;
        Ok(Self { set })
    }

    /// On a connection; it reports the hang-up.
    ///
    /// # Errors
    /// Skipped, where epoll is refused.
    pub fn of(line: BorrowedFd<'_>) -> Result<Self> {
        let this = Self::of_nothing()?;
        let hang_up = epoll::EventFlags::RDHUP;
        epoll::add(&this.set, line, epoll::EventData::new_u64(0), hang_up)
            .setting_up("epoll_ctl")?;
        Ok(this)
    }
}

impl Check for Epoll {
    const CALL: &'static str = "epoll_wait";

    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        let mut event = MaybeUninit::<libc::epoll_event>::uninit();
        // Not rustix's: that is epoll_pwait2, which also fetches a time and so costs half as much
        // again. SAFETY: there is room for the one event that is asked for.
        let ready = unsafe { libc::epoll_wait(self.set.as_raw_fd(), event.as_mut_ptr(), 1, 0) };
        nothing_ready(ready)
    }
}

/// `poll` on the connection.
pub struct Poll<'a>(pub BorrowedFd<'a>);

impl Check for Poll<'_> {
    const CALL: &'static str = "poll";

    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        let mut line = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // Not rustix's: that is ppoll, as above.
        // SAFETY: one descriptor is named and one entry given.
        nothing_ready(unsafe { libc::poll(&mut line, 1, 0) })
    }
}

/// `select` on the connection: readable means hung up, as the monitored process sends nothing.
pub struct Select(RawFd);

impl Select {
    /// On that connection.
    ///
    /// # Errors
    /// Skipped, where the descriptor's number is beyond what `select` can name.
    pub fn of(line: BorrowedFd<'_>) -> Result<Self> {
        let fd = line.as_raw_fd();
        if fd as usize >= libc::FD_SETSIZE {
            return Err(Trouble::skip(format!(
                "select: descriptor {fd} is beyond FD_SETSIZE ({})",
                libc::FD_SETSIZE
            )));
        }
        Ok(Self(fd))
    }
}

impl Check for Select {
    const CALL: &'static str = "select";

    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        let mut readable = MaybeUninit::<libc::fd_set>::uninit();
        let mut at_once = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: FD_ZERO initialises the set; the descriptor is below FD_SETSIZE; null sets are
        // allowed.
        let ready = unsafe {
            libc::FD_ZERO(readable.as_mut_ptr());
            libc::FD_SET(self.0, readable.as_mut_ptr());
            let none = std::ptr::null_mut();
            libc::select(self.0 + 1, readable.as_mut_ptr(), none, none, &mut at_once)
        };
        nothing_ready(ready)
    }
}

/// What a wait that returns at once says: nothing is ready, so nobody has hung up.
fn nothing_ready(ready: i32) -> std::result::Result<bool, Errno> {
    if ready < 0 { Err(last_errno()) } else { Ok(ready == 0) }
}

/// `kill(pid, 0)`, with the number that the process says it has.
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
    /// By the descriptor that the monitored process passed.
    ///
    /// # Errors
    /// Failed, where none was passed.
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
    /// By the descriptor that the monitored process passed.
    ///
    /// # Errors
    /// Failed, where none was passed.
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

/// A flag that a thread publishes, which asks procfs every [`POLLING_PERIOD`].
pub struct PollingThread {
    shared: Arc<Published>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Published {
    alive: AtomicBool,
    looks: AtomicU64,
    stop: AtomicBool,
}

impl PollingThread {
    /// Starts the thread, which has looked once when this returns.
    ///
    /// # Errors
    /// Skipped, where the system refuses a thread, a descriptor or the look.
    pub fn of(monitored: &Monitored) -> Result<Self> {
        let directory = passed(monitored)?.try_clone_to_owned().setting_up("dup")?;
        // The thread can only publish "not alive", whatever the reason.
        Procfs(directory.as_fd()).probe()?;
        let shared = Arc::new(Published::default());
        let publish = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .spawn(move || {
                while !publish.stop.load(Ordering::Relaxed) {
                    let alive = Procfs(directory.as_fd()).look().unwrap_or(false);
                    publish.alive.store(alive, Ordering::Relaxed);
                    publish.looks.fetch_add(1, Ordering::Relaxed);
                    std::thread::park_timeout(POLLING_PERIOD);
                }
            })
            .setting_up("clone of the polling thread")?;
        let this = Self { shared, thread: Some(thread) };
        this.until_looked_again(1)?;
        Ok(this)
    }

    /// Waits for `looks` more looks, so that what happened before now has been seen.
    fn until_looked_again(&self, looks: u64) -> Result<()> {
        let enough = self.shared.looks.load(Ordering::Relaxed) + looks;
        for _ in 0..5_000 {
            if self.shared.looks.load(Ordering::Relaxed) >= enough {
                return Ok(());
            }
            std::thread::sleep(POLLING_PERIOD);
        }
        Err(Trouble::fail("the polling thread did not look within five seconds"))
    }
}

impl Check for PollingThread {
    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        Ok(self.shared.alive.load(Ordering::Relaxed))
    }

    fn settle(&self) -> Result<()> {
        // A look may have begun before the event: only the second one counts.
        self.until_looked_again(2)
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

fn passed(monitored: &Monitored) -> Result<BorrowedFd<'_>> {
    monitored.passed().ok_or_else(|| Trouble::fail("the monitored process passed no descriptor"))
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

/// Threads that the system refuses a call, for tests.
#[cfg(test)]
pub mod refused {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

    use crate::trouble::Result;

    /// Variant, calls that are refused, the name that the skip must give.
    pub const CASES: [(&str, &[i64], &str); 4] = [
        ("kill-0", &[libc::SYS_kill], "kill"),
        ("pidfd-signal-0", &[libc::SYS_pidfd_send_signal], "pidfd_send_signal"),
        ("procfs-faccessat", &[libc::SYS_faccessat, libc::SYS_faccessat2], "faccessat"),
        ("polling-thread", &[libc::SYS_faccessat, libc::SYS_faccessat2], "faccessat"),
    ];

    /// Runs `body` in a thread of its own, to which `calls` fail with EPERM; `None` where the
    /// system has no filters. Children that could not be killed end with the thread.
    pub fn inside(calls: &[i64], body: impl FnOnce() -> Result<()> + Send) -> Option<Result<()>> {
        let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known processor");
        let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
        let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch);
        let filter: BpfProgram = filter.expect("a filter").try_into().expect("a program");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                seccompiler::apply_filter(&filter).ok()?;
                Some(body())
            });
            thread.join().expect("the thread ends")
        })
    }
}

//! A request, made with SIGINT or SIGTERM, to terminate the program: [`interrupted()`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::error::SignalError;
use super::thread::{CallSink, SignalWorker};
use super::{Blocked, Signal, SignalInfo};

/// Period after the first signal during which further signals belong to the same request.
/// `timeout(1)` sends SIGTERM to its child and then to the group, and a terminal that hangs up may
/// do the same. No user types that fast.
const SAME_REQUEST: Duration = Duration::from_millis(100);

/// Blocks SIGINT and SIGTERM and starts a thread that takes them. The first signal sets the
/// [`Interrupted`]; a second signal ends the program, as it would without this function.
///
/// Another signal less than 100 ms after the first belongs to the same request.
///
/// # Errors
/// - [`SignalError::Unblocked`] if another thread runs with one of the signals unblocked: call this
///   function first in `main`.
/// - [`SignalError::ProcUnavailable`] if `/proc/self/task` cannot be read.
/// - [`SignalError::System`] if a system call fails, or the system refuses a thread.
///
/// # Examples
/// ```no_run
/// let interrupted = tontine::signal::interrupted()?; // first in `main`
/// while !interrupted.is_set() {
///     // one unit of work
/// }
/// # Ok::<(), tontine::signal::SignalError>(())
/// ```
pub fn interrupted() -> Result<Interrupted, SignalError> {
    let blocked = Blocked::new([Signal::INT, Signal::TERM])?;
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let readable =
        eventfd(0, flags).map_err(|errno| SignalError::system("eventfd", errno.raw_os_error()))?;
    let shared = Arc::new(InterruptedShared {
        first: Mutex::default(),
        interrupted: Condvar::new(),
        readable,
    });
    let its_shared = Arc::clone(&shared);
    let worker = SignalWorker::start(blocked.set(), CallSink(move |info| its_shared.record(info)))?;
    Ok(Interrupted { worker, shared, blocked })
}

/// The handle of [`interrupted()`], which reports whether SIGINT or SIGTERM has arrived.
///
/// Dropping it unblocks both signals, which then have their earlier effect.
///
/// # Examples
/// ```
/// let interrupted = tontine::signal::interrupted()?; // first in `main`
/// assert!(!interrupted.is_set());
/// # unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
/// // … another process sends SIGTERM …
/// let info = interrupted.wait(None)?.expect("without a timeout there is one");
/// println!("{} of pid {:?}", info.signal(), info.pid());
/// assert!(interrupted.is_set());
/// # Ok::<(), tontine::signal::SignalError>(())
/// ```
pub struct Interrupted {
    // The worker is dropped first so that its thread ends before the signals are unblocked.
    worker: SignalWorker,
    shared: Arc<InterruptedShared>,
    blocked: Blocked,
}

struct InterruptedShared {
    first: Mutex<Option<(SignalInfo, Instant)>>,
    interrupted: Condvar,
    /// A descriptor that is readable once the first signal has arrived.
    readable: OwnedFd,
}

impl Interrupted {
    /// Returns `true` if SIGINT or SIGTERM has arrived. In a forked child it returns `false`.
    pub fn is_set(&self) -> bool {
        self.received().is_some()
    }

    /// Returns the signal that arrived first, or `None` if no signal has arrived.
    ///
    /// After its cleanup, a program can terminate itself with this signal:
    /// [`SignalInfo::terminate_process`].
    pub fn received(&self) -> Option<SignalInfo> {
        // At the fork, a thread of the parent may have held the lock.
        if self.worker.is_forked() {
            return None;
        }
        self.shared.lock().map(|(info, _)| info)
    }

    /// Blocks until a signal has arrived and returns it. Returns `None` after `timeout`. Without a
    /// timeout, it blocks indefinitely.
    ///
    /// # Errors
    /// [`SignalError::Forked`] in a forked child, because the thread runs in the parent.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<SignalInfo>, SignalError> {
        if self.worker.is_forked() {
            return Err(SignalError::Forked);
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut first = self.shared.lock();
        while first.is_none() {
            let interrupted = &self.shared.interrupted;
            first = match deadline {
                None => interrupted.wait(first).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    interrupted.wait_timeout(first, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        Ok(first.map(|(info, _)| info))
    }

    /// Returns the [`Blocked`] of SIGINT and SIGTERM. Call its [`Blocked::unblock_in`] so that the
    /// programs that this program starts begin with both signals unblocked.
    pub fn blocked(&self) -> &Blocked {
        &self.blocked
    }
}

/// Returns a descriptor for an event loop, which is readable once the first signal has arrived.
impl AsFd for Interrupted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.readable.as_fd()
    }
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupted").field("received", &self.received()).finish_non_exhaustive()
    }
}

impl InterruptedShared {
    fn lock(&self) -> MutexGuard<'_, Option<(SignalInfo, Instant)>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, info: SignalInfo) {
        let mut first = self.lock();
        match &mut *first {
            None => *first = Some((info, Instant::now())),
            Some((first, when)) if when.elapsed() < SAME_REQUEST => {
                first.coalesced = first.coalesced.saturating_add(1);
            }
            Some(_) => info.terminate_process(),
        }
        drop(first);
        self.interrupted.notify_all();
        // The write fails only if the counter is full; the descriptor is then readable.
        let _ = rustix::io::write(&self.readable, &1_u64.to_ne_bytes());
    }
}

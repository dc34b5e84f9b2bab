//! What most programs want to know: has somebody asked this one to end? [`interrupted()`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::error::{Error, Result};
use super::worker::{Each, Worker};
use super::{Blocked, Received, Signal};

/// A second signal sooner than this is the same wish: `timeout(1)` sends SIGTERM to its child and
/// then to the group, and a terminal that hangs up may do the like. Nobody types so fast.
const SAME_WISH: Duration = Duration::from_millis(100);

/// Blocks SIGINT and SIGTERM and waits for them in a thread: the first one is to be noticed, a
/// second one ends the program, as it would without this.
///
/// Another signal less than 100 ms after the first counts as the same one.
///
/// ```no_run
/// let interrupted = tontine::signal::interrupted()?;       // first in `main`
/// while !interrupted.is_set() {
///     // one more piece of work
/// }
/// # Ok::<(), tontine::signal::Error>(())
/// ```
///
/// # Errors
/// As [`Blocked::new`] and [`Blocked::thread`].
pub fn interrupted() -> Result<Interrupted> {
    let blocked = Blocked::new([Signal::INT, Signal::TERM])?;
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let readable = eventfd(0, flags).map_err(|errno| Error::system("eventfd", errno))?;
    let shared = Arc::new(Shared { first: Mutex::default(), come: Condvar::new(), readable });
    let its_shared = Arc::clone(&shared);
    let worker = Worker::start(blocked.set(), Each(move |one| its_shared.take(one)))?;
    Ok(Interrupted { worker, shared, blocked })
}

/// Whether SIGINT or SIGTERM has come, made by [`interrupted()`]. Dropped, both do again what they
/// did before.
pub struct Interrupted {
    // Ended before its signals are unblocked.
    worker: Worker,
    shared: Arc<Shared>,
    blocked: Blocked,
}

struct Shared {
    first: Mutex<Option<(Received, Instant)>>,
    come: Condvar,
    /// Readable from the first signal on.
    readable: OwnedFd,
}

impl Interrupted {
    /// Whether one has come. In a forked child none ever does.
    pub fn is_set(&self) -> bool {
        self.received().is_some()
    }

    /// The one that has come: who sent it, and to [`Received::die`] of it once all is tidy.
    pub fn received(&self) -> Option<Received> {
        // A thread that the child does not have may have locked it at the fork.
        if self.worker.is_forked() {
            return None;
        }
        self.shared.lock().map(|(received, _)| received)
    }

    /// Waits for one; none where the time is over first.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child, where nobody takes any.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Received>> {
        if self.worker.is_forked() {
            return Err(Error::Forked);
        }
        let until = timeout.and_then(|time| Instant::now().checked_add(time));
        let mut first = self.shared.lock();
        while first.is_none() {
            let come = &self.shared.come;
            first = match until {
                None => come.wait(first).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    come.wait_timeout(first, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        Ok(first.map(|(received, _)| received))
    }

    /// What they are blocked by: for programs that this one starts ([`Blocked::unblock_in`]).
    pub fn blocked(&self) -> &Blocked {
        &self.blocked
    }
}

/// Readable once one has come, and from then on, for a loop that waits for descriptors.
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<(Received, Instant)>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, received: Received) {
        let mut first = self.lock();
        match &mut *first {
            None => *first = Some((received, Instant::now())),
            Some((first, when)) if when.elapsed() < SAME_WISH => {
                first.merged = first.merged.saturating_add(1);
            }
            Some(_) => received.die(),
        }
        drop(first);
        self.come.notify_all();
        // It fails only where the counter is full, and then it is readable.
        let _ = rustix::io::write(&self.readable, &1_u64.to_ne_bytes());
    }
}

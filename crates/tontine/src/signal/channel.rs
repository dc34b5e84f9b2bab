//! Signals in a bounded queue: [`SignalChannel`].
//!
//! Like the kernel, the queue holds one entry for each standard signal; the entry counts further
//! instances of the signal. The queue holds at most as many real-time signals as its bound. While
//! it holds that many, the thread takes only standard signals.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::SignalError;
use super::thread::{POLL_INTERVAL, SignalWorker, Sink};
use super::{SignalInfo, SignalSet};

/// A bounded queue of signals, filled by a thread. [`Blocked::channel`] returns it.
///
/// Any number of threads may receive from it. Dropping it stops the thread and discards the signals
/// in the queue.
///
/// Standard signals coalesce: if a signal is already in the queue when it arrives again, the
/// entry's [`SignalInfo::coalesced`] counts it, and its sender and value are lost, as they are in
/// the kernel. Real-time signals arrive in order, and none is lost.
///
/// # Examples
/// ```
/// use tontine::signal::{Blocked, Signal};
///
/// let blocked = Blocked::new([Signal::TERM, Signal::HUP])?;
/// let signals = blocked.channel(64)?;
/// # unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
/// loop {
///     match signals.recv()?.signal() {
///         Signal::TERM => break,
///         other => println!("{other}"),
///     }
/// }
/// # Ok::<(), tontine::signal::SignalError>(())
/// ```
///
/// [`Blocked::channel`]: super::Blocked::channel
pub struct SignalChannel<'a> {
    // The worker is dropped first because its thread may be waiting for space.
    worker: SignalWorker,
    shared: Arc<ChannelShared>,
    /// Borrows the [`Blocked`](super::Blocked): the signals must stay blocked.
    _blocked: PhantomData<&'a ()>,
}

/// A channel may be shared by reference among threads, and may move to another thread.
const _: () = {
    const fn shared_by_threads<T: Send + Sync>() {}
    shared_by_threads::<SignalChannel<'_>>();
};

struct ChannelShared {
    queue: Mutex<SignalQueue>,
    /// Signalled when a receiving thread has a signal to take, or when the worker has ended.
    filled: Condvar,
    /// Signalled when the queue is no longer full.
    space: Condvar,
    /// `true` while the queue holds `bound` real-time signals. The flag is stored under the lock.
    /// The worker's thread, which alone fills the queue, reads it without the lock.
    full: AtomicBool,
    bound: usize,
}

#[derive(Default)]
struct SignalQueue {
    signals: VecDeque<SignalInfo>,
    realtime: usize,
    /// `true` once the thread has ended.
    ended: bool,
}

/// The thread's side of the queue.
struct QueueSink(Arc<ChannelShared>);

pub(super) fn start<'a>(set: SignalSet, bound: usize) -> Result<SignalChannel<'a>, SignalError> {
    assert!(bound > 0, "a channel with bound 0 holds no signal; pass a bound of at least 1");
    let shared = Arc::new(ChannelShared {
        queue: Mutex::default(),
        filled: Condvar::new(),
        space: Condvar::new(),
        full: AtomicBool::new(false),
        bound,
    });
    let worker = SignalWorker::start(set, QueueSink(Arc::clone(&shared)))?;
    Ok(SignalChannel { worker, shared, _blocked: PhantomData })
}

impl SignalChannel<'_> {
    /// Blocks until a signal is in the queue and takes it.
    ///
    /// # Errors
    /// - [`SignalError::Forked`] in a forked child, because the thread runs in the parent.
    /// - [`SignalError::Disconnected`] if the thread has ended and the queue is empty.
    pub fn recv(&self) -> Result<SignalInfo, SignalError> {
        loop {
            if let Some(info) = self.recv_until(None)? {
                return Ok(info);
            }
        }
    }

    /// Blocks until a signal is in the queue and takes it. Returns `None` after `timeout`.
    ///
    /// # Errors
    /// [`SignalError::Forked`] and [`SignalError::Disconnected`], as for [`SignalChannel::recv`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use tontine::signal::{Blocked, Signal};
    ///
    /// let blocked = Blocked::new(Signal::USR1)?;
    /// let signals = blocked.channel(1)?;
    /// assert_eq!(signals.recv_timeout(Duration::from_millis(10))?, None);
    /// # Ok::<(), tontine::signal::SignalError>(())
    /// ```
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<SignalInfo>, SignalError> {
        // A deadline that the clock cannot represent is never reached.
        match Instant::now().checked_add(timeout) {
            Some(until) => self.recv_until(Some(until)),
            None => self.recv().map(Some),
        }
    }

    /// Takes a signal without blocking. Returns `None` if the queue is empty.
    ///
    /// # Errors
    /// [`SignalError::Forked`] and [`SignalError::Disconnected`], as for [`SignalChannel::recv`].
    pub fn try_recv(&self) -> Result<Option<SignalInfo>, SignalError> {
        self.recv_timeout(Duration::ZERO)
    }

    fn recv_until(&self, until: Option<Instant>) -> Result<Option<SignalInfo>, SignalError> {
        if self.worker.is_forked() {
            return Err(SignalError::Forked);
        }
        let mut queue = self.shared.lock();
        let info = loop {
            if let Some(info) = queue.signals.pop_front() {
                break info;
            }
            if queue.ended {
                return Err(SignalError::Disconnected);
            }
            let filled = &self.shared.filled;
            queue = match until {
                None => filled.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    filled.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        if info.signal().is_realtime() {
            queue.realtime -= 1;
            if self.shared.full.swap(false, Ordering::Relaxed) {
                drop(queue);
                self.shared.space.notify_one();
                self.worker.wake();
            }
        }
        Ok(Some(info))
    }
}

impl std::fmt::Debug for SignalChannel<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignalChannel").field("bound", &self.shared.bound).finish_non_exhaustive()
    }
}

impl ChannelShared {
    fn lock(&self) -> MutexGuard<'_, SignalQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SignalQueue {
    /// Adds one signal. Returns `true` if the signal is a new entry.
    fn push(&mut self, info: SignalInfo) -> bool {
        if info.signal().is_realtime() {
            self.realtime += 1;
        } else if let Some(waiting) =
            self.signals.iter_mut().find(|one| one.signal() == info.signal())
        {
            let more = info.coalesced.saturating_add(1);
            waiting.coalesced = waiting.coalesced.saturating_add(more);
            return false;
        }
        self.signals.push_back(info);
        true
    }
}

impl Sink for QueueSink {
    fn put(&mut self, info: SignalInfo) {
        let mut queue = self.0.lock();
        let is_new = queue.push(info);
        if queue.realtime >= self.0.bound {
            self.0.full.store(true, Ordering::Relaxed);
        }
        drop(queue);
        if is_new {
            self.0.filled.notify_one();
        }
    }

    fn has_space(&self) -> bool {
        // Relaxed is enough: this thread sets the flag; a thread that clears it then notifies the
        // condition variable, or wakes this thread through the kernel.
        !self.0.full.load(Ordering::Relaxed)
    }

    fn wait_for_space(&self) {
        let queue = self.0.lock();
        if self.0.full.load(Ordering::Relaxed) {
            // The caller checks again, both after a notification and after a timeout.
            drop(self.0.space.wait_timeout(queue, POLL_INTERVAL));
        }
    }
}

impl Drop for QueueSink {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.filled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Signal;

    fn info(signal: Signal, value: u64, coalesced: u32) -> SignalInfo {
        let code = libc::SI_QUEUE;
        SignalInfo { signal, code, pid: 1, uid: 2, value, status: 0, coalesced }
    }

    #[test]
    fn standard_signals_coalesce_and_realtime_signals_queue() {
        let mut queue = SignalQueue::default();
        let realtime = Signal::realtime(1).expect("a real-time signal");
        assert!(queue.push(info(Signal::USR1, 1, 0)));
        assert!(queue.push(info(realtime, 2, 0)));
        assert!(!queue.push(info(Signal::USR1, 3, 4)));
        assert!(queue.push(info(realtime, 5, 6)));
        assert_eq!(queue.realtime, 2);
        let all: Vec<_> = queue.signals.iter().map(|one| (one.value, one.coalesced)).collect();
        assert_eq!(all, [(1, 5), (2, 0), (5, 6)]);
    }
}

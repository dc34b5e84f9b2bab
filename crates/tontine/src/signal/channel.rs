//! Signals in a bounded queue: [`Channel`].
//!
//! It holds one entry of each standard signal, as the kernel does, and counts the others in it; of
//! real-time signals as many as it was told. Beyond that the thread takes standard ones alone.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::{Error, Result};
use super::worker::{LOOK, Sink, Worker};
use super::{Received, Set};

/// The receiving end; any number of threads may take from it. Dropped, its thread ends, and what is
/// in it is lost.
///
/// Standard signals are merged: while one waits here, another one is counted in
/// [`Received::merged`], and what it said is lost, as it is in the kernel. Real-time signals come
/// in order, and none is lost.
pub struct Channel<'a> {
    // Ended first: it may wait for room.
    worker: Worker,
    shared: Arc<Shared>,
    /// Its signals must stay blocked.
    _blocked: PhantomData<&'a ()>,
}

/// Threads share it by reference, and it may move to another thread.
const _: () = {
    const fn shared_by_threads<T: Send + Sync>() {}
    shared_by_threads::<Channel<'_>>();
};

struct Shared {
    queue: Mutex<Queue>,
    /// Somebody who takes from it has something to take, or nothing will come any more.
    filled: Condvar,
    /// It is no longer full.
    room: Condvar,
    /// As many real-time signals as fit. Stored under the lock; the thread, which alone fills the
    /// queue, looks without.
    full: AtomicBool,
    bound: usize,
}

#[derive(Default)]
struct Queue {
    signals: VecDeque<Received>,
    realtime: usize,
    /// The thread has ended.
    ended: bool,
}

/// The thread's end.
struct Filling(Arc<Shared>);

pub(super) fn start<'a>(set: Set, bound: usize) -> Result<Channel<'a>> {
    assert!(bound > 0, "a channel for no signal: nothing would ever come");
    let shared = Arc::new(Shared {
        queue: Mutex::default(),
        filled: Condvar::new(),
        room: Condvar::new(),
        full: AtomicBool::new(false),
        bound,
    });
    let worker = Worker::start(set, Filling(Arc::clone(&shared)))?;
    Ok(Channel { worker, shared, _blocked: PhantomData })
}

impl Channel<'_> {
    /// Waits for the next one.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child, where nobody takes any; [`Error::Ended`].
    pub fn recv(&self) -> Result<Received> {
        loop {
            if let Some(received) = self.recv_until(None)? {
                return Ok(received);
            }
        }
    }

    /// Waits for the next one; none where the time is over first.
    ///
    /// # Errors
    /// As [`Channel::recv`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Received>> {
        // A time beyond the clock's end is for ever.
        match Instant::now().checked_add(timeout) {
            Some(until) => self.recv_until(Some(until)),
            None => self.recv().map(Some),
        }
    }

    /// The next one, if it is there.
    ///
    /// # Errors
    /// As [`Channel::recv`].
    pub fn try_recv(&self) -> Result<Option<Received>> {
        self.recv_timeout(Duration::ZERO)
    }

    fn recv_until(&self, until: Option<Instant>) -> Result<Option<Received>> {
        if self.worker.is_forked() {
            return Err(Error::Forked);
        }
        let mut queue = self.shared.lock();
        let received = loop {
            if let Some(received) = queue.signals.pop_front() {
                break received;
            }
            if queue.ended {
                return Err(Error::Ended);
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
        if received.signal().is_realtime() {
            queue.realtime -= 1;
            if self.shared.full.swap(false, Ordering::Relaxed) {
                drop(queue);
                self.shared.room.notify_one();
                self.worker.wake();
            }
        }
        Ok(Some(received))
    }
}

impl std::fmt::Debug for Channel<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("bound", &self.shared.bound).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Adds one; whether it is a new entry.
    fn push(&mut self, received: Received) -> bool {
        if received.signal().is_realtime() {
            self.realtime += 1;
        } else if let Some(waiting) =
            self.signals.iter_mut().find(|one| one.signal() == received.signal())
        {
            let more = received.merged.saturating_add(1);
            waiting.merged = waiting.merged.saturating_add(more);
            return false;
        }
        self.signals.push_back(received);
        true
    }
}

impl Sink for Filling {
    fn put(&mut self, received: Received) {
        let mut queue = self.0.lock();
        let is_new = queue.push(received);
        if queue.realtime >= self.0.bound {
            self.0.full.store(true, Ordering::Relaxed);
        }
        drop(queue);
        if is_new {
            self.0.filled.notify_one();
        }
    }

    fn has_room(&self) -> bool {
        // Relaxed is enough: this thread set it; that another one has cleared it is told by the
        // condition, or by a wake-up through the kernel.
        !self.0.full.load(Ordering::Relaxed)
    }

    fn wait_for_room(&self) {
        let queue = self.0.lock();
        if self.0.full.load(Ordering::Relaxed) {
            // Woken or not, it is looked at again.
            drop(self.0.room.wait_timeout(queue, LOOK));
        }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.filled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Signal;

    fn of(signal: Signal, value: u64, merged: u32) -> Received {
        let code = libc::SI_QUEUE;
        Received { signal, code, pid: 1, uid: 2, value, status: 0, merged }
    }

    #[test]
    fn standard_signals_merge_and_are_counted_and_others_queue() {
        let mut queue = Queue::default();
        let realtime = Signal::realtime(1).expect("a real-time signal");
        assert!(queue.push(of(Signal::USR1, 1, 0)));
        assert!(queue.push(of(realtime, 2, 0)));
        assert!(!queue.push(of(Signal::USR1, 3, 4)));
        assert!(queue.push(of(realtime, 5, 6)));
        assert_eq!(queue.realtime, 2);
        let all: Vec<_> = queue.signals.iter().map(|one| (one.value, one.merged)).collect();
        assert_eq!(all, [(1, 5), (2, 0), (5, 6)]);
    }
}

//! A processor: [`WorkerRecord`], the part that all threads share. `local.rs` has the part that
//! only its own thread accesses, `task.rs` the fibers that are posted to it.
//!
//! A worker's record is never freed, so a late wake-up through the record accesses no freed memory.
//! The next executor reuses the record once no fiber is left that could be posted to it.
//!
//! `parallel.rs` and `simulated.rs` define how a worker chooses the next fiber.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::thread::{Timespec, futex};

use super::queue::{Linkable, LocalQueue, WorkerInbox};

/// The shared part of a processor, on separate cache lines.
#[repr(align(128))]
pub(super) struct WorkerRecord<T> {
    /// The worker's number in its executor.
    pub(super) index: AtomicUsize,
    /// Fibers woken or started by other threads.
    pub(super) inbox: WorkerInbox<T>,
    /// 1 while the worker's thread waits in the kernel or is about to wait.
    asleep: AtomicU32,
    /// Fibers that have not started, and their number. Other workers may take these fibers.
    fresh: Mutex<LocalQueue<T>>,
    fresh_count: AtomicUsize,
    /// `true` if the running fiber should yield at its next return to user mode.
    pub(super) make_way: AtomicBool,
    /// Number of resumed fibers. Only the owner writes it.
    pub(super) runs: AtomicU64,
    /// Number of returns to user mode. Only the owner writes it.
    returns: AtomicU64,
    /// The name of the running fiber, or 0. Only the owner writes it.
    pub(super) running: AtomicUsize,
    /// Number of fibers that ended here. Only the owner writes it.
    pub(super) ended: AtomicUsize,
}

impl<T: Linkable> WorkerRecord<T> {
    /// Returns a record of no processor yet.
    pub(super) const fn new() -> Self {
        Self {
            index: AtomicUsize::new(0),
            inbox: WorkerInbox::new(),
            asleep: AtomicU32::new(0),
            fresh: Mutex::new(LocalQueue::new()),
            fresh_count: AtomicUsize::new(0),
            make_way: AtomicBool::new(false),
            runs: AtomicU64::new(0),
            returns: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
        }
    }

    /// Returns the worker's number in its executor.
    pub(super) fn number(&self) -> usize {
        self.index.load(Ordering::Relaxed)
    }

    /// Queues a fiber from any thread. Async-signal-safe.
    pub(super) fn post(&self, task: *const T) {
        let asleep = self.inbox.post(task);
        self.make_way.store(true, Ordering::Relaxed);
        if asleep {
            self.wake();
        }
    }

    /// Ends the worker's sleep, or the sleep that it is about to begin.
    pub(super) fn wake(&self) {
        if self.asleep.swap(0, Ordering::Relaxed) == 1 {
            let _ = futex::wake(&self.asleep, futex::Flags::PRIVATE, 1);
        }
    }

    /// Returns `true` if the worker waits in the kernel or is about to wait.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) == 1
    }

    /// Announces [`WorkerRecord::sleep`]. A later [`WorkerRecord::wake`] ends that sleep.
    pub(super) fn announce_sleep(&self) {
        self.asleep.store(1, Ordering::Relaxed);
    }

    /// Withdraws the announcement.
    pub(super) fn cancel_sleep(&self) {
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// Sleeps until [`WorkerRecord::wake`] is called after [`WorkerRecord::announce_sleep`], but
    /// for at most `limit`.
    pub(super) fn sleep(&self, limit: Option<Duration>) {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        while self.is_asleep() {
            match futex::wait(&self.asleep, futex::Flags::PRIVATE, 1, limit.as_ref()) {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) | Ok(()) => {}
                Err(_) => break,
            }
        }
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// Queues a fiber that has not started and may begin on another worker. Returns the new number
    /// of such fibers.
    pub(super) fn push_fresh(&self, task: *const T) -> usize {
        let queue = self.lock_fresh();
        queue.push(task);
        let count = self.fresh_count.load(Ordering::Relaxed) + 1;
        self.fresh_count.store(count, Ordering::Relaxed);
        count
    }

    /// Takes the oldest fiber that has not started.
    pub(super) fn pop_fresh(&self) -> Option<*const T> {
        if !self.has_fresh() {
            return None;
        }
        let queue = self.lock_fresh();
        let task = queue.pop()?;
        let count = self.fresh_count.load(Ordering::Relaxed) - 1;
        self.fresh_count.store(count, Ordering::Relaxed);
        Some(task)
    }

    /// Returns `true` if a fiber that has not started is queued.
    pub(super) fn has_fresh(&self) -> bool {
        self.fresh_count() > 0
    }

    /// Returns the number of queued fibers that have not started.
    pub(super) fn fresh_count(&self) -> usize {
        self.fresh_count.load(Ordering::Relaxed)
    }

    /// Records that the fiber `name` is resumed, and must yield soon if it overtakes others. Called
    /// by the owner.
    pub(super) fn begin_run(&self, name: usize, overtakes: bool) {
        self.runs.store(self.runs.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.running.store(name, Ordering::Relaxed);
        self.make_way.store(overtakes, Ordering::Relaxed);
    }

    /// Records a return to user mode. Returns `true` if the running fiber should yield. Called by
    /// the owner.
    pub(super) fn return_to_user(&self) -> bool {
        self.returns.store(self.returns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // A post that came just before the run set `make_way`, and `begin_run` cleared it again;
        // the inbox still contains that post.
        self.make_way.load(Ordering::Relaxed) || self.inbox.has_posts()
    }

    /// Returns a count that changes whenever a fiber is resumed or returns to user mode.
    pub(super) fn beat(&self) -> u64 {
        self.runs.load(Ordering::Relaxed).wrapping_add(self.returns.load(Ordering::Relaxed))
    }

    fn lock_fresh(&self) -> MutexGuard<'_, LocalQueue<T>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

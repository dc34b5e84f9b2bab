//! A processor: [`Worker`], the part that all threads share, and [`Local`], the part that only its
//! own thread accesses.
//!
//! A worker's record is never freed, so a late wake-up through the record accesses no freed memory.
//! The next executor reuses the record once no fiber is left that could be posted to it.
//!
//! `parallel.rs` and `simulated.rs` define how a worker chooses the next fiber.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::thread::{Timespec, futex};

use super::queue::{LocalQueue, WorkerInbox};
use super::stack::FiberStack;
use super::task::Task;

/// The shared part of a processor, on separate cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Worker {
    /// The worker's number in its executor.
    pub(super) index: AtomicUsize,
    /// Fibers woken or started by other threads.
    pub(super) inbox: WorkerInbox,
    /// 1 while the worker's thread waits in the kernel or is about to wait.
    asleep: AtomicU32,
    /// Fibers that have not started, and their number. Other workers may take these fibers.
    fresh: Mutex<LocalQueue>,
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

impl Worker {
    const fn new() -> Self {
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

    /// Returns a record, either new or reused.
    pub(super) fn acquire(index: usize) -> &'static Self {
        let worker = unused().pop().unwrap_or_else(|| Box::leak(Box::new(Self::new())));
        worker.index.store(index, Ordering::Relaxed);
        worker.ended.store(0, Ordering::Relaxed);
        worker
    }

    /// Returns the record for reuse. No fiber will be posted to it.
    pub(super) fn release(&'static self) {
        unused().push(self);
    }

    /// Returns the worker's number in its executor.
    pub(super) fn number(&self) -> usize {
        self.index.load(Ordering::Relaxed)
    }

    /// Queues a fiber from any thread. Async-signal-safe.
    pub(super) fn post(&self, task: *const Task) {
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

    /// Announces [`Worker::sleep`]. A later [`Worker::wake`] ends that sleep.
    pub(super) fn announce_sleep(&self) {
        self.asleep.store(1, Ordering::Relaxed);
    }

    /// Withdraws the announcement.
    pub(super) fn cancel_sleep(&self) {
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// Sleeps until [`Worker::wake`] is called after [`Worker::announce_sleep`], but for at most
    /// `limit`.
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
    pub(super) fn push_fresh(&self, task: *const Task) -> usize {
        let queue = self.lock_fresh();
        queue.push(task);
        let count = self.fresh_count.load(Ordering::Relaxed) + 1;
        self.fresh_count.store(count, Ordering::Relaxed);
        count
    }

    /// Takes the oldest fiber that has not started.
    pub(super) fn pop_fresh(&self) -> Option<*const Task> {
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
        // A post just before the run may have set a flag that the start of the run cleared.
        self.make_way.load(Ordering::Relaxed) || self.inbox.has_posts()
    }

    /// Returns a count that changes whenever a fiber is resumed or returns to user mode.
    pub(super) fn beat(&self) -> u64 {
        self.runs.load(Ordering::Relaxed).wrapping_add(self.returns.load(Ordering::Relaxed))
    }

    fn lock_fresh(&self) -> MutexGuard<'_, LocalQueue> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the records that no executor uses.
fn unused() -> MutexGuard<'static, Vec<&'static Worker>> {
    static UNUSED: Mutex<Vec<&'static Worker>> = Mutex::new(Vec::new());
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The private part of a worker, which only its own thread accesses.
#[derive(Debug)]
pub(super) struct Local {
    /// Woken fibers, and unstarted fibers that are pinned here.
    pub(super) woken: LocalQueue,
    /// Fibers that yielded.
    pub(super) yielded: LocalQueue,
    /// Cached stacks.
    pub(super) stacks: RefCell<Vec<FiberStack>>,
    /// Number of choices that the worker has made.
    pub(super) turn: Cell<u32>,
    /// `true` if the chosen fiber had yielded and runs before fibers that were woken.
    pub(super) overtakes: Cell<bool>,
}

/// Maximum number of stacks that a worker caches; also the number that it moves at a time.
pub(super) const AT_HAND: usize = 64;
pub(super) const MOVED: usize = 32;

impl Local {
    pub(super) fn new() -> Self {
        Self {
            woken: LocalQueue::new(),
            yielded: LocalQueue::new(),
            stacks: RefCell::new(Vec::with_capacity(AT_HAND)),
            turn: Cell::new(0),
            overtakes: Cell::new(false),
        }
    }
}

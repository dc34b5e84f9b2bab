//! A processor: [`Worker`], which all threads know of, and [`Local`], which only its own does.
//!
//! A worker's record is never freed, so that a late wake-up through it meets no freed memory; it is
//! used again by the next executor once no fiber is left that could be posted to it.
//!
//! How a worker chooses what to run stands in `parallel.rs` and `simulated.rs`.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::thread::{Timespec, futex};

use super::queue::{Inbox, Queue};
use super::stack::Stack;
use super::task::Task;

/// What all threads know of a processor. On its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Worker {
    /// Its number in its executor.
    pub(super) index: AtomicUsize,
    /// Woken or started by other threads.
    pub(super) inbox: Inbox,
    /// 1 while its thread waits in the kernel or is about to.
    asleep: AtomicU32,
    /// Fibers that have not begun, and how many; others may take from it.
    fresh: Mutex<Queue>,
    fresh_count: AtomicUsize,
    /// Whether the running fiber should make way at the next return to user mode.
    pub(super) make_way: AtomicBool,
    /// Counts fibers resumed. Written by the owner alone.
    pub(super) runs: AtomicU64,
    /// Counts returns to user mode. Written by the owner alone.
    returns: AtomicU64,
    /// The running fiber's name, or 0. Written by the owner alone.
    pub(super) running: AtomicUsize,
    /// Fibers that ended here. Written by the owner alone.
    pub(super) ended: AtomicUsize,
}

impl Worker {
    const fn new() -> Self {
        Self {
            index: AtomicUsize::new(0),
            inbox: Inbox::new(),
            asleep: AtomicU32::new(0),
            fresh: Mutex::new(Queue::new()),
            fresh_count: AtomicUsize::new(0),
            make_way: AtomicBool::new(false),
            runs: AtomicU64::new(0),
            returns: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
        }
    }

    /// A record, new or used before.
    pub(super) fn acquire(index: usize) -> &'static Self {
        let worker = unused().pop().unwrap_or_else(|| Box::leak(Box::new(Self::new())));
        worker.index.store(index, Ordering::Relaxed);
        worker.ended.store(0, Ordering::Relaxed);
        worker
    }

    /// Gives a record back that no fiber will be posted to.
    pub(super) fn release(&'static self) {
        unused().push(self);
    }

    /// Its number in its executor.
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

    /// Ends its sleep, or the one that it is about to begin.
    pub(super) fn wake(&self) {
        if self.asleep.swap(0, Ordering::Relaxed) == 1 {
            let _ = futex::wake(&self.asleep, futex::Flags::PRIVATE, 1);
        }
    }

    /// Whether it waits in the kernel or is about to.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) == 1
    }

    /// Announces [`Worker::sleep`]. A [`Worker::wake`] after this ends it.
    pub(super) fn announce_sleep(&self) {
        self.asleep.store(1, Ordering::Relaxed);
    }

    /// Takes the announcement back.
    pub(super) fn cancel_sleep(&self) {
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// Sleeps from [`Worker::announce_sleep`] to [`Worker::wake`], at most for `limit`.
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

    /// Queues a fiber that has not begun and may begin elsewhere; how many there are now.
    pub(super) fn push_fresh(&self, task: *const Task) -> usize {
        let queue = self.lock_fresh();
        queue.push(task);
        let count = self.fresh_count.load(Ordering::Relaxed) + 1;
        self.fresh_count.store(count, Ordering::Relaxed);
        count
    }

    /// Takes the oldest fiber that has not begun.
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

    /// Whether a fiber that has not begun is queued.
    pub(super) fn has_fresh(&self) -> bool {
        self.fresh_count() > 0
    }

    /// How many fibers that have not begun are queued.
    pub(super) fn fresh_count(&self) -> usize {
        self.fresh_count.load(Ordering::Relaxed)
    }

    /// Notes that the fiber `name` is resumed, which is to make way soon if it overtakes others.
    /// For the owner.
    pub(super) fn begin_run(&self, name: usize, overtakes: bool) {
        self.runs.store(self.runs.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.running.store(name, Ordering::Relaxed);
        self.make_way.store(overtakes, Ordering::Relaxed);
    }

    /// Notes a return to user mode; whether the running fiber should make way. For the owner.
    pub(super) fn return_to_user(&self) -> bool {
        self.returns.store(self.returns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // A post just before the run may have set a flag that the run's beginning took back.
        self.make_way.load(Ordering::Relaxed) || self.inbox.has_mail()
    }

    /// Changes whenever a fiber is resumed or returns to user mode.
    pub(super) fn beat(&self) -> u64 {
        self.runs.load(Ordering::Relaxed).wrapping_add(self.returns.load(Ordering::Relaxed))
    }

    fn lock_fresh(&self) -> MutexGuard<'_, Queue> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records that no executor uses.
fn unused() -> MutexGuard<'static, Vec<&'static Worker>> {
    static UNUSED: Mutex<Vec<&'static Worker>> = Mutex::new(Vec::new());
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What only the worker's own thread reaches.
#[derive(Debug)]
pub(super) struct Local {
    /// Woken fibers, and those that were pinned here.
    pub(super) woken: Queue,
    /// Those that made way.
    pub(super) yielded: Queue,
    /// Stacks at hand.
    pub(super) stacks: RefCell<Vec<Stack>>,
    /// Counts choices.
    pub(super) turn: Cell<u32>,
    /// The fiber that was chosen had made way, and has its turn before those that were woken.
    pub(super) overtakes: Cell<bool>,
}

/// Stacks that a worker keeps at hand, and how many it moves at a time.
pub(super) const AT_HAND: usize = 64;
pub(super) const MOVED: usize = 32;

impl Local {
    pub(super) fn new() -> Self {
        Self {
            woken: Queue::new(),
            yielded: Queue::new(),
            stacks: RefCell::new(Vec::with_capacity(AT_HAND)),
            turn: Cell::new(0),
            overtakes: Cell::new(false),
        }
    }
}

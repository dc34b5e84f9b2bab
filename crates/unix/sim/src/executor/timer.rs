//! Timed actions: [`Timers`], a queue of actions, and [`Timer`], a handle that cancels one.
//!
//! The parallel executor uses the monotonic clock, and the simulated executor a virtual one. The
//! queue is the same for both.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::footprint::Object;
use super::reach::changes;

/// A timed action. It is short, and runs outside of fibers.
pub(crate) type TimerAction = Box<dyn FnOnce() + Send>;

/// The time and the number of an action. If two actions have the same time, the one that
/// was set first runs first.
type TimerKey = (Duration, u64);

/// The pending actions.
pub(super) struct Timers {
    queue: Mutex<TimerQueue>,
    /// The time of the first action in nanoseconds, or `u64::MAX` if no action is set. Read without
    /// the lock, changed under it.
    first_ns: AtomicU64,
}

#[derive(Default)]
struct TimerQueue {
    actions: BTreeMap<TimerKey, TimerAction>,
    /// Number of the next action to be set.
    next: u64,
    /// Number of actions that were removed and are still running.
    running: usize,
}

impl Default for Timers {
    fn default() -> Self {
        Self { queue: Mutex::default(), first_ns: AtomicU64::new(u64::MAX) }
    }
}

impl Timers {
    /// Adds an action. Returns its key, and `true` if it is now the first.
    pub(super) fn set(&self, when: Duration, action: TimerAction) -> (TimerKey, bool) {
        let mut queue = self.lock();
        let key = (when, queue.next);
        queue.next += 1;
        let first = queue.actions.first_key_value().is_none_or(|(first, _)| key < *first);
        queue.actions.insert(key, action);
        self.note_first(&queue);
        (key, first)
    }

    /// Returns the time of the next action.
    pub(super) fn next(&self) -> Option<Duration> {
        self.lock().actions.first_key_value().map(|((when, _), _)| *when)
    }

    /// Returns `true` if no action is set and none is running.
    pub(super) fn is_empty(&self) -> bool {
        let queue = self.lock();
        queue.actions.is_empty() && queue.running == 0
    }

    /// Returns the time of the first action in nanoseconds, or `u64::MAX` if no action is set. The
    /// result is exact only if no other thread sets or cancels actions.
    pub(super) fn first_ns(&self) -> u64 {
        self.first_ns.load(Ordering::Relaxed)
    }

    fn note_first(&self, queue: &TimerQueue) {
        let first = queue.actions.first_key_value().map_or(u64::MAX, |((when, _), _)| {
            u64::try_from(when.as_nanos()).unwrap_or(u64::MAX - 1)
        });
        self.first_ns.store(first, Ordering::Relaxed);
    }

    /// Runs the actions that are due at `now`, in order, on this thread. Returns their number.
    pub(super) fn run_due(&self, now: Duration) -> usize {
        let mut done = 0;
        while self.run_first(now) {
            done += 1;
        }
        done
    }

    /// Runs the first action on this thread if it is due at `now`. Returns `false` if it is not.
    pub(super) fn run_first(&self, now: Duration) -> bool {
        let mut queue = self.lock();
        let Some(entry) = queue.actions.first_entry().filter(|entry| entry.key().0 <= now) else {
            return false;
        };
        let action = entry.remove();
        self.note_first(&queue);
        queue.running += 1;
        drop(queue);
        action();
        self.lock().running -= 1;
        true
    }

    fn lock(&self) -> MutexGuard<'_, TimerQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle that cancels an action. Dropping it leaves the action set.
pub(crate) struct Timer {
    pub(super) executor: Arc<super::FiberExecutor>,
    pub(super) key: TimerKey,
}

impl Timer {
    /// Cancels the action. Returns `false` if it has run or is running.
    pub(crate) fn cancel(self) -> bool {
        changes(Object::Timers);
        let timers = &self.executor.timers;
        let mut queue = timers.lock();
        let action = queue.actions.remove(&self.key);
        timers.note_first(&queue);
        drop(queue);
        let cancelled = action.is_some();
        drop(action);
        self.executor.notify_if_outside();
        cancelled
    }
}

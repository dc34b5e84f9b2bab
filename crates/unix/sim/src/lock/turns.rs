//! Holders and waiters of a blocking lock: [`Turns`], the locking protocol without the guarded
//! value.
//!
//! One word encodes which fibers hold the lock; while no fiber sleeps, no other memory is accessed.
//! Sleeping fibers wait in a queue behind a gate, in the order of their arrival. The last holder
//! hands them the lock, so a fiber that wakes already holds it. While a fiber is queued, later
//! fibers queue too, so neither writers nor readers starve.

use super::statistics::Acquisition;
use super::sync::executor::{self, Fiber};
use super::sync::{AtomicBool, AtomicU32, Gate, Ordering};
use std::collections::VecDeque;
use std::hint;
use std::sync::Arc;

/// The kind of access that is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Access shared with other readers.
    Read,
    /// Exclusive access.
    Write,
}

/// ```text
///  31                          2   1       0
/// +-----------------------------+-------+-------+
/// | readers that hold the lock  | QUEUE | WRITER|
/// +-----------------------------+-------+-------+
/// ```
const WRITER: u32 = 1;
/// Set while a fiber is queued. Changed only by a thread at the gate.
pub(super) const QUEUE: u32 = 2;
const READER: u32 = 4;

/// The state of a blocking lock.
pub(crate) struct Turns {
    state: AtomicU32,
    queue: Gate<VecDeque<Arc<LockWaiter>>>,
}

/// A fiber that sleeps until it holds the lock.
struct LockWaiter {
    fiber: Fiber,
    want: Want,
    granted: AtomicBool,
}

impl Turns {
    /// Returns the state of a free lock.
    pub(super) fn new() -> Self {
        Self { state: AtomicU32::new(0), queue: Gate::default() }
    }

    /// Returns `true` if, a moment ago, no fiber held the lock or was queued for it.
    pub(super) fn is_idle(&self) -> bool {
        self.state.load(Ordering::Relaxed) == 0
    }

    /// Takes the lock if it is immediately available. Returns `true` if it was taken.
    #[inline]
    pub(super) fn try_take(&self, want: Want) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while let Some(next) = taken(state, want) {
            // SYNC turns: pairs with `give_back`: the effects of earlier holders are visible.
            match self.state.compare_exchange_weak(
                state,
                next,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Takes the lock after [`Self::try_take`] failed: tries `busy_turns` times, then sleeps.
    #[cold]
    pub(super) fn wait(&self, want: Want, busy_turns: u32) -> Acquisition {
        for _ in 0..busy_turns {
            hint::spin_loop();
            executor::turn();
            if self.try_take(want) {
                return Acquisition::Waited;
            }
        }
        let Some(waiter) = self.enqueue(want) else { return Acquisition::Waited };
        // SYNC grant: pairs with `hand_over`, which sees the effects of earlier holders.
        while !waiter.granted.load(Ordering::Acquire) {
            executor::park();
        }
        Acquisition::Blocked
    }

    /// Releases the lock, and hands it to the next waiter.
    #[inline]
    pub(super) fn give_back(&self, want: Want) {
        let one = match want {
            Want::Read => READER,
            Want::Write => WRITER,
        };
        // SYNC turns: pairs with `try_take`, and with the `give_back` of other readers: the last
        // reader sees everything that the other readers saw.
        let before = self.state.fetch_sub(one, Ordering::AcqRel);
        if before - one == QUEUE {
            self.hand_over();
        }
    }

    /// Like [`Self::try_take`], for a mode in which no two threads access the lock at the same
    /// time.
    #[inline]
    pub(super) fn try_take_alone(&self, want: Want) -> bool {
        let next = taken(self.state.load(Ordering::Relaxed), want);
        if let Some(next) = next {
            self.state.store(next, Ordering::Relaxed);
        }
        next.is_some()
    }

    /// Like [`Self::give_back`], for a mode in which no two threads access the lock at the same
    /// time.
    #[inline]
    pub(super) fn give_back_alone(&self, want: Want) {
        let state = self.state.load(Ordering::Relaxed);
        let one = match want {
            Want::Read => READER,
            Want::Write => WRITER,
        };
        self.state.store(state - one, Ordering::Relaxed);
    }

    /// Returns the number of fibers that sleep until they hold the lock.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.queue.with(|queue| queue.len())
    }

    /// Queues the fiber. If the lock has become free in the meantime, takes it instead and returns
    /// `None`.
    fn enqueue(&self, want: Want) -> Option<Arc<LockWaiter>> {
        let fiber = executor::current();
        let waiter = Arc::new(LockWaiter { fiber, want, granted: AtomicBool::new(false) });
        self.queue.with(|queue| {
            let queues = self.take_or_mark(want);
            queues.then(|| {
                queue.push_back(Arc::clone(&waiter));
                waiter
            })
        })
    }

    /// Takes the lock, or marks that a fiber is queued. Returns `true` if it set the mark.
    fn take_or_mark(&self, want: Want) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let taken = taken(state, want);
            let next = taken.unwrap_or(state | QUEUE);
            // SYNC turns: pairs with `give_back`, if this exchange takes the lock.
            match self.state.compare_exchange_weak(
                state,
                next,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return taken.is_none(),
                Err(now) => state = now,
            }
        }
    }

    /// Hands the free lock to the writer at the head of the queue, or to all readers there.
    ///
    /// The state is exactly [`QUEUE`] and does not change, because later fibers queue and only one
    /// releasing thread observes this state.
    #[cold]
    fn hand_over(&self) {
        let next = self.queue.with(|queue| {
            let next = first(queue);
            let held = match next.first().map(|first| first.want) {
                Some(Want::Write) => WRITER,
                _ => READER * next.len() as u32,
            };
            let queued = if queue.is_empty() { 0 } else { QUEUE };
            // From this store on, the lock belongs to the next holders.
            // SYNC turns: pairs with `try_take`: a reader may join the readers that are woken
            // below, and then sees the effects of the last writer through this store alone.
            self.state.store(held | queued, Ordering::Release);
            next
        });
        for waiter in next {
            // SYNC grant: pairs with `wait`.
            waiter.granted.store(true, Ordering::Release);
            waiter.fiber.unpark();
        }
    }
}

/// Removes the writer at the head of the queue, or all readers there.
fn first(queue: &mut VecDeque<Arc<LockWaiter>>) -> Vec<Arc<LockWaiter>> {
    let together = match queue.front().map(|first| first.want) {
        Some(Want::Write) => 1,
        _ => queue.iter().take_while(|waiter| waiter.want == Want::Read).count(),
    };
    queue.drain(..together).collect()
}

/// Returns the state after the lock is taken, or `None` if it is not available.
#[inline]
fn taken(state: u32, want: Want) -> Option<u32> {
    match want {
        Want::Read if state & (WRITER | QUEUE) == 0 => Some(state + READER),
        Want::Write if state == 0 => Some(WRITER),
        _ => None,
    }
}

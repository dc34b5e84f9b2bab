//! Who has a blocking lock and who waits for it: [`Turns`], the protocol without the value.
//!
//! One word says who has the lock; it alone is touched while nobody sleeps. Fibers that sleep
//! stand in a queue behind a gate, first come, first served, and are handed the lock by whoever
//! gives it up last: when one wakes, it holds the lock. While anybody queues, newcomers queue too,
//! so that neither writers nor readers starve.

use super::statistics::Came;
use super::sync::executor::{self, Fiber};
use super::sync::{AtomicBool, AtomicU32, Gate, Ordering};
use std::collections::VecDeque;
use std::hint;
use std::sync::Arc;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// To share it with other readers.
    Read,
    /// To have it alone.
    Write,
}

/// ```text
///  31                          2   1       0
/// +-----------------------------+-------+-------+
/// | readers that have the lock  | QUEUE | WRITER|
/// +-----------------------------+-------+-------+
/// ```
const WRITER: u32 = 1;
/// Somebody queues. Changed only by who is at the gate.
pub(super) const QUEUE: u32 = 2;
const READER: u32 = 4;

/// The state of a blocking lock.
pub(super) struct Turns {
    state: AtomicU32,
    queue: Gate<VecDeque<Arc<Waiter>>>,
}

/// A fiber that sleeps until the lock is its own.
struct Waiter {
    fiber: Fiber,
    want: Want,
    granted: AtomicBool,
}

impl Turns {
    /// Nobody has it.
    pub(super) fn new() -> Self {
        Self { state: AtomicU32::new(0), queue: Gate::default() }
    }

    /// Whether nobody had it or queued for it a moment ago.
    pub(super) fn is_idle(&self) -> bool {
        self.state.load(Ordering::Relaxed) == 0
    }

    /// Whether it was to be had at once, and is had now.
    #[inline]
    pub(super) fn try_take(&self, want: Want) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while let Some(next) = taken(state, want) {
            // SYNC turns: pairs with `give_back`: what earlier holders did is seen.
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

    /// Takes it after [`Self::try_take`] failed: tries `busy_turns` times, then sleeps.
    #[cold]
    pub(super) fn wait(&self, want: Want, busy_turns: u32) -> Came {
        for _ in 0..busy_turns {
            hint::spin_loop();
            executor::turn();
            if self.try_take(want) {
                return Came::Waited;
            }
        }
        let Some(waiter) = self.enqueue(want) else { return Came::Waited };
        // SYNC grant: pairs with `hand_over`, which has seen what earlier holders did.
        while !waiter.granted.load(Ordering::Acquire) {
            executor::park();
        }
        Came::Blocked
    }

    /// Gives it back, and hands it to who is next.
    #[inline]
    pub(super) fn give_back(&self, want: Want) {
        let one = match want {
            Want::Read => READER,
            Want::Write => WRITER,
        };
        // SYNC turns: pairs with `try_take`, and with the other readers' give_back: the last one
        // has seen what all of them saw.
        let before = self.state.fetch_sub(one, Ordering::AcqRel);
        if before - one == QUEUE {
            self.hand_over();
        }
    }

    /// [`Self::try_take`] where no two come at once.
    #[inline]
    pub(super) fn try_take_alone(&self, want: Want) -> bool {
        let next = taken(self.state.load(Ordering::Relaxed), want);
        if let Some(next) = next {
            self.state.store(next, Ordering::Relaxed);
        }
        next.is_some()
    }

    /// [`Self::give_back`] where no two come at once.
    #[inline]
    pub(super) fn give_back_alone(&self, want: Want) {
        let state = self.state.load(Ordering::Relaxed);
        let one = match want {
            Want::Read => READER,
            Want::Write => WRITER,
        };
        self.state.store(state - one, Ordering::Relaxed);
    }

    /// How many sleep until they have it.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.queue.with(|queue| queue.len())
    }

    /// Queues, unless the lock came free meanwhile and is had now.
    fn enqueue(&self, want: Want) -> Option<Arc<Waiter>> {
        let fiber = executor::current();
        let waiter = Arc::new(Waiter { fiber, want, granted: AtomicBool::new(false) });
        self.queue.with(|queue| {
            let queues = self.take_or_mark(want);
            queues.then(|| {
                queue.push_back(Arc::clone(&waiter));
                waiter
            })
        })
    }

    /// Takes the lock, or else marks that somebody queues: whether it did that.
    fn take_or_mark(&self, want: Want) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let taken = taken(state, want);
            let next = taken.unwrap_or(state | QUEUE);
            // SYNC turns: pairs with `give_back`, where this takes the lock.
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
    /// The state is exactly [`QUEUE`], and stays so: newcomers queue, and only one giver sees it.
    #[cold]
    fn hand_over(&self) {
        let next = self.queue.with(|queue| {
            let next = first(queue);
            let held = match next.first().map(|first| first.want) {
                Some(Want::Write) => WRITER,
                _ => READER * next.len() as u32,
            };
            let queued = if queue.is_empty() { 0 } else { QUEUE };
            // From here on the lock is theirs.
            // SYNC turns: pairs with `try_take`: a reader may join those that this wakes, and then
            // sees what the last writer did by this store alone.
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

/// Takes the writer at the head of the queue out, or all readers there.
fn first(queue: &mut VecDeque<Arc<Waiter>>) -> Vec<Arc<Waiter>> {
    let together = match queue.front().map(|first| first.want) {
        Some(Want::Write) => 1,
        _ => queue.iter().take_while(|waiter| waiter.want == Want::Read).count(),
    };
    queue.drain(..together).collect()
}

/// The state after somebody took the lock, if it is to be had.
#[inline]
fn taken(state: u32, want: Want) -> Option<u32> {
    match want {
        Want::Read if state & (WRITER | QUEUE) == 0 => Some(state + READER),
        Want::Write if state == 0 => Some(WRITER),
        _ => None,
    }
}

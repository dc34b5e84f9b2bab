//! The multi-threaded signal delivery state of a process (§3.2, §4.1): [`SigLock`].
//!
//! A process is *unlocked*, *locked* ([`SigLocked`]: a thread holds `p_siglock`, briefly),
//! *waiting* ([`SigWaiting`]: `p_sigwait` is set, because a thread delivers a signal or has stopped
//! the process for its tracer) or *exiting* (`p_end_thread` is set). Each state is a type, and each
//! transition consumes the previous state, so a transition that the paper does not define does not
//! compile.
//!
//! A thread that finds the state *waiting* or *exiting* is only [`Marked`] here. The mark takes
//! effect on the thread's way to user mode ([`deliver`](super::deliver)).

use std::sync::atomic::{AtomicI32, Ordering};

use super::thread::{AstFlags, Thread};
use crate::executor::{self, Fiber, Object};
use crate::lock::lock_order::PSiglock;
use crate::lock::{Locks, SimpleGuard, SimpleLock};

/// `p_siglock`, and the state that it guards.
pub(super) struct SigLock {
    state: SimpleLock<PSiglock, SigLockState>,
    /// `p_end_thread`: the number of the thread that ends the others, or 0. Changed under
    /// `p_siglock`.
    p_end_thread: AtomicI32,
}

#[derive(Default)]
struct SigLockState {
    /// `p_sigwait`: the thread that set it.
    p_sigwait: Option<i32>,
    /// The fibers that block until *waiting* is over.
    blocked: Vec<Fiber>,
}

/// The state *locked*.
#[must_use]
pub(super) struct SigLocked<'a> {
    lock: &'a SigLock,
    locks: &'a Locks,
    state: SimpleGuard<'a, PSiglock, SigLockState>,
}

/// The state *waiting*, set by the thread that holds this value.
#[must_use]
pub(super) struct SigWaiting<'a> {
    lock: &'a SigLock,
    locks: &'a Locks,
}

/// The error of a call that must return immediately. The thread carries a mark, which takes effect
/// on its way to user mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marked;

impl SigLock {
    pub(super) fn new(slot: u32) -> Self {
        let state = SimpleLock::new(slot, SigLockState::default());
        Self { state, p_end_thread: AtomicI32::new(0) }
    }

    /// Moves from *unlocked* to *locked*. A thread that finds *waiting* or *exiting* is marked.
    pub(super) fn sig_lock_or_return<'a>(
        &'a self,
        locks: &'a Locks,
        thread: &Thread,
    ) -> Result<SigLocked<'a>, Marked> {
        let state = self.state.lock(locks);
        if self.ending().is_some_and(|ending| ending != thread.tid()) {
            thread.demand(AstFlags::HALT);
            return Err(Marked);
        }
        if state.p_sigwait.is_some() {
            thread.demand(AstFlags::BLOCK);
            return Err(Marked);
        }
        Ok(SigLocked { lock: self, locks, state })
    }

    /// Calls `sig_lock_or_return`, then moves to *waiting* (§4.1): other threads block instead of
    /// spinning while this one delivers a signal.
    pub(super) fn sig_wait_lock<'a>(
        &'a self,
        locks: &'a Locks,
        thread: &Thread,
    ) -> Result<SigWaiting<'a>, Marked> {
        Ok(self.sig_lock_or_return(locks, thread)?.sig_lock_to_wait(thread))
    }

    /// Sleeps until *waiting* is over, as the mark [`AstFlags::BLOCK`] requests.
    pub(super) fn block(&self, locks: &Locks) {
        loop {
            {
                let mut state = self.state.lock(locks);
                if state.p_sigwait.is_none() || self.ending().is_some() {
                    return;
                }
                state.blocked.push(executor::current());
            }
            executor::park();
        }
    }

    /// Returns the thread that exits or calls exec, if any. Without the lock, a thread can rely
    /// only on whether it is that thread itself. A thread that has found no mark of another thread
    /// under `p_lock` finds that thread here, because the other thread takes `p_lock` after it has
    /// registered.
    pub(super) fn ending(&self) -> Option<i32> {
        executor::looks_at(Object::Process(self.state.instance()));
        let ending = self.p_end_thread.load(Ordering::Relaxed);
        (ending != 0).then_some(ending)
    }

    /// Returns to *unlocked* from any state, for a new process or for a new program in an old
    /// process.
    pub(super) fn reset(&self, locks: &Locks) {
        let mut state = self.state.lock(locks);
        executor::changes(Object::Process(self.state.instance()));
        self.p_end_thread.store(0, Ordering::Relaxed);
        state.p_sigwait = None;
        state.wake();
    }
}

impl SigLockState {
    fn wake(&mut self) {
        if !self.blocked.is_empty() {
            self.blocked.drain(..).for_each(|fiber| fiber.unpark());
        }
    }
}

impl<'a> SigLocked<'a> {
    /// Moves from *locked* to *waiting*.
    pub(super) fn sig_lock_to_wait(mut self, thread: &Thread) -> SigWaiting<'a> {
        self.state.p_sigwait = Some(thread.tid());
        SigWaiting { lock: self.lock, locks: self.locks }
    }

    /// Moves from *locked* to *exiting*: registers the thread. The caller must halt all other
    /// threads.
    pub(super) fn sig_lock_to_exit(mut self, thread: &Thread) {
        executor::changes(Object::Process(self.lock.state.instance()));
        self.lock.p_end_thread.store(thread.tid(), Ordering::Relaxed);
        self.state.wake();
    }

    /// Moves from *locked* to *unlocked*.
    pub(super) fn unlock(self) {}
}

impl<'a> SigWaiting<'a> {
    /// Moves from *waiting* to *locked*.
    pub(super) fn sig_wait_to_lock(self) -> SigLocked<'a> {
        let mut state = self.lock.state.lock(self.locks);
        state.p_sigwait = None;
        state.wake();
        SigLocked { lock: self.lock, locks: self.locks, state }
    }

    /// Moves from *waiting* to *unlocked* (§4.1).
    pub(super) fn sig_wait_unlock(self) {
        self.sig_wait_to_lock().unlock();
    }
}

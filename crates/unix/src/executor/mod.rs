//! What virtual threads run on: [`Fiber`], [`park`], [`point`].
//!
//! A fiber is one virtual thread's execution: a stackful coroutine that stays on its worker, the
//! operating system's thread that stands for a processor. Locks and the kernel know fibers only through
//! the functions here; which executor is behind them they are not told. Outside of any fiber, at
//! boot and in tests of single parts, they act on the operating system's thread.

use std::sync::atomic::AtomicU32;
use std::thread::{self, Thread};

/// One execution that can sleep and be woken.
#[derive(Debug, Clone)]
pub(crate) struct Fiber(Thread);

impl Fiber {
    /// Wakes it, or lets its next [`park`] return at once.
    pub(crate) fn unpark(&self) {
        self.0.unpark();
    }
}

/// The one that runs here.
pub(crate) fn current() -> Fiber {
    Fiber(thread::current())
}

/// Sleeps until somebody calls [`Fiber::unpark`]; it may have been called before, and may return for
/// nothing.
pub(crate) fn park() {
    thread::park();
}

/// A place where the simulated executor may let another fiber run. Nothing in the parallel one.
pub(crate) fn point() {}

/// Called after each failed attempt at a simple lock: `word` is 0 when the next may succeed.
pub(crate) fn spin(_word: &AtomicU32) {
    std::hint::spin_loop();
}

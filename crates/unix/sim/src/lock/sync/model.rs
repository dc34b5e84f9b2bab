//! loom's atomics and threads instead of the processor's atomics and fibers, and [`ModelFault`]:
//! the ways to weaken them.
//!
//! A model that holds proves little unless it can fail, so each fault must be detected by at least
//! one model. The code of the protocol is unchanged: the fault is in the atomics that it uses.

use super::Ordering;
use std::cell::Cell;

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lock) enum ModelFault {
    /// No fault.
    None,
    /// The lock is taken without acquire ordering.
    TakeRelaxed,
    /// The lock is released without release ordering.
    GiveBackRelaxed,
    /// The lock is handed over without release ordering.
    HandOverRelaxed,
    /// A grant is stored without release ordering.
    GrantRelaxed,
    /// An exchange that would set exactly these bits sets none.
    Unmarked(u32),
    /// A fiber that is granted the lock is not woken.
    Unwoken,
}

thread_local! {
    // loom runs all threads of a model on the thread that calls the model.
    static FAULT: Cell<ModelFault> = const { Cell::new(ModelFault::None) };
}

/// Sets the fault for the models that this thread runs from now on.
pub(in crate::lock) fn set(fault: ModelFault) {
    FAULT.set(fault);
}

fn weakened(ordering: Ordering, fault: ModelFault) -> Ordering {
    if FAULT.get() == fault { Ordering::Relaxed } else { ordering }
}

/// A word as loom sees it.
#[derive(Debug)]
pub(in crate::lock) struct AtomicU32(loom::sync::atomic::AtomicU32);

impl AtomicU32 {
    pub(in crate::lock) fn new(value: u32) -> Self {
        Self(loom::sync::atomic::AtomicU32::new(value))
    }

    pub(in crate::lock) fn load(&self, ordering: Ordering) -> u32 {
        self.0.load(ordering)
    }

    pub(in crate::lock) fn store(&self, value: u32, ordering: Ordering) {
        self.0.store(value, weakened(ordering, ModelFault::HandOverRelaxed));
    }

    pub(in crate::lock) fn compare_exchange_weak(
        &self,
        now: u32,
        next: u32,
        ordering: Ordering,
        failed: Ordering,
    ) -> Result<u32, u32> {
        let unmarked = FAULT.get() == ModelFault::Unmarked(next & !now);
        let next = if unmarked { now } else { next };
        let ordering = weakened(ordering, ModelFault::TakeRelaxed);
        self.0.compare_exchange_weak(now, next, ordering, failed)
    }

    pub(in crate::lock) fn fetch_sub(&self, value: u32, ordering: Ordering) -> u32 {
        self.0.fetch_sub(value, weakened(ordering, ModelFault::GiveBackRelaxed))
    }
}

/// A flag as loom sees it.
#[derive(Debug)]
pub(in crate::lock) struct AtomicBool(loom::sync::atomic::AtomicBool);

impl AtomicBool {
    pub(in crate::lock) fn new(value: bool) -> Self {
        Self(loom::sync::atomic::AtomicBool::new(value))
    }

    pub(in crate::lock) fn load(&self, ordering: Ordering) -> bool {
        self.0.load(ordering)
    }

    pub(in crate::lock) fn store(&self, value: bool, ordering: Ordering) {
        self.0.store(value, weakened(ordering, ModelFault::GrantRelaxed));
    }
}

/// loom's mutex instead of the gate: a thread that spins in a model needs a fair scheduler.
#[derive(Debug)]
pub(in crate::lock) struct Gate<T>(loom::sync::Mutex<T>);

impl<T> Gate<T> {
    pub(in crate::lock) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        body(&mut self.0.lock().expect("no thread panics at the gate"))
    }
}

impl<T: Default> Default for Gate<T> {
    fn default() -> Self {
        Self(loom::sync::Mutex::new(T::default()))
    }
}

/// loom's threads instead of fibers. They sleep on a condition variable, because loom's own unpark
/// orders memory even for a thread that does not park.
pub(in crate::lock) mod executor {
    use super::{FAULT, ModelFault};
    use loom::sync::{Arc, Condvar, Mutex};

    #[derive(Debug, Default)]
    struct ModelToken {
        there: Mutex<bool>,
        came: Condvar,
    }

    loom::thread_local!(static TOKEN: Arc<ModelToken> = Arc::default());

    #[derive(Debug)]
    pub(in crate::lock) struct Fiber(Arc<ModelToken>);

    impl Fiber {
        pub(in crate::lock) fn unpark(&self) {
            if FAULT.get() != ModelFault::Unwoken {
                *self.0.there.lock().expect("no thread panics with it") = true;
                self.0.came.notify_one();
            }
        }
    }

    pub(in crate::lock) fn current() -> Fiber {
        Fiber(TOKEN.with(Arc::clone))
    }

    pub(in crate::lock) fn park() {
        let token = TOKEN.with(Arc::clone);
        let mut there = token.there.lock().expect("no thread panics with it");
        while !*there {
            there = token.came.wait(there).expect("no thread panics with it");
        }
        *there = false;
    }

    pub(in crate::lock) fn turn() {}
}

//! What the protocol of blocking locks is written with: the processor's atomics and the executor's
//! fibers, or loom's when it is checked as a model (`RUSTFLAGS="--cfg loom"`).

#[cfg(not(loom))]
pub(super) use crate::executor;
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// loom's threads in the place of fibers.
#[cfg(loom)]
pub(super) mod executor {
    use super::AtomicU32;
    use loom::thread::{self, Thread};

    pub(in crate::lock) struct Fiber(Thread);

    impl Fiber {
        pub(in crate::lock) fn unpark(&self) {
            self.0.unpark();
        }
    }

    pub(in crate::lock) fn current() -> Fiber {
        Fiber(thread::current())
    }

    pub(in crate::lock) fn park() {
        thread::park();
    }

    pub(in crate::lock) fn point() {}

    pub(in crate::lock) fn spin(_word: &AtomicU32) {
        thread::yield_now();
    }
}

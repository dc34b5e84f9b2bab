// The crate's locks, and as much around them as they need. Each program here includes it.

#[path = "../../src/lock/mod.rs"]
mod lock;
#[path = "../../src/mode.rs"]
mod mode;

use lock::lock_order::*;
use lock::*;
use mode::Mode;

/// Nobody runs but the program itself.
mod executor {
    pub(crate) struct Fiber;

    impl Fiber {
        pub(crate) fn unpark(&self) {}
    }

    pub(crate) fn current() -> Fiber {
        Fiber
    }

    pub(crate) fn park() {}

    pub(crate) fn point() {}

    pub(crate) fn processor() -> usize {
        0
    }

    pub(crate) fn spin(_: &std::sync::atomic::AtomicU32) {}

    pub(crate) fn splhigh() -> u8 {
        0
    }

    pub(crate) fn splx(_: u8) {}
}

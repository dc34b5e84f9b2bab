//! loom's [`AtomicU64`], from which a model can take an ordering or a store away: [`Fault`].
//!
//! A model that holds proves little as long as nobody has seen it fail. So each model is also run
//! with the protocol broken in one place, and must notice. The protocol's own code stays as it is:
//! the fault is in the words that it stores to. The models of the lane and of the heap choose one,
//! and tell by their own layout which words it concerns.

use std::cell::Cell;

use loom::sync::atomic::Ordering;

/// What is broken, on purpose.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Words of which this returns `true` are stored without release.
    StoreRelaxed(fn(u64) -> bool),
    /// Words of which this returns `true` are not stored.
    StoreOmitted(fn(u64) -> bool),
    /// Words are loaded without acquire.
    LoadsRelaxed,
    /// The side that goes to sleep has no fence.
    SleeperUnfenced,
    /// The side that decides whether to wake it has none.
    WakerUnfenced,
    /// Nothing is stored with release.
    StoresRelaxed,
    /// Exchanges neither acquire nor release.
    ExchangesRelaxed,
    /// Words are compared first, and exchanged then.
    ExchangesTorn,
    /// There are no fences.
    Unfenced,
}

thread_local! {
    // loom runs all threads of a model on the thread that called it.
    static FAULT: Cell<Fault> = const { Cell::new(Fault::None) };
}

/// Breaks what this thread's models store from here on.
pub(crate) fn set(fault: Fault) {
    FAULT.set(fault);
}

/// What is broken.
pub(crate) fn fault() -> Fault {
    FAULT.get()
}

/// A word as loom sees it.
#[derive(Debug)]
pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self(loom::sync::atomic::AtomicU64::new(value))
    }

    pub(crate) fn load(&self, ordering: Ordering) -> u64 {
        let relaxed = matches!(fault(), Fault::LoadsRelaxed);
        self.0.load(if relaxed { Ordering::Relaxed } else { ordering })
    }

    pub(crate) fn store(&self, value: u64, ordering: Ordering) {
        let relaxed = match fault() {
            Fault::StoreRelaxed(of) => of(value),
            Fault::StoreOmitted(of) if of(value) => return,
            Fault::StoresRelaxed => true,
            _ => false,
        };
        self.0.store(value, if relaxed { Ordering::Relaxed } else { ordering });
    }

    pub(crate) fn swap(&self, value: u64, ordering: Ordering) -> u64 {
        let relaxed = matches!(fault(), Fault::ExchangesRelaxed);
        self.0.swap(value, if relaxed { Ordering::Relaxed } else { ordering })
    }

    pub(crate) fn compare_exchange(
        &self,
        expected: u64,
        value: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        match fault() {
            Fault::ExchangesTorn => match self.0.load(failure) {
                found if found == expected => {
                    self.0.store(value, Ordering::Release);
                    Ok(found)
                }
                found => Err(found),
            },
            Fault::ExchangesRelaxed => {
                self.0.compare_exchange(expected, value, Ordering::Relaxed, Ordering::Relaxed)
            }
            _ => self.0.compare_exchange(expected, value, success, failure),
        }
    }
}

/// A fence as loom sees it.
pub(crate) fn fence(ordering: Ordering) {
    if !matches!(fault(), Fault::Unfenced) {
        loom::sync::atomic::fence(ordering);
    }
}

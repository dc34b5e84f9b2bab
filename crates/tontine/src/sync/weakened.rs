//! Loom's [`AtomicU64`] with injected faults: a model can remove an ordering or a store
//! ([`InjectedFault`]).
//!
//! A passing model proves little unless it can fail. So each model also runs with one fault in the
//! protocol, and must detect that fault. The protocol's own code is unchanged: the fault is in the
//! atomic words that it accesses. The models of the lane and of the heap choose a fault, and use
//! their own layout to select the words that it affects.

use std::cell::Cell;

use loom::sync::atomic::Ordering;

/// Tests that run a model each: the test's name, the run, and, if the run must find a fault, a part
/// of the panic's message.
macro_rules! models {
    ($($(#[$doc:meta])* $name:ident: $run:expr $(=> $message:literal)?;)*) => { $(
        $(#[$doc])*
        #[test]
        $(#[should_panic = $message])?
        fn $name() {
            $run;
        }
    )* };
}
pub(crate) use models;

/// An injected fault.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InjectedFault {
    /// No fault.
    None,
    /// Values for which this returns `true` are stored without release.
    StoreRelaxed(fn(u64) -> bool),
    /// Values for which this returns `true` are not stored.
    StoreOmitted(fn(u64) -> bool),
    /// Words are loaded without acquire.
    LoadsRelaxed,
    /// The end that is about to sleep executes no fence.
    SleeperUnfenced,
    /// The end that decides whether to wake the other executes no fence.
    WakerUnfenced,
    /// No store has release ordering.
    StoresRelaxed,
    /// Exchanges neither acquire nor release.
    ExchangesRelaxed,
    /// Each exchange is a load and a separate store.
    ExchangesTorn,
    /// No fence has an effect.
    Unfenced,
}

thread_local! {
    // Loom runs all threads of a model on the thread that called it.
    static FAULT: Cell<InjectedFault> = const { Cell::new(InjectedFault::None) };
}

/// Sets the fault for this thread's subsequent models.
pub(crate) fn set(fault: InjectedFault) {
    FAULT.set(fault);
}

/// Returns this thread's current fault.
pub(crate) fn fault() -> InjectedFault {
    FAULT.get()
}

/// Loom's atomic word, with the fault.
#[derive(Debug)]
pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self(loom::sync::atomic::AtomicU64::new(value))
    }

    pub(crate) fn load(&self, ordering: Ordering) -> u64 {
        let relaxed = matches!(fault(), InjectedFault::LoadsRelaxed);
        self.0.load(if relaxed { Ordering::Relaxed } else { ordering })
    }

    pub(crate) fn store(&self, value: u64, ordering: Ordering) {
        let relaxed = match fault() {
            InjectedFault::StoreRelaxed(of) => of(value),
            InjectedFault::StoreOmitted(of) if of(value) => return,
            InjectedFault::StoresRelaxed => true,
            _ => false,
        };
        self.0.store(value, if relaxed { Ordering::Relaxed } else { ordering });
    }

    pub(crate) fn swap(&self, value: u64, ordering: Ordering) -> u64 {
        let relaxed = matches!(fault(), InjectedFault::ExchangesRelaxed);
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
            InjectedFault::ExchangesTorn => match self.0.load(failure) {
                found if found == expected => {
                    self.0.store(value, Ordering::Release);
                    Ok(found)
                }
                found => Err(found),
            },
            InjectedFault::ExchangesRelaxed => {
                self.0.compare_exchange(expected, value, Ordering::Relaxed, Ordering::Relaxed)
            }
            _ => self.0.compare_exchange(expected, value, success, failure),
        }
    }
}

/// Executes loom's fence, unless the fault is [`InjectedFault::Unfenced`].
pub(crate) fn fence(ordering: Ordering) {
    if !matches!(fault(), InjectedFault::Unfenced) {
        loom::sync::atomic::fence(ordering);
    }
}

//! The two spinlocks of source 004, between threads and between processes: `spinlock-tas`, which
//! swaps until it succeeds; `spinlock-ttas`, which reads before it swaps, and pauses; and the
//! `-process` variant of each.
//!
//! One end acquires the lock and sets a bit; the other acquires the lock and resets it. An end that
//! acquires the lock before the bit has the awaited value releases the lock immediately and tries
//! again; each end counts these rounds. Lock and bit share one cache line, as in a plain structure.
//! A process that is killed while it holds the lock never releases it.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, Ordering};

use tontine_host::error::Result;
use tontine_host::os::shared::{Shareable, SharedMapping};
use tontine_host::peer::{PeerHandle, SPINS};

use crate::about::{AfterKill, Asked, Between, Death, Idle, Listing, Mechanism, Need, Twin};
use crate::driver::{Couple, Driver, PairDriver, PairUser};
use crate::end::{Early, Inlet, Outlet, TransferError, TwoWay, check, spin_until};
use crate::region::Common;
use crate::slot::{CAPACITY, MessageWords};

/// `spinlock-tas` or `spinlock-ttas`.
pub struct SpinThreads<const TTAS: bool>;

/// `spinlock-tas-process` or `spinlock-ttas-process`.
pub struct SpinProcesses<const TTAS: bool>;

impl<const TTAS: bool> Driver for SpinThreads<TTAS> {
    const MECHANISM: Mechanism = if TTAS {
        between_threads("spinlock-ttas", "spinlock-ttas-process", &TTAS_THREADS)
    } else {
        between_threads("spinlock-tas", "spinlock-tas-process", &TAS_THREADS)
    };

    fn pairs<U: PairUser>(user: U) -> Option<U::Out> {
        Some(user.threads::<SpinlockEnd<TTAS>, 1>())
    }
}

impl<const TTAS: bool> Driver for SpinProcesses<TTAS> {
    const MECHANISM: Mechanism = if TTAS {
        between_processes("spinlock-ttas-process", &TTAS_PROCESSES)
    } else {
        between_processes("spinlock-tas-process", &TAS_PROCESSES)
    };

    fn pairs<U: PairUser>(user: U) -> Option<U::Out> {
        Some(user.processes::<SpinlockEnd<TTAS>, 1>())
    }
}

const TAS_THREADS: [Listing; 1] = [Listing::new(
    Asked::RoundTrip,
    "a bit under a spinlock that swaps until it wins; two threads",
)];

const TTAS_THREADS: [Listing; 1] = [Listing::new(
    Asked::RoundTrip,
    "a bit under a spinlock that reads before it swaps; two threads",
)];

const TAS_PROCESSES: [Listing; 2] = [
    Listing::new(Asked::RoundTrip, "spinlock-tas between two processes"),
    Listing::new(Asked::Survival, "a slot under a spinlock that swaps until it wins"),
];

const TTAS_PROCESSES: [Listing; 2] = [
    Listing::new(Asked::RoundTrip, "spinlock-ttas between two processes"),
    Listing::new(Asked::Survival, "a slot under a spinlock that reads before it swaps"),
];

const fn between_threads(
    name: &'static str,
    processes: &'static str,
    rows: &'static [Listing],
) -> Mechanism {
    Mechanism {
        idle: Idle::Spins,
        between: Between::Threads,
        needs: &[Need::SharedMemory],
        twin: Some(Twin::BetweenProcesses(processes)),
        ..Mechanism::new(name, Death::TakesBoth, rows)
    }
}

const fn between_processes(row: &'static str, rows: &'static [Listing]) -> Mechanism {
    Mechanism {
        idle: Idle::Spins,
        needs: &[Need::SharedMemory],
        ..Mechanism::new(row, Death::LeavesOne { row, survivor: AfterKill::Wedged }, rows)
    }
}

/// A lock and the values that it guards.
#[derive(Debug)]
#[repr(C, align(128))]
struct SpinlockShared {
    lock: AtomicU32,
    bit: AtomicU32,
    slot: MessageWords,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for SpinlockShared {}

/// One end. Without `EXCLUDES` it tries once to acquire the lock and continues in either case, as
/// the second program of source 004 does.
pub struct SpinlockEnd<const TTAS: bool, const EXCLUDES: bool = true> {
    state: Common<SpinlockShared>,
    /// The value of the bit for which this end waits. The end writes the other value.
    awaited: u32,
    bytes: usize,
    tries: u64,
    rounds: u64,
}

impl<const TTAS: bool, const EXCLUDES: bool> PairDriver for SpinlockEnd<TTAS, EXCLUDES> {
    type Half = Self;
    type End<const BYTES: usize> = Self;

    fn pair(bytes: usize) -> Result<Couple<Self>> {
        let (one, two) = Common::two(SharedMapping::<SpinlockShared>::posix()?);
        let end = |state, awaited| Self { state, awaited, bytes, tries: 0, rounds: 0 };
        Ok(Couple::of((end(one, 0), end(two, 1))))
    }

    /// Opens an end. An end sends while it holds the lock, which it acquired in order to receive,
    /// so the first end starts with the lock held.
    fn open<const BYTES: usize>(half: Self, peers: &[PeerHandle<'_>]) -> Result<Self> {
        if half.awaited == 0 {
            half.lock(peers)?;
        }
        Ok(half)
    }
}

impl<const TTAS: bool, const EXCLUDES: bool> SpinlockEnd<TTAS, EXCLUDES> {
    #[inline(always)]
    fn lock(&self, peers: &[PeerHandle<'_>]) -> Result<()> {
        let lock = &self.state.lock;
        if !EXCLUDES {
            // The condition is the whole attempt; its result is ignored.
            let _ = lock.load(Ordering::Relaxed) == 0 && lock.swap(1, Ordering::Acquire) == 0;
            return Ok(());
        }
        // SYNC spinlock: pairs with `unlock`.
        if !TTAS {
            return spin_until(peers, false, || lock.swap(1, Ordering::Acquire) == 0);
        }
        // SYNC spinlock: pairs with `unlock`.
        while lock.swap(1, Ordering::Acquire) != 0 {
            spin_until(peers, true, || lock.load(Ordering::Relaxed) == 0)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn unlock(&self) {
        // SYNC spinlock: pairs with the swap in `lock`.
        self.state.lock.store(0, Ordering::Release);
    }
}

impl<const TTAS: bool, const EXCLUDES: bool> Outlet for SpinlockEnd<TTAS, EXCLUDES> {
    #[inline(always)]
    fn send(&mut self, message: &[u8], _: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        self.state.slot.write(message);
        self.state.bit.store(1 - self.awaited, Ordering::Relaxed);
        self.unlock();
        Ok(())
    }
}

impl<const TTAS: bool, const EXCLUDES: bool> Inlet for SpinlockEnd<TTAS, EXCLUDES> {
    #[inline(always)]
    fn receive<R>(
        &mut self,
        peers: &[PeerHandle<'_>],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, TransferError> {
        self.rounds += 1;
        loop {
            self.tries += 1;
            self.lock(peers)?;
            if self.state.bit.load(Ordering::Relaxed) == self.awaited {
                return Ok(look(self.state.slot.read(self.bytes, &mut [0; CAPACITY])));
            }
            self.unlock();
            if self.tries.is_multiple_of(u64::from(SPINS)) {
                check(peers)?;
            }
        }
    }
}

impl<const TTAS: bool, const EXCLUDES: bool> TwoWay for SpinlockEnd<TTAS, EXCLUDES> {
    fn early(&self) -> Option<Early> {
        Some(Early { skipped: self.tries - self.rounds, rounds: self.rounds })
    }
}

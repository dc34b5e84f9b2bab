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

use tontine_bench::error::Result;
use tontine_bench::os::shared::{Shareable, SharedMapping};
use tontine_bench::peer::SPINS;

use crate::about::{AfterKill, Between, Death, Listing, Mechanism, RowKind, Twin};
use crate::driver::{PairDriver, PairHalves};
use crate::end::{Early, Inlet, Outlet, Peers, Transfer, TwoWay, check, spin_until};
use crate::region::Common;
use crate::slot::{CAPACITY, MessageWords};
use tontine_bench::about::Idling;

pub const TAS: Mechanism = between_threads(
    "spinlock-tas",
    "spinlock-tas-process",
    &[Listing::new(
        RowKind::RoundTrip,
        "a bit under a spinlock that swaps until it wins; two threads",
    )],
);

pub const TTAS: Mechanism = between_threads(
    "spinlock-ttas",
    "spinlock-ttas-process",
    &[Listing::new(
        RowKind::RoundTrip,
        "a bit under a spinlock that reads before it swaps; two threads",
    )],
);

pub const TAS_PROCESS: Mechanism = between_processes(
    "spinlock-tas-process",
    &[
        Listing::new(RowKind::RoundTrip, "spinlock-tas between two processes"),
        Listing::new(RowKind::Survival, "a slot under a spinlock that swaps until it wins"),
    ],
);

pub const TTAS_PROCESS: Mechanism = between_processes(
    "spinlock-ttas-process",
    &[
        Listing::new(RowKind::RoundTrip, "spinlock-ttas between two processes"),
        Listing::new(RowKind::Survival, "a slot under a spinlock that reads before it swaps"),
    ],
);

const fn between_threads(
    name: &'static str,
    processes: &'static str,
    rows: &'static [Listing],
) -> Mechanism {
    Mechanism {
        idle: Idling::Spins,
        between: Between::Threads,
        twin: Some(Twin::BetweenProcesses(processes)),
        ..Mechanism::new(name, Death::TakesBoth, rows)
    }
}

const fn between_processes(row: &'static str, rows: &'static [Listing]) -> Mechanism {
    Mechanism {
        idle: Idling::Spins,
        ..Mechanism::new(row, Death::LeavesOne { row, survivor: AfterKill::Wedged }, rows)
    }
}

#[derive(Debug)]
#[repr(C, align(128))]
struct SpinlockShared {
    lock: AtomicU32,
    bit: AtomicU32,
    slot: MessageWords,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for SpinlockShared {}

/// An end. Without `EXCLUDES` it tries once to acquire the lock and continues in either case, as
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

    fn pair(bytes: usize) -> Result<PairHalves<Self>> {
        let (one, two) = Common::two(SharedMapping::<SpinlockShared>::posix()?);
        let end = |state, awaited| Self { state, awaited, bytes, tries: 0, rounds: 0 };
        Ok(PairHalves::of((end(one, 0), end(two, 1))))
    }

    /// Opens an end. An end sends while it holds the lock, which it acquired in order to receive,
    /// so the first end starts with the lock held.
    fn open<const BYTES: usize>(half: Self, peers: Peers<'_>) -> Result<Self> {
        if half.awaited == 0 {
            half.lock(peers)?;
        }
        Ok(half)
    }
}

impl<const TTAS: bool, const EXCLUDES: bool> SpinlockEnd<TTAS, EXCLUDES> {
    #[inline(always)]
    fn lock(&self, peers: Peers<'_>) -> Result<()> {
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
    fn send(&mut self, message: &[u8], _: Peers<'_>) -> Transfer<()> {
        self.state.slot.write(message);
        self.state.bit.store(1 - self.awaited, Ordering::Relaxed);
        self.unlock();
        Ok(())
    }
}

impl<const TTAS: bool, const EXCLUDES: bool> Inlet for SpinlockEnd<TTAS, EXCLUDES> {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
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

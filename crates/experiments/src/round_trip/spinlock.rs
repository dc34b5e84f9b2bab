//! Seed 004's two spinlocks, between threads and between processes.
//!
//! One end takes the lock and sets a bit, the other takes the lock and resets it. Whoever obtains
//! the lock and finds the bit not yet where it wants it releases at once and tries again; the ping
//! counts these rounds as skipped. Lock and bit lie in one line, as in a plain structure.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, Ordering};

use tontine_host::os::shared::{Shareable, Shared};
use tontine_host::peer::{Peer, SPINS, spin_until};
use tontine_host::trouble::Result;

use super::harness::{self, End, Plan, Timed};

/// A lock and the bit under it.
#[derive(Debug)]
#[repr(C, align(128))]
struct Locked {
    lock: AtomicU32,
    bit: AtomicU32,
}

// SAFETY: only atomics; zero is valid.
unsafe impl Shareable for Locked {}

/// Times a spinlock: `TTAS` looks before it swaps, and pauses.
///
/// Returns the skipped rounds too, as their number before each timed round ended.
pub(super) fn run<const TTAS: bool>(plan: &Plan, threads: bool) -> Result<(Timed, Skipped)> {
    let state = Shared::<Locked>::posix()?;
    let ping = |peer: Peer<'_>| {
        let mut end = Holder::<TTAS> { state: &state, awaited: 0, tries: 0, rounds: 0, peer };
        // The ping always waits with the lock in hand, so it starts with it.
        end.lock()?;
        let timed = harness::time(plan, &mut end)?;
        Ok((timed, Skipped { skipped: end.tries - end.rounds, rounds: end.rounds }))
    };
    let echo = |peer: Peer<'_>| {
        let mut end = Holder::<TTAS> { state: &state, awaited: 1, tries: 0, rounds: 0, peer };
        harness::answer(plan, &mut end)
    };
    if threads {
        harness::between_threads(plan, ping, echo)
    } else {
        harness::between_processes(plan, ping, echo)
    }
}

/// How often the ping came too early.
#[derive(Debug, Clone, Copy)]
pub(super) struct Skipped {
    /// Times that the lock was obtained before the other side had reset the bit.
    pub(super) skipped: u64,
    /// Rounds completed meanwhile, those of the warm-up among them.
    pub(super) rounds: u64,
}

struct Holder<'a, const TTAS: bool> {
    state: &'a Locked,
    /// The bit's value for which this end waits; it writes the other.
    awaited: u32,
    tries: u64,
    rounds: u64,
    peer: Peer<'a>,
}

impl<const TTAS: bool> Holder<'_, TTAS> {
    #[inline(always)]
    fn lock(&self) -> Result<()> {
        let lock = &self.state.lock;
        // SYNC spinlock: pairs with `unlock`.
        if !TTAS {
            return spin_until(self.peer, false, || lock.swap(1, Ordering::Acquire) == 0);
        }
        // SYNC spinlock: pairs with `unlock`.
        while lock.swap(1, Ordering::Acquire) != 0 {
            spin_until(self.peer, true, || lock.load(Ordering::Relaxed) == 0)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn unlock(&self) {
        // SYNC spinlock: pairs with the swap in `lock`.
        self.state.lock.store(0, Ordering::Release);
    }
}

impl<const TTAS: bool> End for Holder<'_, TTAS> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        self.state.bit.store(1 - self.awaited, Ordering::Relaxed);
        self.unlock();
        Ok(())
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        self.rounds += 1;
        loop {
            self.tries += 1;
            self.lock()?;
            if self.state.bit.load(Ordering::Relaxed) == self.awaited {
                return Ok(());
            }
            self.unlock();
            if self.tries.is_multiple_of(u64::from(SPINS)) {
                self.peer.check()?;
            }
        }
    }
}

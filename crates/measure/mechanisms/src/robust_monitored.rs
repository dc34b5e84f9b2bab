//! The ring of [`robust_ring`](crate::robust_ring), whose ends also check whether the other end is
//! alive: `robust-ring-monitored`.
//!
//! POSIX offers a robust mutex as the means to learn of an owner's death. Each end therefore holds
//! one of its own for its whole life. An end that has waited for 10 ms tries to lock the mutex of
//! the other end, and EOWNERDEAD tells it that the other end is dead. It then takes back from its
//! ring the messages that were not read.
//!
//! A `send` into a full ring waits without a check: in `survival` at most one message is in flight.

#![allow(unsafe_code, reason = "POSIX mutexes in shared memory")]

use std::cell::UnsafeCell;
use std::time::Duration;

use tontine_bench::error::{ErrorContext, MeasureError, Result};
use tontine_bench::os::shared::{Shareable, SharedMapping};

use crate::about::{AfterKill, Death, Listing, Mechanism, RowKind};
use crate::driver::{PairDriver, PairHalves};
use crate::end::{Duplex, Inlet, Outlet, Patient, Peers, Transfer, TransferError, TwoWay, check};
use crate::monitor::{error, initialise_mutex};
use crate::region::Common;
use crate::ring::{RingEnd, Under};
use crate::robust_ring::Robust;

/// Interval between two checks of the other end.
const CHECK: Duration = Duration::from_millis(10);

pub struct MonitoredRing;

pub const MECHANISM: Mechanism = Mechanism::new(
    "robust-ring-monitored",
    // A process that dies inside a condition variable may leave it unusable.
    Death::LeavesOne { row: "robust-ring-monitored", survivor: AfterKill::Either },
    &[Listing::new(
        RowKind::Survival,
        "the same; also tries every 10 ms to lock a robust mutex that the other end holds",
    )
    .calling("futex(FUTEX_WAIT_BITSET) with a timeout of 10 ms; none for the check")],
);

/// A robust mutex for each end, which that end holds for its whole life.
#[repr(C)]
struct LifeMutexes([UnsafeCell<libc::pthread_mutex_t>; 2]);

// SAFETY: mutexes are designed for concurrent use.
unsafe impl Sync for LifeMutexes {}
// SAFETY: zero bytes are valid; `pair` initialises the mutexes before their first use.
unsafe impl Shareable for LifeMutexes {}

/// An end before it is opened.
pub struct UnlockedEnd {
    rings: Duplex<RingEnd<Robust>, RingEnd<Robust>>,
    lives: Common<LifeMutexes>,
    side: usize,
}

/// An end, which holds its mutex.
pub struct WatchfulEnd(UnlockedEnd);

impl WatchfulEnd {
    /// Returns `true` if the other end has died.
    fn other_is_dead(&self) -> Result<bool> {
        let other = self.0.lives.0[1 - self.0.side].get();
        // SAFETY: `pair` initialised the mutex, and `lives` keeps it mapped.
        let returned = unsafe { libc::pthread_mutex_trylock(other) };
        match returned {
            libc::EBUSY => Ok(false),
            libc::EOWNERDEAD => Ok(true),
            // The other end is not open yet.
            // SAFETY: as above; this thread has just acquired the mutex.
            0 => error(unsafe { libc::pthread_mutex_unlock(other) })
                .during("pthread_mutex_unlock")
                .map(|()| false),
            _ => Err(error(returned).during("pthread_mutex_trylock").unwrap_err()),
        }
    }
}

impl Outlet for WatchfulEnd {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        self.0.rings.send(message, peers)
    }

    fn take_back(&mut self) -> Vec<Vec<u8>> {
        let ring = &mut self.0.rings.out;
        let mut unread = || ring.receive_within(Duration::ZERO, <[u8]>::to_vec).ok().flatten();
        std::iter::from_fn(&mut unread).collect()
    }
}

impl Inlet for WatchfulEnd {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        let mut look = Some(look);
        let mut once = |bytes: &[u8]| look.take().map(|look| look(bytes));
        let nothing = || MeasureError::fail("a message was looked at twice");
        loop {
            if let Some(seen) = self.0.rings.back.receive_within(CHECK, &mut once)? {
                return seen.ok_or_else(nothing).map_err(TransferError::from);
            }
            check(peers)?;
            if self.other_is_dead()? {
                // Its last message may have arrived after the wait.
                let last = self.0.rings.back.receive_within(Duration::ZERO, &mut once)?;
                let seen = last.ok_or(TransferError::Gone)?;
                return seen.ok_or_else(nothing).map_err(TransferError::from);
            }
        }
    }
}

impl TwoWay for WatchfulEnd {}

impl PairDriver for MonitoredRing {
    type Half = UnlockedEnd;
    type End<const BYTES: usize> = WatchfulEnd;

    fn pair(bytes: usize) -> Result<PairHalves<UnlockedEnd>> {
        let PairHalves { first, second, kept } = Under::<Robust>::pair(bytes)?;
        let lives = SharedMapping::<LifeMutexes>::anonymous()?;
        for mutex in &lives.0 {
            // SAFETY: the memory is mapped, and no thread uses the mutex yet.
            unsafe { initialise_mutex(mutex.get(), true) }?;
        }
        let lives = Common::two(lives);
        let first = UnlockedEnd { rings: first, lives: lives.0, side: 0 };
        let second = UnlockedEnd { rings: second, lives: lives.1, side: 1 };
        Ok(PairHalves { first, second, kept })
    }

    fn open<const BYTES: usize>(half: UnlockedEnd, _: Peers<'_>) -> Result<WatchfulEnd> {
        let own = half.lives.0[half.side].get();
        // SAFETY: `pair` initialised the mutex, and `lives` keeps it mapped.
        error(unsafe { libc::pthread_mutex_lock(own) }).during("pthread_mutex_lock")?;
        Ok(WatchfulEnd(half))
    }
}

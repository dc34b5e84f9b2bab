//! Unnamed POSIX semaphores in shared memory: a [`Semaphore`], and a pair of them, each with a slot
//! that is full once the semaphore is posted: `semaphore` and `semaphore-process`.

#![allow(unsafe_code, reason = "POSIX semaphores")]

use std::cell::UnsafeCell;
use std::io;

use tontine_host::error::{ErrorContext, Result};
use tontine_host::os::checked;
use tontine_host::os::shared::{Shareable, SharedMapping};
use tontine_host::peer::PeerHandle;

use crate::about::{AfterKill, Asked, Between, Death, Listing, Mechanism, Need, Twin};
use crate::driver::{Couple, Driver, PairDriver, PairUser};
use crate::end::{Inlet, Outlet, TransferError, TwoWay, check};
use crate::region::Common;
use crate::slot::{CAPACITY, MessageWords};

/// `semaphore`.
pub struct SemaphoreThreads;

/// `semaphore-process`.
pub struct SemaphoreProcesses;

impl Driver for SemaphoreThreads {
    const MECHANISM: Mechanism = Mechanism {
        between: Between::Threads,
        needs: &[Need::SharedMemory],
        twin: Some(Twin::BetweenProcesses("semaphore-process")),
        ..Mechanism::new(
            "semaphore",
            Death::TakesBoth,
            &[Listing::new(Asked::RoundTrip, "two POSIX semaphores; two threads")],
        )
    };

    fn pairs<U: PairUser>(user: U) -> Option<U::Out> {
        Some(user.threads::<Poster, WORD>())
    }
}

impl Driver for SemaphoreProcesses {
    const MECHANISM: Mechanism = Mechanism {
        needs: &[Need::SharedMemory],
        ..Mechanism::new(
            "semaphore-process",
            Death::LeavesOne { row: "semaphore-process", survivor: AfterKill::Wedged },
            &[
                Listing::new(
                    Asked::RoundTrip,
                    "two POSIX semaphores in shared memory; two processes",
                ),
                Listing::new(Asked::Survival, "two slots, each with a POSIX semaphore"),
                Listing::new(Asked::WakeUp, "a POSIX semaphore in shared memory"),
            ],
        )
    };

    fn pairs<U: PairUser>(user: U) -> Option<U::Out> {
        Some(user.processes::<Poster, WORD>())
    }
}

/// Size in bytes of the word that a round trip passes under the semaphores.
const WORD: usize = size_of::<u64>();

#[repr(C)]
struct SemaphoreShared {
    /// Each semaphore is posted by the end with the same number.
    semaphores: [Semaphore; 2],
    slots: [MessageWords; 2],
}

// SAFETY: both fields are shareable; `pair` initialises the semaphores before their use.
unsafe impl Shareable for SemaphoreShared {}

/// One of the two ends.
pub struct Poster {
    board: Common<SemaphoreShared>,
    side: usize,
    bytes: usize,
}

impl PairDriver for Poster {
    type Half = Self;
    type End<const BYTES: usize> = Self;

    fn pair(bytes: usize) -> Result<Couple<Self>> {
        let board = SharedMapping::<SemaphoreShared>::posix()?;
        for semaphore in &board.semaphores {
            semaphore.start_at_zero()?;
        }
        let (one, two) = Common::two(board);
        let end = |board, side| Self { board, side, bytes };
        Ok(Couple::of((end(one, 0), end(two, 1))))
    }

    fn open<const BYTES: usize>(half: Self, _: &[PeerHandle<'_>]) -> Result<Self> {
        Ok(half)
    }
}

impl Outlet for Poster {
    #[inline(always)]
    fn send(&mut self, message: &[u8], _: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        self.board.slots[self.side].write(message);
        Ok(self.board.semaphores[self.side].post()?)
    }
}

impl Inlet for Poster {
    #[inline(always)]
    fn receive<R>(
        &mut self,
        peers: &[PeerHandle<'_>],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, TransferError> {
        let other = 1 - self.side;
        while self.board.semaphores[other].wait_or_signal()? {
            check(peers)?;
        }
        Ok(look(self.board.slots[other].read(self.bytes, &mut [0; CAPACITY])))
    }
}

impl TwoWay for Poster {}

/// A semaphore on its own cache lines.
#[repr(C, align(128))]
pub struct Semaphore(UnsafeCell<libc::sem_t>);

// SAFETY: a semaphore is designed for concurrent use; only the C library accesses its content.
unsafe impl Sync for Semaphore {}
// SAFETY: zero bytes are a valid `sem_t`; the creator calls `start_at_zero` before the first use.
unsafe impl Shareable for Semaphore {}

impl Semaphore {
    /// Initialises the semaphore for several processes, at zero. Call it once, before any post or
    /// wait.
    ///
    /// # Errors
    /// Returns `Skipped` if the system has no process-shared semaphores.
    pub fn start_at_zero(&self) -> Result<()> {
        // SAFETY: the memory is mapped, aligned, and not used elsewhere yet.
        checked(unsafe { libc::sem_init(self.0.get(), 1, 0) }).setting_up("sem_init")?;
        Ok(())
    }

    /// Increments the semaphore.
    ///
    /// # Errors
    /// Returns `Failed` if the semaphore is at its maximum.
    #[inline(always)]
    pub fn post(&self) -> Result<()> {
        // SAFETY: `start_at_zero` initialised the semaphore, which is mapped while it is borrowed.
        checked(unsafe { libc::sem_post(self.0.get()) }).during("sem_post")?;
        Ok(())
    }

    /// Waits until the semaphore is above zero and decrements it. Returns `true` if a signal
    /// interrupted the wait.
    ///
    /// # Errors
    /// Returns `Failed` if the semaphore is invalid.
    #[inline(always)]
    pub fn wait_or_signal(&self) -> Result<bool> {
        // SAFETY: as in `post`.
        if unsafe { libc::sem_wait(self.0.get()) } == 0 {
            return Ok(false);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            error => Err(error).during("sem_wait"),
        }
    }
}

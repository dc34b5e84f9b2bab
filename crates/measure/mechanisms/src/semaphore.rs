//! Unnamed POSIX semaphores in shared memory: a [`Semaphore`], and a pair of them, each with a slot
//! that is full once the semaphore is posted: `semaphore` and `semaphore-process`.

#![allow(unsafe_code, reason = "POSIX semaphores")]

use std::cell::UnsafeCell;
use std::io;

use tontine_bench::error::{ErrorContext, Result};
use tontine_bench::os::checked;
use tontine_bench::os::shared::{Shareable, SharedMapping};

use crate::about::{AfterKill, Between, Death, Listing, Mechanism, RowKind, Twin};
use crate::driver::{PairDriver, PairHalves};
use crate::end::{Inlet, Outlet, Peers, Transfer, TwoWay, check};
use crate::region::Common;
use crate::slot::{CAPACITY, MessageWords};

pub const THREADS: Mechanism = Mechanism {
    between: Between::Threads,
    twin: Some(Twin::BetweenProcesses("semaphore-process")),
    ..Mechanism::new(
        "semaphore",
        Death::TakesBoth,
        &[Listing::new(RowKind::RoundTrip, "two POSIX semaphores; two threads")],
    )
};

pub const PROCESSES: Mechanism = Mechanism::new(
    "semaphore-process",
    Death::LeavesOne { row: "semaphore-process", survivor: AfterKill::Wedged },
    &[
        Listing::new(RowKind::RoundTrip, "two POSIX semaphores in shared memory; two processes"),
        Listing::new(RowKind::Survival, "two slots, each with a POSIX semaphore"),
        Listing::new(RowKind::WakeUp, "a POSIX semaphore in shared memory"),
    ],
);

#[repr(C)]
struct SemaphoreShared {
    /// Each semaphore is posted by the end with the same number.
    semaphores: [Semaphore; 2],
    slots: [MessageWords; 2],
}

// SAFETY: both fields are shareable; `pair` initialises the semaphores before their use.
unsafe impl Shareable for SemaphoreShared {}

pub struct Poster {
    board: Common<SemaphoreShared>,
    side: usize,
    bytes: usize,
}

impl PairDriver for Poster {
    type Half = Self;
    type End<const BYTES: usize> = Self;

    fn pair(bytes: usize) -> Result<PairHalves<Self>> {
        let board = SharedMapping::<SemaphoreShared>::posix()?;
        for semaphore in &board.semaphores {
            semaphore.start_at_zero()?;
        }
        let (one, two) = Common::two(board);
        let end = |board, side| Self { board, side, bytes };
        Ok(PairHalves::of((end(one, 0), end(two, 1))))
    }

    fn open<const BYTES: usize>(half: Self, _: Peers<'_>) -> Result<Self> {
        Ok(half)
    }
}

impl Outlet for Poster {
    #[inline(always)]
    fn send(&mut self, message: &[u8], _: Peers<'_>) -> Transfer<()> {
        self.board.slots[self.side].write(message);
        Ok(self.board.semaphores[self.side].post()?)
    }
}

impl Inlet for Poster {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
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
    pub fn start_at_zero(&self) -> Result<()> {
        // SAFETY: the memory is mapped, aligned, and not used elsewhere yet.
        checked(unsafe { libc::sem_init(self.0.get(), 1, 0) }).setting_up("sem_init")?;
        Ok(())
    }

    #[inline(always)]
    pub fn post(&self) -> Result<()> {
        // SAFETY: `start_at_zero` initialised the semaphore, which is mapped while it is borrowed.
        checked(unsafe { libc::sem_post(self.0.get()) }).during("sem_post")?;
        Ok(())
    }

    /// Waits until the semaphore is above zero and decrements it. Returns `true` if a signal
    /// interrupted the wait.
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

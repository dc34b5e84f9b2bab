//! The textbook ring, guarded by three POSIX semaphores: `semaphore-ring`.

#![allow(unsafe_code, reason = "POSIX semaphores in shared memory")]

use std::io;

use tontine_bench::error::{ErrorContext, Result};
use tontine_bench::os::checked;

use crate::about::{Death, Explored, Listing, Mechanism, RowKind};
use crate::end::{Peers, Transfer, check};
use crate::operation::Operation;
use crate::ring::{Ring, RingGuard, SLOTS};

const CALLS: &str = "sem_post: futex(FUTEX_WAKE) if a thread waits; sem_wait: futex(FUTEX_WAIT) if \
                     the count is zero";

#[repr(C)]
pub struct Semaphores {
    mutex: libc::sem_t,
    items: libc::sem_t,
    free: libc::sem_t,
}

pub const MECHANISM: Mechanism = Mechanism {
    shared_up_to: usize::MAX,
    explored: Some(Explored {
        caveat: "A semaphore has no owner: no process returns what a dead one took",
        ..Explored::new(
            "semaphore-ring",
            "a ring in shared memory under three process-shared POSIX semaphores",
            &Operation::OF_A_RING,
            || SLOTS as u32,
        )
    }),
    ..Mechanism::new(
        "semaphore-ring",
        Death::As {
            other: "semaphore-process",
            why: "not killed at random (`tontine-measure crash semaphore-ring` kills at every \
                  instruction); its semaphores are those of",
        },
        &[
            Listing::new(
                RowKind::RoundTrip,
                "two rings in shared memory, each under three POSIX semaphores; two processes",
            )
            .calling(CALLS)
            .in_brief(),
            Listing::new(
                RowKind::Throughput,
                "a ring of four slots in shared memory under three POSIX semaphores; processes",
            )
            .calling(CALLS)
            .in_brief(),
        ],
    )
};

impl RingGuard for Semaphores {
    unsafe fn initialise(guard: *mut Self) -> Result<()> {
        // SAFETY: the caller upholds the requirements.
        unsafe {
            for (semaphore, count) in [
                (&raw mut (*guard).mutex, 1),
                (&raw mut (*guard).items, 0),
                (&raw mut (*guard).free, SLOTS as libc::c_uint),
            ] {
                checked(libc::sem_init(semaphore, 1, count)).setting_up("sem_init")?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    unsafe fn put(ring: &Ring<Self>, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        // SAFETY: the caller upholds the requirements; the ring is changed only while `mutex` is
        // held, and it is not full after `free` was decremented.
        unsafe {
            let guard = &raw mut (*ring.memory()).guard;
            wait_for(&raw mut (*guard).free, peers, None)?;
            wait_for(&raw mut (*guard).mutex, peers, None)?;
            ring.push(message);
            post(&raw mut (*guard).mutex)?;
            Ok(post(&raw mut (*guard).items)?)
        }
    }

    #[inline(always)]
    unsafe fn take(
        ring: &Ring<Self>,
        into: &mut [u8],
        peers: Peers<'_>,
        until: Option<&libc::timespec>,
    ) -> Transfer<bool> {
        // SAFETY: as in `put`; the ring is not empty after `items` was decremented.
        unsafe {
            let guard = &raw mut (*ring.memory()).guard;
            if !wait_for(&raw mut (*guard).items, peers, until)? {
                return Ok(false);
            }
            wait_for(&raw mut (*guard).mutex, peers, None)?;
            ring.pop(into);
            post(&raw mut (*guard).mutex)?;
            post(&raw mut (*guard).free)?;
            Ok(true)
        }
    }
}

/// Decrements a semaphore. Returns `false` if it is still zero at the deadline.
///
/// # Safety
/// `semaphore` is mapped and initialised.
#[inline(always)]
unsafe fn wait_for(
    semaphore: *mut libc::sem_t,
    peers: Peers<'_>,
    until: Option<&libc::timespec>,
) -> Result<bool> {
    loop {
        // SAFETY: the caller upholds the requirements; the deadline is borrowed for the call.
        let returned = unsafe {
            match until {
                None => libc::sem_wait(semaphore),
                Some(until) => libc::sem_timedwait(semaphore, until),
            }
        };
        if returned == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => check(peers)?,
            Some(libc::ETIMEDOUT) => return Ok(false),
            _ => return Err(error).during("sem_wait"),
        }
    }
}

/// # Safety
/// The requirements of [`wait_for`] apply.
#[inline(always)]
unsafe fn post(semaphore: *mut libc::sem_t) -> Result<()> {
    // SAFETY: the caller upholds the requirements.
    checked(unsafe { libc::sem_post(semaphore) }).during("sem_post").map(|_| ())
}

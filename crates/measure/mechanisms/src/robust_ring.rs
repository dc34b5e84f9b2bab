//! A ring under a robust mutex and two condition variables, all process-shared: `robust-ring`.
//!
//! The ring follows the usual careful practice: it is consistent at every point, because a message
//! is counted after it was copied. A thread that gets EOWNERDEAD therefore calls
//! `pthread_mutex_consistent` and continues.

#![allow(unsafe_code, reason = "POSIX mutexes and condition variables in shared memory")]

use std::time::Duration;

use tontine_bench::error::{ErrorContext, Result};

use crate::about::{AfterKill, Death, Explored, Listing, Mechanism, RowKind};
use crate::end::{Peers, Transfer, check, deadline_in};
use crate::monitor::{error, initialise_condition, initialise_mutex};
use crate::operation::Operation;
use crate::ring::{Ring, RingGuard, SLOTS};

/// Interval between two checks of the peers, because a signal does not end a wait for a condition
/// variable.
const LOOK: Duration = Duration::from_secs(1);

const CALLS: &str = "pthread_cond_signal, pthread_cond_wait and the mutex: futex(FUTEX_WAKE) and \
                     futex(FUTEX_WAIT), none if no thread waits";

#[repr(C)]
pub struct Robust {
    mutex: libc::pthread_mutex_t,
    not_empty: libc::pthread_cond_t,
    not_full: libc::pthread_cond_t,
}

pub const MECHANISM: Mechanism = Mechanism {
    shared_up_to: usize::MAX,
    explored: Some(Explored {
        caveat: "POSIX makes mutexes robust, not condition variables: a process that dies \
                 inside one may leave it unusable",
        successions: &[
            (Operation::Send, Operation::Send),
            (Operation::Receive, Operation::Receive),
        ],
        ..Explored::new(
            "robust-ring",
            "a ring in shared memory under a robust mutex and two condition variables",
            &Operation::OF_A_RING,
            || SLOTS as u32,
        )
    }),
    ..Mechanism::new(
        "robust-ring",
        Death::LeavesOne { row: "robust-ring", survivor: AfterKill::Wedged },
        &[
            Listing::new(
                RowKind::RoundTrip,
                "two rings in shared memory, each under a robust mutex and two condition \
                 variables; two processes",
            )
            .calling(CALLS)
            .in_brief(),
            Listing::new(
                RowKind::Throughput,
                "a ring of four slots in shared memory under a robust mutex and two condition \
                 variables; processes",
            )
            .calling(CALLS)
            .in_brief(),
            Listing::new(
                RowKind::Survival,
                "a ring under a robust mutex; a dead owner's lock is recovered, no other check",
            )
            .calling(CALLS),
        ],
    )
};

impl RingGuard for Robust {
    unsafe fn initialise(guard: *mut Self) -> Result<()> {
        // SAFETY: the caller upholds the requirements.
        unsafe {
            initialise_mutex(&raw mut (*guard).mutex, true)?;
            initialise_condition(&raw mut (*guard).not_empty)?;
            initialise_condition(&raw mut (*guard).not_full)
        }
    }

    #[inline(always)]
    unsafe fn put(ring: &Ring<Self>, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        // SAFETY: the caller upholds the requirements, and the ring is used only while the mutex is
        // held.
        unsafe {
            let guard = &raw mut (*ring.memory()).guard;
            let mutex = &raw mut (*guard).mutex;
            lock(mutex)?;
            while ring.is_full() {
                wait_or_unlock(&raw mut (*guard).not_full, mutex, peers, None)?;
            }
            ring.push(message);
            signal(&raw mut (*guard).not_empty)?;
            Ok(unlock(mutex)?)
        }
    }

    #[inline(always)]
    unsafe fn take(
        ring: &Ring<Self>,
        into: &mut [u8],
        peers: Peers<'_>,
        until: Option<&libc::timespec>,
    ) -> Transfer<bool> {
        // SAFETY: as in `put`.
        unsafe {
            let guard = &raw mut (*ring.memory()).guard;
            let mutex = &raw mut (*guard).mutex;
            lock(mutex)?;
            while ring.is_empty() {
                if !wait_or_unlock(&raw mut (*guard).not_empty, mutex, peers, until)? {
                    unlock(mutex)?;
                    return Ok(false);
                }
            }
            ring.pop(into);
            signal(&raw mut (*guard).not_full)?;
            unlock(mutex)?;
            Ok(true)
        }
    }
}

/// # Safety
/// The mutex is mapped and initialised.
#[inline(always)]
unsafe fn lock(mutex: *mut libc::pthread_mutex_t) -> Result<()> {
    // SAFETY: the caller upholds the requirements.
    unsafe { recovered(mutex, libc::pthread_mutex_lock(mutex), "pthread_mutex_lock") }
}

/// # Safety
/// The requirements of [`lock`] apply; the caller holds the mutex.
#[inline(always)]
unsafe fn unlock(mutex: *mut libc::pthread_mutex_t) -> Result<()> {
    // SAFETY: the caller upholds the requirements.
    error(unsafe { libc::pthread_mutex_unlock(mutex) }).during("pthread_mutex_unlock")
}

/// # Safety
/// The condition variable is mapped and initialised.
#[inline(always)]
unsafe fn signal(condition: *mut libc::pthread_cond_t) -> Result<()> {
    // SAFETY: the caller upholds the requirements.
    error(unsafe { libc::pthread_cond_signal(condition) }).during("pthread_cond_signal")
}

/// Like [`wait`], but unlocks the mutex before it returns an error.
///
/// # Safety
/// The requirements of [`wait`] apply.
#[inline(always)]
unsafe fn wait_or_unlock(
    condition: *mut libc::pthread_cond_t,
    mutex: *mut libc::pthread_mutex_t,
    peers: Peers<'_>,
    until: Option<&libc::timespec>,
) -> Result<bool> {
    // SAFETY: the caller upholds the requirements; `wait` returns with the mutex held.
    unsafe {
        wait(condition, mutex, peers, until).inspect_err(|_| {
            let _ = unlock(mutex);
        })
    }
}

/// Waits with the mutex held. Returns `false` if the deadline has passed.
///
/// # Safety
/// Both are mapped and initialised, and the caller holds the mutex.
#[inline(always)]
unsafe fn wait(
    condition: *mut libc::pthread_cond_t,
    mutex: *mut libc::pthread_mutex_t,
    peers: Peers<'_>,
    until: Option<&libc::timespec>,
) -> Result<bool> {
    const CALL: &str = "pthread_cond_wait";
    let look = (until.is_none() && !peers.is_empty()).then(|| deadline_in(LOOK));
    // SAFETY: the caller upholds the requirements; a deadline is borrowed for the call.
    unsafe {
        let returned = match until.or(look.as_ref()) {
            None => libc::pthread_cond_wait(condition, mutex),
            Some(until) => libc::pthread_cond_timedwait(condition, mutex, until),
        };
        if returned != libc::ETIMEDOUT {
            return recovered(mutex, returned, CALL).map(|()| true);
        }
    }
    check(peers)?;
    Ok(until.is_none())
}

/// Handles the result of a call that may have acquired the mutex of a dead owner. The ring is
/// consistent at every point.
///
/// # Safety
/// The requirements of [`lock`] apply.
#[inline(always)]
unsafe fn recovered(
    mutex: *mut libc::pthread_mutex_t,
    returned: libc::c_int,
    call: &str,
) -> Result<()> {
    if returned == libc::EOWNERDEAD {
        // SAFETY: the caller upholds the requirements; this thread holds the mutex.
        let returned = unsafe { libc::pthread_mutex_consistent(mutex) };
        return error(returned).during("pthread_mutex_consistent");
    }
    error(returned).during(call)
}

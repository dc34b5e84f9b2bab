//! `robust-ring`: a ring under a robust mutex and two condition variables, all process-shared.
//!
//! Written the usual careful way: whoever gets EOWNERDEAD finds the ring whole at every point (a
//! message is counted after it was copied), calls `pthread_mutex_consistent` and goes on.

#![allow(unsafe_code, reason = "POSIX mutexes and condition variables in shared memory")]

use std::io;
use std::mem::MaybeUninit;

use super::region::Region;
use super::ring::{Ring, SLOTS};
use super::{End, Endpoint, Kind, Operation, Queue, Subject, Wait};
use crate::message::Message;
use crate::place::Place;

pub(super) struct RobustRing;

impl Subject for RobustRing {
    fn name(&self) -> &'static str {
        "robust-ring"
    }

    fn summary(&self) -> &'static str {
        "a ring in shared memory under a robust mutex and two condition variables"
    }

    fn caveat(&self) -> &'static str {
        "POSIX makes mutexes robust, not condition variables: a process that dies inside one may \
         leave it unusable"
    }

    fn operations(&self) -> &'static [Operation] {
        &Operation::OF_A_RING
    }

    fn succession(&self, operation: Operation) -> Option<Operation> {
        match operation {
            Operation::Send | Operation::Receive => Some(operation),
            _ => None,
        }
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Queue(self)
    }
}

impl Queue for RobustRing {
    fn capacity(&self) -> u32 {
        SLOTS as u32
    }

    fn create(&self, place: &Place) -> io::Result<()> {
        let region = Region::<Guarded>::create(place)?;
        let guarded = region.at();
        // SAFETY: the memory is mapped and nobody else's yet; each attribute object is initialised
        // before it is used.
        unsafe {
            let mut attributes = MaybeUninit::uninit();
            checked(libc::pthread_mutexattr_init(attributes.as_mut_ptr()))?;
            let mut attributes = attributes.assume_init();
            let shared = libc::PTHREAD_PROCESS_SHARED;
            checked(libc::pthread_mutexattr_setpshared(&mut attributes, shared))?;
            let robust = libc::PTHREAD_MUTEX_ROBUST;
            checked(libc::pthread_mutexattr_setrobust(&mut attributes, robust))?;
            checked(libc::pthread_mutex_init(&raw mut (*guarded).mutex, &attributes))?;
            let mut attributes = MaybeUninit::uninit();
            checked(libc::pthread_condattr_init(attributes.as_mut_ptr()))?;
            let mut attributes = attributes.assume_init();
            checked(libc::pthread_condattr_setpshared(&mut attributes, shared))?;
            checked(libc::pthread_cond_init(&raw mut (*guarded).not_empty, &attributes))?;
            checked(libc::pthread_cond_init(&raw mut (*guarded).not_full, &attributes))
        }
    }

    fn open(&self, place: &Place, _end: End) -> io::Result<Box<dyn Endpoint>> {
        Ok(Box::new(Robust(Region::open(place)?)))
    }
}

/// What lies in the shared memory.
#[repr(C)]
struct Guarded {
    mutex: libc::pthread_mutex_t,
    not_empty: libc::pthread_cond_t,
    not_full: libc::pthread_cond_t,
    ring: Ring,
}

struct Robust(Region<Guarded>);

impl Robust {
    fn lock(&self) -> io::Result<()> {
        // SAFETY: the mutex was initialised by `create` and is mapped.
        self.recovered(unsafe { libc::pthread_mutex_lock(&raw mut (*self.0.at()).mutex) })
    }

    /// After a call that may have taken the mutex over from a dead owner.
    fn recovered(&self, returned: libc::c_int) -> io::Result<()> {
        if returned == libc::EOWNERDEAD {
            // SAFETY: as in `lock`; we hold the mutex, and the ring is whole at every point.
            return checked(unsafe {
                libc::pthread_mutex_consistent(&raw mut (*self.0.at()).mutex)
            });
        }
        checked(returned)
    }

    fn unlock(&self) -> io::Result<()> {
        // SAFETY: as in `lock`; we hold the mutex.
        checked(unsafe { libc::pthread_mutex_unlock(&raw mut (*self.0.at()).mutex) })
    }
}

impl Endpoint for Robust {
    fn send(&mut self, message: &Message) -> io::Result<()> {
        let guarded = self.0.at();
        self.lock()?;
        // SAFETY: everything was initialised by `create`, is mapped, and we hold the mutex.
        unsafe {
            while Ring::is_full(&raw const (*guarded).ring) {
                self.recovered(libc::pthread_cond_wait(
                    &raw mut (*guarded).not_full,
                    &raw mut (*guarded).mutex,
                ))?;
            }
            Ring::push(&raw mut (*guarded).ring, message);
            checked(libc::pthread_cond_signal(&raw mut (*guarded).not_empty))?;
        }
        self.unlock()
    }

    fn receive(&mut self, into: &mut Message, wait: Wait) -> io::Result<Option<usize>> {
        let guarded = self.0.at();
        let deadline = wait.deadline();
        self.lock()?;
        // SAFETY: as in `send`; the deadline is a live local.
        let length = unsafe {
            while Ring::is_empty(&raw const (*guarded).ring) {
                let (condition, mutex) = (&raw mut (*guarded).not_empty, &raw mut (*guarded).mutex);
                let returned = match &deadline {
                    None => libc::pthread_cond_wait(condition, mutex),
                    Some(until) => libc::pthread_cond_timedwait(condition, mutex, until),
                };
                if returned == libc::ETIMEDOUT {
                    self.unlock()?;
                    return Ok(None);
                }
                self.recovered(returned)?;
            }
            let length = Ring::pop(&raw mut (*guarded).ring, into);
            checked(libc::pthread_cond_signal(&raw mut (*guarded).not_full))?;
            length
        };
        self.unlock()?;
        Ok(Some(length))
    }
}

/// A pthread function's return value: the error itself.
fn checked(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(returned)) }
}

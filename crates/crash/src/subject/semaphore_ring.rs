//! `semaphore-ring`: the classic of the textbooks, a ring guarded by three POSIX semaphores.

#![allow(unsafe_code, reason = "POSIX semaphores in shared memory")]

use std::io;

use super::region::Region;
use super::ring::{Ring, SLOTS};
use super::{End, Endpoint, Kind, Operation, Queue, Subject, Wait};
use crate::message::Message;
use crate::place::Place;

pub(super) struct SemaphoreRing;

impl Subject for SemaphoreRing {
    fn name(&self) -> &'static str {
        "semaphore-ring"
    }

    fn summary(&self) -> &'static str {
        "a ring in shared memory under three process-shared POSIX semaphores"
    }

    fn caveat(&self) -> &'static str {
        "A semaphore has no owner: what a dead process took from it nobody gives back"
    }

    fn operations(&self) -> &'static [Operation] {
        &Operation::OF_A_RING
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Queue(self)
    }
}

impl Queue for SemaphoreRing {
    fn capacity(&self) -> u32 {
        SLOTS as u32
    }

    fn create(&self, place: &Place) -> io::Result<()> {
        let region = Region::<Guarded>::create(place)?;
        let guarded = region.at();
        // SAFETY: the memory is mapped and nobody else's yet.
        unsafe {
            checked(libc::sem_init(&raw mut (*guarded).mutex, 1, 1))?;
            checked(libc::sem_init(&raw mut (*guarded).items, 1, 0))?;
            checked(libc::sem_init(&raw mut (*guarded).room, 1, SLOTS as libc::c_uint))
        }
    }

    fn open(&self, place: &Place, _end: End) -> io::Result<Box<dyn Endpoint>> {
        Ok(Box::new(Classic(Region::open(place)?)))
    }
}

/// What lies in the shared memory.
#[repr(C)]
struct Guarded {
    mutex: libc::sem_t,
    items: libc::sem_t,
    room: libc::sem_t,
    ring: Ring,
}

struct Classic(Region<Guarded>);

impl Endpoint for Classic {
    fn send(&mut self, message: &Message) -> io::Result<()> {
        let guarded = self.0.at();
        // SAFETY: the semaphores were initialised by `create` and are mapped; the ring is changed
        // while `mutex` is held, and `room` says that it is not full.
        unsafe {
            wait_for(&raw mut (*guarded).room, None)?;
            wait_for(&raw mut (*guarded).mutex, None)?;
            Ring::push(&raw mut (*guarded).ring, message);
            checked(libc::sem_post(&raw mut (*guarded).mutex))?;
            checked(libc::sem_post(&raw mut (*guarded).items))
        }
    }

    fn receive(&mut self, into: &mut Message, wait: Wait) -> io::Result<Option<usize>> {
        let guarded = self.0.at();
        // SAFETY: as in `send`; `items` says that the ring is not empty.
        unsafe {
            if !wait_for(&raw mut (*guarded).items, wait.deadline())? {
                return Ok(None);
            }
            wait_for(&raw mut (*guarded).mutex, None)?;
            let length = Ring::pop(&raw mut (*guarded).ring, into);
            checked(libc::sem_post(&raw mut (*guarded).mutex))?;
            checked(libc::sem_post(&raw mut (*guarded).room))?;
            Ok(Some(length))
        }
    }
}

/// Takes one from a semaphore; false where none was there before the deadline.
///
/// # Safety
/// `semaphore` is mapped and initialised.
unsafe fn wait_for(
    semaphore: *mut libc::sem_t,
    deadline: Option<libc::timespec>,
) -> io::Result<bool> {
    loop {
        // SAFETY: by the caller; the deadline is a live local.
        let returned = unsafe {
            match &deadline {
                None => libc::sem_wait(semaphore),
                Some(until) => libc::sem_timedwait(semaphore, until),
            }
        };
        if returned == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ETIMEDOUT) => return Ok(false),
            _ => return Err(error),
        }
    }
}

fn checked(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

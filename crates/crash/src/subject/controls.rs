//! Broken on purpose: what the explorer must call wedged, torn and lost.
//!
//! All three are the ring that the honest subjects use, each with one fault. They run where they
//! are named, and in the tests: an explorer that finds nothing has to be seen to find something.

#![allow(unsafe_code, reason = "a ring in shared memory")]

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::region::Region;
use super::ring::{Ring, SLOTS};
use super::{End, Endpoint, Kind, Operation, Queue, Role, Subject, Wait};
use crate::message::Message;
use crate::place::Place;

/// Between two looks at a lock that is held, or at an empty ring.
const PAUSE: Duration = Duration::from_micros(100);

/// `control-lock`: whoever dies with the lock takes it along.
pub(super) struct LockWord;

/// `control-torn`: counts a message before it copies it, and needs no lock for that.
pub(super) struct PublishedFirst;

/// `control-lost`: a receiver begins by emptying the ring, and takes another's unread mail along.
pub(super) struct Cleared;

macro_rules! control {
    ($subject:ty, $name:literal, $summary:literal, $operation:expr, $fault:expr) => {
        impl Subject for $subject {
            fn name(&self) -> &'static str {
                $name
            }

            fn summary(&self) -> &'static str {
                $summary
            }

            fn role(&self) -> Role {
                Role::Control
            }

            fn operations(&self) -> &'static [Operation] {
                &[$operation]
            }

            fn kind(&self) -> Kind<'_> {
                Kind::Queue(self)
            }
        }

        impl Queue for $subject {
            fn capacity(&self) -> u32 {
                SLOTS as u32
            }

            fn create(&self, place: &Place) -> io::Result<()> {
                Region::<Locked>::create(place).map(drop)
            }

            fn open(&self, place: &Place, end: End) -> io::Result<Box<dyn Endpoint>> {
                let faulty = Faulty { region: Region::open(place)?, fault: $fault };
                if end == End::Receiver {
                    faulty.begin();
                }
                Ok(Box::new(faulty))
            }
        }
    };
}

control!(
    LockWord,
    "control-lock",
    "broken on purpose: a ring under a lock word that a dead holder keeps",
    Operation::Send,
    Fault::KeepsTheLock
);
control!(
    PublishedFirst,
    "control-torn",
    "broken on purpose: a ring that counts a message before it is there",
    Operation::Send,
    Fault::CountsFirst
);
control!(
    Cleared,
    "control-lost",
    "broken on purpose: a receiver that begins by emptying the ring",
    Operation::Receive,
    Fault::ClearsFirst
);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    KeepsTheLock,
    CountsFirst,
    ClearsFirst,
}

/// What lies in the shared memory.
#[repr(C)]
struct Locked {
    /// 1 while somebody holds it.
    word: AtomicU32,
    ring: Ring,
}

struct Faulty {
    region: Region<Locked>,
    fault: Fault,
}

impl Faulty {
    /// Runs `act` on the ring, under the lock where the fault is one of locking.
    fn guarded<T>(&self, act: impl FnOnce(*mut Ring) -> T) -> T {
        let locked = self.region.at();
        // SAFETY: mapped and valid from zero on; the word is only used through its atomic.
        let word = unsafe { &(*locked).word };
        let locks = self.fault == Fault::KeepsTheLock;
        // SYNC control-lock: pairs with the store below.
        while locks && word.swap(1, Ordering::Acquire) != 0 {
            std::thread::sleep(PAUSE);
        }
        // SAFETY: as above; only the address of the field is taken.
        let done = act(unsafe { &raw mut (*locked).ring });
        if locks {
            // SYNC control-lock: pairs with the swap above.
            word.store(0, Ordering::Release);
        }
        done
    }

    /// What a receiver does first.
    fn begin(&self) {
        if self.fault == Fault::ClearsFirst {
            // SAFETY: as in `push`.
            self.guarded(|ring| unsafe { (*ring).read = (*ring).written });
        }
    }

    fn push(&self, message: &Message) {
        let fault = self.fault;
        // SAFETY: the region is mapped. Where no lock is taken, the script has one sender and one
        // receiver at a time that only touch the ring in turns; that it tears is the point.
        self.guarded(|ring| unsafe {
            if fault == Fault::CountsFirst {
                let written = (&raw const (*ring).written).read_volatile();
                (&raw mut (*ring).written).write_volatile(written.wrapping_add(1));
                std::sync::atomic::compiler_fence(Ordering::SeqCst);
                Ring::write(ring, written, message);
            } else {
                Ring::push(ring, message);
            }
        });
    }
}

impl Endpoint for Faulty {
    fn send(&mut self, message: &Message) -> io::Result<()> {
        self.push(message);
        Ok(())
    }

    fn receive(&mut self, into: &mut Message, wait: Wait) -> io::Result<Option<usize>> {
        let began = Instant::now();
        loop {
            // SAFETY: as in `push`.
            let taken = self
                .guarded(|ring| unsafe { (!Ring::is_empty(ring)).then(|| Ring::pop(ring, into)) });
            match wait {
                _ if taken.is_some() => return Ok(taken),
                Wait::AtMost(wait) if began.elapsed() >= wait => return Ok(None),
                _ => std::thread::sleep(PAUSE),
            }
        }
    }
}

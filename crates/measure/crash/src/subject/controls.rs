//! Deliberately broken queues, which the explorer must report as wedged, torn and lost.
//!
//! Each of the three is the ring that the sound targets use, with one fault. They run only if they
//! are named, and in the tests, because an explorer that finds no fault must first prove that it
//! can find one.

#![allow(unsafe_code, reason = "a ring in shared memory")]

use std::io;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};
use std::time::{Duration, Instant};

use tontine_mechanisms::about::Explored;
use tontine_mechanisms::region::SharedRegion;
use tontine_mechanisms::ring::{Ring, RingMemory, SLOTS, slots};

use super::{
    CrashTarget, Endpoint, Operation, QueueEnd, QueueSubject, Role, TargetKind, Wait, refused,
};
use crate::message::{LENGTH, TrialMessage};
use crate::run_dir::RunDir;

/// Time between two checks of a held lock or an empty ring.
const PAUSE: Duration = Duration::from_micros(100);

/// Time for which the receiver of `control-torn` lets a sender finish a message: long for a live
/// sender, even if it is preempted, and short enough for the explorer's timeout.
const FINISHED_AFTER: Duration = Duration::from_millis(300);

/// `control-lock`: a process that dies while it holds the lock never releases it.
pub(super) struct LockWord;

/// `control-torn`: the sender counts a message before it copies it; this fault needs no lock. Only
/// a dead sender's message is torn: the receiver lets a live one finish.
pub(super) struct PublishedFirst;

/// `control-lost`: a receiver first empties the ring, and so discards another receiver's unread
/// messages.
pub(super) struct Cleared;

macro_rules! control {
    ($subject:ty, $name:literal, $summary:literal, $operation:expr, $fault:expr) => {
        impl CrashTarget for $subject {
            fn facts(&self) -> Explored {
                Explored::new($name, $summary, &[$operation], || SLOTS as u32)
            }

            fn role(&self) -> Role {
                Role::Control
            }

            fn kind(&self) -> TargetKind<'_> {
                TargetKind::Queue(self)
            }
        }

        impl QueueSubject for $subject {
            fn create(&self, place: &RunDir) -> io::Result<()> {
                LockedRing::create(place.location(), slots(LENGTH)).map(drop).map_err(refused)
            }

            fn open(&self, place: &RunDir, end: QueueEnd) -> io::Result<Box<dyn Endpoint>> {
                let region = LockedRing::open(place.location(), slots(LENGTH)).map_err(refused)?;
                let faulty = Faulty { region, fault: $fault };
                if end == QueueEnd::Receiver {
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
    ControlFault::KeepsTheLock
);
control!(
    PublishedFirst,
    "control-torn",
    "broken on purpose: a ring that counts a message before it is there",
    Operation::Send,
    ControlFault::CountsFirst
);
control!(
    Cleared,
    "control-lost",
    "broken on purpose: a receiver that begins by emptying the ring",
    Operation::Receive,
    ControlFault::ClearsFirst
);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ControlFault {
    KeepsTheLock,
    CountsFirst,
    ClearsFirst,
}

/// A ring, and a word that is 1 while a process holds the ring, or is sending to `control-torn`.
type LockedRing = SharedRegion<RingMemory<AtomicU32>>;

struct Faulty {
    region: LockedRing,
    fault: ControlFault,
}

impl Faulty {
    fn word(&self) -> &AtomicU32 {
        // SAFETY: the region is mapped and valid if all bytes are zero; the word is only accessed
        // through its atomic.
        unsafe { &(*self.region.at()).guard }
    }

    /// Runs `act` on the ring, under the lock if the fault concerns locking.
    fn guarded<T>(&self, act: impl FnOnce(Ring<AtomicU32>) -> T) -> T {
        let word = self.word();
        let locks = self.fault == ControlFault::KeepsTheLock;
        // SYNC control-lock: pairs with the store below.
        while locks && word.swap(1, Ordering::Acquire) != 0 {
            std::thread::sleep(PAUSE);
        }
        // SAFETY: the region has slots of this length (`create`, `open`), and outlives `act`.
        let done = act(unsafe { Ring::of(&self.region, LENGTH) });
        if locks {
            // SYNC control-lock: pairs with the swap above.
            word.store(0, Ordering::Release);
        }
        done
    }

    /// Performs the first action of a receiver.
    fn begin(&self) {
        if self.fault == ControlFault::ClearsFirst {
            // SAFETY: as in `push`.
            self.guarded(|ring| unsafe { (*ring.memory()).read = (*ring.memory()).written });
        }
    }

    fn push(&self, message: &TrialMessage) {
        let fault = self.fault;
        // SAFETY: the region is mapped. If no lock is taken, the script has one sender and one
        // receiver at a time, which access the ring only in turns. Torn messages are the purpose of
        // this target.
        self.guarded(|ring| unsafe {
            if fault == ControlFault::CountsFirst {
                self.word().store(1, Ordering::Relaxed);
                // SYNC control-torn: pairs with the fence in `let_sender_finish`: a receiver that
                // sees the count also sees the word, or the message and a zero.
                fence(Ordering::SeqCst);
                let count = &raw mut (*ring.memory()).written;
                let written = count.read_volatile();
                count.write_volatile(written.wrapping_add(1));
                compiler_fence(Ordering::SeqCst);
                ring.write(written, message);
                // SYNC control-torn: pairs with the load in `let_sender_finish`.
                self.word().store(0, Ordering::Release);
            } else {
                ring.push(message);
            }
        });
    }
}

impl Faulty {
    /// Waits until the sender of `control-torn` has written the message that it has counted. A dead
    /// one never does.
    fn let_sender_finish(&self) {
        // SYNC control-torn: pairs with the fence in `push`.
        fence(Ordering::SeqCst);
        let began = Instant::now();
        // SYNC control-torn: pairs with the last store in `push`.
        while self.word().load(Ordering::Acquire) != 0 && began.elapsed() < FINISHED_AFTER {
            std::thread::sleep(PAUSE);
        }
    }
}

impl Endpoint for Faulty {
    fn send(&mut self, message: &TrialMessage) -> io::Result<()> {
        self.push(message);
        Ok(())
    }

    fn receive(&mut self, into: &mut TrialMessage, wait: Wait) -> io::Result<Option<usize>> {
        let began = Instant::now();
        loop {
            // SAFETY: as in `push`.
            let taken = self.guarded(|ring| unsafe {
                (!ring.is_empty()).then(|| {
                    if self.fault == ControlFault::CountsFirst {
                        self.let_sender_finish();
                    }
                    ring.pop(into);
                })
            });
            match wait {
                _ if taken.is_some() => return Ok(Some(LENGTH)),
                Wait::AtMost(wait) if began.elapsed() >= wait => return Ok(None),
                _ => std::thread::sleep(PAUSE),
            }
        }
    }
}

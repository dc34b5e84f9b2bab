//! Two words that belong together, a lock that guards them, and a handler that takes the lock:
//! [`GuardedWords`].

#![allow(unsafe_code, reason = "pthread mutexes in a static")]

use std::sync::atomic::{AtomicU64, Ordering};

use std::cell::UnsafeCell;
use std::hint::black_box;

use super::interrupted::InterruptedWork;
use crate::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    /// A mutex that its owner cannot lock again.
    Plain,
    /// A mutex that its owner can lock again.
    Recursive,
    Masked,
}

/// Number of steps of work between the two changes, and again outside the lock, so that half of the
/// time is spent inside.
const STEPS: u32 = 300;

struct SharedMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is designed for concurrent use.
unsafe impl Sync for SharedMutex {}

static MUTEX: SharedMutex = SharedMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
/// Two words, which differ only while a thread has changed the first word and not yet the second.
static WORDS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

#[inline(always)]
fn locked<T>(inside: impl FnOnce() -> T) -> T {
    // SAFETY: the mutex was initialised by its constant or by `make`, and is never moved or
    // destroyed.
    unsafe {
        libc::pthread_mutex_lock(MUTEX.0.get());
        let result = inside();
        libc::pthread_mutex_unlock(MUTEX.0.get());
        result
    }
}

pub(super) fn make(lock: Lock) -> bool {
    let kind = match lock {
        Lock::Recursive => libc::PTHREAD_MUTEX_RECURSIVE,
        Lock::Plain | Lock::Masked => libc::PTHREAD_MUTEX_NORMAL,
    };
    // SAFETY: the attributes are initialised before their use; no thread holds the mutex.
    unsafe {
        let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attributes) == 0
            && libc::pthread_mutexattr_settype(&mut attributes, kind) == 0
            && libc::pthread_mutex_init(MUTEX.0.get(), &attributes) == 0
    }
}

#[inline(always)]
pub(super) fn change(lock: Lock, only: &Only, between: impl FnOnce()) {
    if lock == Lock::Masked {
        only.block();
    }
    locked(|| {
        WORDS[0].fetch_add(1, Ordering::Relaxed);
        between();
        WORDS[1].fetch_add(1, Ordering::Relaxed);
    });
    if lock == Lock::Masked {
        only.unblock();
    }
}

fn work() {
    for step in 0..STEPS {
        black_box(step);
    }
}

/// The words. The main program changes them while a handler, or if `TAKEN` a thread that takes the
/// signal, reads them at intervals.
#[derive(Clone, Copy)]
pub(super) struct GuardedWords<const TAKEN: bool> {
    pub(super) lock: Lock,
    pub(super) only: Only,
}

impl<const TAKEN: bool> InterruptedWork for GuardedWords<TAKEN> {
    const HANDLER_JUDGES: bool = true;
    const TAKEN: bool = TAKEN;

    fn prepare(&mut self) -> bool {
        make(self.lock)
    }

    fn operation(&mut self, midway: &mut dyn FnMut()) -> bool {
        change(self.lock, &self.only, || {
            work();
            midway();
        });
        work();
        true
    }

    fn in_handler() -> bool {
        locked(|| WORDS[0].load(Ordering::Relaxed) == WORDS[1].load(Ordering::Relaxed))
    }
}

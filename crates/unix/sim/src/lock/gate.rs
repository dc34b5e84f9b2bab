//! A queue behind a spin lock: [`Gate`].
//!
//! A thread neither sleeps nor switches while it holds the gate. Only a thread that is about to
//! sleep, or to wake another thread, takes the gate.
#![allow(unsafe_code, reason = "the gate lends the value that it protects")]

use crate::executor;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

const OPEN: u32 = 0;
const SHUT: u32 = 1;

/// A spin lock that has no class, no rank and no statistics.
#[derive(Default)]
pub(super) struct Gate<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only `with` lends the value, and to only one thread at a time.
unsafe impl<T: Send> Sync for Gate<T> {}

impl<T> Gate<T> {
    /// Passes the value to `body`, which must not panic, sleep or call `with` on the same gate.
    pub(super) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        // SYNC gate: pairs with the store below.
        while self
            .word
            .compare_exchange_weak(OPEN, SHUT, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            executor::spin(&self.word);
        }
        // SAFETY: this thread has locked the gate, and no other thread can access the value before
        // the gate is unlocked.
        let result = body(unsafe { &mut *self.value.get() });
        // SYNC gate: pairs with the exchange above.
        self.word.store(OPEN, Ordering::Release);
        result
    }
}

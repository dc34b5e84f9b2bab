//! A queue that one thread at a time comes to: [`Gate`].
//!
//! Nobody sleeps or switches at the gate, and it is passed only by who is about to sleep or to wake
//! somebody.
#![allow(unsafe_code, reason = "the gate hands out the value that it keeps others from")]

use crate::executor;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

const OPEN: u32 = 0;
const SHUT: u32 = 1;

/// A spin lock without class, order or statistics.
#[derive(Debug, Default)]
pub(super) struct Gate<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is lent by `with` alone, to one thread at a time.
unsafe impl<T: Send> Sync for Gate<T> {}

impl<T> Gate<T> {
    /// Lends the value to `body`, which must not panic, sleep or come here again.
    pub(super) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        // SYNC gate: pairs with the store below.
        while self
            .word
            .compare_exchange_weak(OPEN, SHUT, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            executor::spin(&self.word);
        }
        // SAFETY: this thread shut the gate, and nobody else passes until it is open again.
        let result = body(unsafe { &mut *self.value.get() });
        // SYNC gate: pairs with the exchange above.
        self.word.store(OPEN, Ordering::Release);
        result
    }
}

//! The word by which the receiver acknowledges each message: its read position.
//!
//! [`publish`] and [`read`] access it, in a [`super::control`] page or in a model.

use crate::sync::{AtomicU64, Ordering};

/// Acknowledges everything before `position`.
#[inline(always)]
pub(crate) fn publish(word: &AtomicU64, position: u64) {
    // SYNC space: pairs with `read`; the receiver's reads precede the sender's reuse of the space.
    word.store(position, Ordering::Release);
}

/// Returns the read position of the receiver, an untrusted value.
#[inline(always)]
pub(crate) fn read(word: &AtomicU64) -> u64 {
    // SYNC space: pairs with `publish`.
    word.load(Ordering::Acquire)
}

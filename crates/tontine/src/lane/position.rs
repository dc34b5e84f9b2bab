//! The one word that goes from the receiver to the sender with each message: how far it has read.
//!
//! [`publish`] and [`read`] are both halves of it, wherever the word stands: in a
//! [`super::control`] page, or in a model.

use crate::sync::{AtomicU64, Ordering};

/// Says that everything before `position` is read and acknowledged.
#[inline(always)]
pub(crate) fn publish(word: &AtomicU64, position: u64) {
    // SYNC room: pairs with `read`; our reads come before the sender's reuse.
    word.store(position, Ordering::Release);
}

/// How far the receiver has read: a claim.
#[inline(always)]
pub(crate) fn read(word: &AtomicU64) -> u64 {
    // SYNC room: pairs with `publish`.
    word.load(Ordering::Acquire)
}

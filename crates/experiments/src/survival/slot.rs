//! A message in shared memory: [`Slot`], written by one end, read by the other, never at once
//! unless the mechanism around it breaks.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU64, Ordering};

use tontine_host::os::shared::Shareable;

use super::message::{BYTES, Claim, Message, claim};

/// The bytes of a message, word by word, so that a torn one is torn and not undefined.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Slot([AtomicU64; BYTES / 8]);

// SAFETY: only atomics; zero is valid.
unsafe impl Shareable for Slot {}

impl Slot {
    /// Writes a message. The mechanism around it publishes.
    #[inline(always)]
    pub(super) fn write(&self, message: &Message) {
        for (place, word) in self.0.iter().zip(message.as_chunks().0) {
            place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    /// Reads what is there.
    #[inline(always)]
    pub(super) fn read(&self) -> Claim {
        let mut bytes = [0; BYTES];
        for (word, place) in bytes.as_chunks_mut().0.iter_mut().zip(&self.0) {
            *word = place.load(Ordering::Relaxed).to_ne_bytes();
        }
        claim(&bytes)
    }
}

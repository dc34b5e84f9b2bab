//! A message in shared memory: [`Slot`], written by one end, read by the other, never at once
//! unless the mechanism around it breaks.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU64, Ordering};

use tontine_host::os::shared::Shareable;

const WORDS: usize = 8;

/// Bytes of the longest message.
pub const CAPACITY: usize = WORDS * size_of::<u64>();

/// The bytes of a message, word by word, so that a torn one is torn and not undefined. What is
/// shorter than a word is not written: a round trip's mechanism says that something came by other
/// means.
#[derive(Debug)]
#[repr(C)]
pub struct Slot([AtomicU64; WORDS]);

// SAFETY: only atomics; zero is valid.
unsafe impl Shareable for Slot {}

impl Slot {
    /// Writes a message. The mechanism around it publishes.
    #[inline(always)]
    pub fn write(&self, message: &[u8]) {
        for (place, word) in self.0.iter().zip(message.as_chunks().0) {
            place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    /// Reads `bytes` bytes into the beginning of `into`, which it returns.
    #[inline(always)]
    pub fn read<'b>(&self, bytes: usize, into: &'b mut [u8; CAPACITY]) -> &'b [u8] {
        for (word, place) in into.as_chunks_mut().0.iter_mut().zip(&self.0).take(bytes / 8) {
            *word = place.load(Ordering::Relaxed).to_ne_bytes();
        }
        &into[..bytes]
    }
}

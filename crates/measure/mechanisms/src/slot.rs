//! A message in shared memory: [`MessageWords`], which one end writes and the other reads, never
//! concurrently unless the mechanism around it breaks.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU64, Ordering};

use tontine_bench::os::shared::Shareable;

const WORDS: usize = 8;

/// Maximum length of a message in bytes.
pub const CAPACITY: usize = WORDS * size_of::<u64>();

/// The bytes of a message, as atomic words, so that a race tears the message but is not undefined
/// behaviour. A message shorter than a word is not written, because the mechanism of a round trip
/// signals its arrival by other means.
#[derive(Debug)]
#[repr(C)]
pub struct MessageWords([AtomicU64; WORDS]);

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for MessageWords {}

impl MessageWords {
    /// Writes a message. The mechanism around the slot publishes it.
    #[inline(always)]
    pub fn write(&self, message: &[u8]) {
        for (place, word) in self.0.iter().zip(message.as_chunks().0) {
            place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    /// Reads `bytes` bytes into the beginning of `into`, and returns that part.
    #[inline(always)]
    pub fn read<'b>(&self, bytes: usize, into: &'b mut [u8; CAPACITY]) -> &'b [u8] {
        for (word, place) in into.as_chunks_mut().0.iter_mut().zip(&self.0).take(bytes / 8) {
            *word = place.load(Ordering::Relaxed).to_ne_bytes();
        }
        &into[..bytes]
    }
}

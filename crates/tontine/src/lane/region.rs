//! The interface to shared memory that a lane uses: [`LaneMemory`], with 64-bit words and copies.
//!
//! A peer may write its region during a read. Nothing here therefore creates a Rust reference to
//! the region's bytes: words are atomics, and payloads are copied ([`super::mapped`]).

use crate::sync::AtomicU64;

/// Memory of a lane. Offsets are in bytes and multiples of 8, unless stated otherwise.
pub(crate) trait LaneMemory {
    /// Returns the word at `at`, which must lie inside the region.
    fn word(&self, at: usize) -> &AtomicU64;
    /// Copies `bytes` to `at`; only for regions that this process made.
    fn copy_in(&self, at: usize, bytes: &[u8]);
    /// Copies `bytes` to `at` like `copy_in`, past this processor's cache if the processor can. A
    /// later store with release publishes the bytes all the same.
    fn copy_in_past_cache(&self, at: usize, bytes: &[u8]) {
        self.copy_in(at, bytes);
    }
    /// Prefetches the cache line at `at`, which may lie outside the region.
    fn expect_reading(&self, _at: usize) {}
    /// Appends `length` bytes at `at` to `into`.
    fn copy_out(&self, at: usize, length: usize, into: &mut Vec<u8>);
}

impl<R: LaneMemory> LaneMemory for &R {
    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        (**self).word(at)
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        (**self).copy_in(at, bytes);
    }

    fn copy_in_past_cache(&self, at: usize, bytes: &[u8]) {
        (**self).copy_in_past_cache(at, bytes);
    }

    #[inline(always)]
    fn expect_reading(&self, at: usize) {
        (**self).expect_reading(at);
    }

    fn copy_out(&self, at: usize, length: usize, into: &mut Vec<u8>) {
        (**self).copy_out(at, length, into);
    }
}

#[cfg(any(test, fuzzing, loom))]
pub(crate) mod models;

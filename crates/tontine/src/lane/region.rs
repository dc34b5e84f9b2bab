//! Shared memory as the lane sees it: [`Region`], 64-bit words and copies.
//!
//! Another process may write a peer's region while we read it, so nothing here ever makes a Rust
//! reference to its bytes: words are atomics, and bytes are copied ([`super::mapped`]).

use crate::sync::AtomicU64;

/// Memory that a lane lives in. Offsets are in bytes, and multiples of 8 unless said otherwise.
pub(crate) trait Region {
    /// The word at `at`, which must lie inside.
    fn word(&self, at: usize) -> &AtomicU64;
    /// Puts `bytes` at `at`; only where [`Region`] is our own to write.
    fn copy_in(&self, at: usize, bytes: &[u8]);
    /// Fetches the line at `at`, which may lie outside, for reading soon.
    fn expect_reading(&self, _at: usize) {}
    /// Appends `length` bytes at `at` to `into`.
    fn copy_out(&self, at: usize, length: usize, into: &mut Vec<u8>);
}

#[cfg(any(test, fuzzing, loom))]
pub(crate) mod model;

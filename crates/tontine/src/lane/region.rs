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

#[cfg(any(test, loom))]
pub(crate) mod model {
    //! Memory of one process, for tests and models.

    use std::sync::Arc;

    use super::Region;
    use crate::sync::{AtomicU64, Ordering};

    /// Words on the heap, shared by both ends.
    #[derive(Clone)]
    pub(crate) struct Heap(Arc<[AtomicU64]>);

    impl Heap {
        pub(crate) fn new(bytes: usize) -> Self {
            Self((0..bytes / 8).map(|_| AtomicU64::new(0)).collect())
        }
    }

    impl Region for Heap {
        fn word(&self, at: usize) -> &AtomicU64 {
            &self.0[at / 8]
        }

        fn copy_in(&self, at: usize, bytes: &[u8]) {
            for (index, piece) in bytes.chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..piece.len()].copy_from_slice(piece);
                self.0[at / 8 + index].store(u64::from_ne_bytes(word), Ordering::Relaxed);
            }
        }

        fn copy_out(&self, at: usize, length: usize, into: &mut Vec<u8>) {
            let end = into.len() + length;
            for index in 0..length.div_ceil(8) {
                let word = self.0[at / 8 + index].load(Ordering::Relaxed);
                into.extend_from_slice(&word.to_ne_bytes());
            }
            into.truncate(end);
        }
    }
}

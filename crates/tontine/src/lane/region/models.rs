//! Memory of one process, for tests and models: [`ModelRegion`].
//!
//! Every access is checked: an access outside the region panics. Under loom, copying a payload in
//! while it is copied out also panics; only the protocol's orderings prevent this.
//! [`crate::lane::mapped`] implements real shared memory.

#![allow(unsafe_code, reason = "shares cells that loom checks for races")]

use std::sync::Arc;

use super::LaneMemory;
use crate::sync::{AtomicU64, Ordering};

/// Words on the heap that both ends share.
#[derive(Clone)]
pub(crate) struct ModelRegion {
    words: Arc<[AtomicU64]>,
    #[cfg(loom)]
    payloads: Payloads,
}

impl ModelRegion {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            words: (0..bytes / 8).map(|_| AtomicU64::new(0)).collect(),
            #[cfg(loom)]
            payloads: Payloads::new(bytes),
        }
    }
}

impl LaneMemory for ModelRegion {
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words[at / 8]
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        for (index, piece) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            #[cfg(loom)]
            self.payloads.written(at / 8 + index);
            self.words[at / 8 + index].store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    fn copy_out(&self, at: usize, length: usize, into: &mut Vec<u8>) {
        let end = into.len() + length;
        for index in 0..length.div_ceil(8) {
            #[cfg(loom)]
            self.payloads.read(at / 8 + index);
            let word = self.words[at / 8 + index].load(Ordering::Relaxed);
            into.extend_from_slice(&word.to_ne_bytes());
        }
        into.truncate(end);
    }
}

/// Reports to loom which words are copied, as if they were plain memory. Loom panics if one thread
/// writes a word that another thread may be reading.
#[cfg(loom)]
#[derive(Clone)]
struct Payloads(Arc<[loom::cell::UnsafeCell<()>]>);

// SAFETY: the cells are empty; loom, which runs one thread at a time, only records the accesses.
#[cfg(loom)]
unsafe impl Send for Payloads {}
// SAFETY: the reason is the same as for `Send`.
#[cfg(loom)]
unsafe impl Sync for Payloads {}

#[cfg(loom)]
impl Payloads {
    fn new(bytes: usize) -> Self {
        Self((0..bytes / 8).map(|_| loom::cell::UnsafeCell::new(())).collect())
    }

    fn written(&self, word: usize) {
        self.0[word].with_mut(|_| ());
    }

    fn read(&self, word: usize) {
        self.0[word].with(|_| ());
    }
}

//! Regressions: what somebody writes over a heap's words makes no survivor panic, hang, or reach
//! outside of its mapping. Each opens with what it did once.

use super::layout::GRANULES;
use super::word::{LAST, Truth};
use super::*;
use crate::sync::Ordering;

fn heap(slabs: usize) -> Heap {
    Heap::create(&Options::new(slabs * SLAB)).expect("there is memory")
}

fn set_words(heap: &Heap, word: Truth) {
    let space = &heap.core.space;
    for granule in 0..space.geometry().slabs() * GRANULES {
        space.word(granule).store(word.0, Ordering::Relaxed);
    }
}

/// A block of the last generation is free, but never given out. Whoever had no other block counted
/// it among the free ones, tried to give it out, and looked again, for ever.
#[test]
fn worn_out_blocks_are_no_room() {
    for len in [64, 100_000] {
        let heap = heap(3);
        drop(heap.alloc(len).expect("there is room"));
        set_words(&heap, Truth::free(LAST));
        let error = heap.alloc(len).expect_err("all are worn out");
        assert!(matches!(error, Error::Full { .. }), "{error}");
    }
}

//! Regressions: what somebody writes over a heap's words makes no survivor panic, hang, or reach
//! outside of its mapping. Each opens with what it did once.

use super::layout::GRANULES;
use super::word::{LAST, SlabWord, Truth};
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

/// A block that its holder has, and of which somebody has written that it is free, is given out
/// again. Each of the two holders frees it: the second time was an assertion, and a slab of which
/// all blocks were free retired twice, which took another slab's place away.
#[test]
fn a_block_may_be_freed_twice() {
    let heap = heap(3);
    let mut blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(30_000).ok()).collect();
    assert_eq!(blocks.len(), 6);
    set_words(&heap, Truth::free(7));
    blocks.extend(std::iter::from_fn(|| heap.alloc(30_000).ok()));
    assert_eq!(blocks.len(), 12);
    drop(blocks);
    while let Ok(block) = heap.alloc(20_000) {
        std::mem::forget(block);
    }
    let _ = heap.tend();
    let _ = heap.check();
}

/// A slab's owner word is cleared, and its owner takes it anew, for blocks of another size. What
/// was allocated from it before began within those: it was put among them, and given out, and
/// reached beyond the heap's end.
#[test]
fn a_slab_may_be_taken_twice() {
    for (before, after) in [(64, 30_000), (30_000, 64), (70_000, 5_000), (5_000, 70_000)] {
        let heap = heap(2);
        let blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(before).ok()).collect();
        set_words(&heap, Truth::free(7));
        for slab in 0..2 {
            heap.core.space.slab(slab).owner.store(SlabWord::EMPTY.0, Ordering::Relaxed);
        }
        let again: Vec<_> = std::iter::from_fn(|| heap.alloc(after).ok()).collect();
        assert!(!again.is_empty(), "{after} after {before}");
        drop(blocks);
        let size = heap.core.space.geometry().size() as u64;
        let all: Vec<_> = std::iter::from_fn(|| heap.alloc(after).ok()).collect();
        assert!(all.iter().all(|block| block.offset() + block.len() as u64 <= size));
        drop((all, again));
        let _ = heap.tend();
        let _ = heap.check();
    }
}

//! Regression tests: if a member overwrites the heap's words, the others do not panic, hang, or
//! access memory outside the mapping. The comment of each test describes the failure that it
//! caught.

#![allow(unsafe_code, reason = "children join the heap")]

use super::class::SizeClass;
use super::layout::{GRANULES, SLAB};
use super::word::{BlockWord, LAST, SlabState, SlabWord};
use super::*;
use crate::sync::Ordering;
use crate::sys::child::in_child;

fn heap(slabs: usize) -> Heap {
    Heap::create(slabs * SLAB).expect("there is memory")
}

fn set_words(heap: &Heap, word: BlockWord) {
    let space = &heap.core.space;
    for granule in 0..space.geometry().slabs() * GRANULES {
        space.word(granule).store(word.0, Ordering::Relaxed);
    }
}

/// Regression: a block of the last generation is free, but never allocated. An arena without
/// another block counted it as free, failed to allocate it, and repeated the search indefinitely.
#[test]
fn blocks_of_last_generation_are_not_allocated() {
    for len in [64, 100_000] {
        let heap = heap(3);
        drop(heap.alloc(len).expect("there is space"));
        set_words(&heap, BlockWord::free(LAST));
        let error = heap.alloc(len).expect_err("all are worn out");
        assert!(matches!(error, HeapError::Full { .. }), "{error}");
    }
}

/// Regression: if the word of a held block is overwritten with FREE, the block is allocated again,
/// and both holders free it. The second time, an assertion failed. A slab whose blocks were all
/// free was also retired twice, which removed another slab from its list.
#[test]
fn double_free_after_overwritten_words_does_not_panic() {
    let heap = heap(3);
    let mut blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(30_000).ok()).collect();
    assert_eq!(blocks.len(), 6);
    set_words(&heap, BlockWord::free(7));
    blocks.extend(std::iter::from_fn(|| heap.alloc(30_000).ok()));
    assert_eq!(blocks.len(), 12);
    drop(blocks);
    while let Ok(block) = heap.alloc(20_000) {
        std::mem::forget(block);
    }
    let _ = heap.recover_and_trim();
    let _ = heap.check();
}

/// Regression: a slab's owner word is overwritten with EMPTY, and its owner claims the slab again
/// for blocks of another size. Old blocks of the slab begin inside new blocks. An old block that
/// was freed was entered into the slab's shelf, allocated again, and reached beyond the heap's end.
#[test]
fn slab_claimed_twice_after_overwrite_stays_in_bounds() {
    for (before, after) in [(64, 30_000), (30_000, 64), (70_000, 5_000), (5_000, 70_000)] {
        let heap = heap(2);
        let blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(before).ok()).collect();
        set_words(&heap, BlockWord::free(7));
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
        let _ = heap.recover_and_trim();
        let _ = heap.check();
    }
}

/// Regression: a dead member's slab held a 64-byte block, and its class was overwritten with that
/// of a three-slab block. All three slabs were released, although two belonged to another member.
#[test]
fn recovery_with_forged_class_releases_only_own_slabs() {
    let heap = heap(3);
    assert!(in_child(|| {
        // SAFETY: the inherited descriptor stays open.
        let Ok(own) = (unsafe { heap.rejoin() }) else { return false };
        own.alloc(64).map(std::mem::forget).is_ok() && {
            std::mem::forget(own);
            true
        }
    }));
    let mut ours = [heap.alloc(40_000).expect("space"), heap.alloc(40_000).expect("space")];
    ours.iter_mut().for_each(|block| block.fill(7));
    heap.core.space.slab(0).class.store(SizeClass::Large(3).raw(), Ordering::Relaxed);
    heap.recover_and_trim().expect("dead members are recovered");
    assert!(ours.iter().flat_map(|block| block.iter()).all(|byte| *byte == 7));
    assert_eq!(heap.check().expect("not forked").faults, []);
}

/// Regression: a process that adopts a large block, from its last slab to its first, may die during
/// the adoption. If that happens twice, the slabs name three arenas. No process could then adopt
/// the block, and the slots of both dead members were not freed until the block's holder freed it.
#[test]
fn half_transferred_large_block_is_transferred_completely() {
    let heap = heap(3);
    let core = &heap.core;
    let _block = heap.alloc(3 * SLAB).expect("space");
    let arena = |slab: usize| SlabWord(core.space.slab(slab).owner.load(Ordering::Relaxed)).arena();
    let from = arena(0);
    let third = SlabWord::new(SlabState::Span, from + 9, 2);
    core.space.slab(2).owner.store(third.0, Ordering::Relaxed);
    assert!(core.pass_on(0, from, from + 1));
    assert_eq!([0, 1, 2].map(arena), [from + 1; 3]);
    assert!(core.pass_on(0, from + 1, from));
    assert!(!core.pass_on(0, from + 1, from), "another arena owns it");
}

/// Regression: every slab's entry says that its block contains all slabs after it. Each part of
/// each block was reported as a fault with its own text, which made a hundred million faults in a
/// heap of 1 GiB.
#[test]
fn report_of_corrupted_heap_is_bounded() {
    let heap = heap(4_096);
    let _block = heap.alloc(1).expect("space");
    let first = heap.core.space.slab(0);
    let owner = first.owner.load(Ordering::Relaxed);
    for slab in 0..4_096 {
        let entry = heap.core.space.slab(slab);
        entry.owner.store(owner, Ordering::Relaxed);
        entry.class.store(SizeClass::Large(4_096 - slab).raw(), Ordering::Relaxed);
    }
    let report = heap.check().expect("not forked");
    let all = report.faults.len() + report.more_faults;
    assert!((1_000..20_000).contains(&all), "{all}");
    assert!(report.faults.len() <= 1_000);
    assert!(report.to_string().contains("more faults"));
}

/// Regression: in a heap with canaries, the fill after a block had the length that the slab's entry
/// gave, and overwrote other blocks.
#[test]
fn canary_with_forged_class_stays_within_its_block() {
    let heap = HeapOptions::new(2 * SLAB).canaries(true).create().expect("there is memory");
    let first = heap.alloc(10).expect("space");
    let mut behind: Vec<_> = (0..4).map(|_| heap.alloc(10).expect("space")).collect();
    behind.iter_mut().for_each(|block| block.fill(1));
    let offset = first.offset();
    first.free().expect("the canary is unchanged");
    heap.core.space.slab(0).class.store(SizeClass::Small(20).raw(), Ordering::Relaxed);
    let again = heap.alloc(10).expect("space");
    heap.core.space.slab(0).class.store(SizeClass::of(10 + canary::BYTES).raw(), Ordering::Relaxed);
    assert_eq!(again.offset(), offset);
    assert!(behind.iter().all(|block| block.iter().all(|byte| *byte == 1)));
    assert_eq!(heap.check().expect("not forked").faults, []);
}

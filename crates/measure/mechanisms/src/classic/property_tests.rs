//! Tests that compare random calls with a model, for each `Fit`.

#![allow(unsafe_code, reason = "writes into blocks, and frees them")]

use std::collections::BTreeMap;
use std::ptr::NonNull;

use proptest::prelude::*;

use super::{ClassicHeap, Fit};

/// A call to the heap.
#[derive(Debug, Clone)]
enum ClassicOp {
    Malloc(usize),
    /// Frees one of the allocated blocks.
    Free(usize),
}

fn step() -> impl Strategy<Value = ClassicOp> {
    let size = prop_oneof![8 => 0..200_usize, 2 => 200..6_000_usize, 1 => 60_000..90_000_usize];
    prop_oneof![
        3 => size.prop_map(ClassicOp::Malloc),
        2 => (0..1_000_usize).prop_map(ClassicOp::Free),
    ]
}

fn fit() -> impl Strategy<Value = Fit> {
    prop_oneof![Just(Fit::First), Just(Fit::Next), Just(Fit::Best)]
}

/// An allocated block: its size, and the value of all its bytes.
struct FilledBlock {
    size: usize,
    byte: u8,
}

/// A heap, and the allocated blocks by their offsets.
struct HeapAndModel {
    heap: ClassicHeap,
    held: BTreeMap<usize, (NonNull<u8>, FilledBlock)>,
}

impl HeapAndModel {
    fn malloc(&mut self, size: usize, byte: u8) {
        // The heap sometimes reaches its maximum size.
        let Ok(block) = self.heap.malloc(size) else { return };
        let offset = self.heap.space.offset_of(block.addr().get()).expect("its own");
        assert_eq!(block.as_ptr().addr() % 16, 0);
        let end = |(offset, (_, held)): (&usize, &(_, FilledBlock))| offset + held.size;
        let before = self.held.range(..=offset).next_back().map_or(0, end);
        assert!(before <= offset, "{offset:#x} is held");
        let behind = self.held.range(offset..).next().map_or(usize::MAX, |(behind, _)| *behind);
        assert!(offset + size <= behind, "{behind:#x} is held");
        // SAFETY: the block has `size` bytes.
        unsafe { block.write_bytes(byte, size) };
        self.held.insert(offset, (block, FilledBlock { size, byte }));
    }

    fn free(&mut self, which: usize) {
        let Some(&offset) = self.held.keys().nth(which % self.held.len().max(1)) else { return };
        let (block, FilledBlock { size, byte }) = self.held.remove(&offset).expect("it was there");
        // SAFETY: the block has `size` bytes, until it is freed.
        unsafe {
            let bytes = std::slice::from_raw_parts(block.as_ptr(), size);
            assert!(bytes.iter().all(|found| *found == byte), "{offset:#x} was overwritten");
            self.heap.free(block).expect("it is allocated");
        }
    }

    /// Checks that the map has the allocated blocks and no others, and that its blocks cover the
    /// whole heap.
    fn check(&self) {
        let map = self.heap.check().expect("it is sound");
        let blocks = &map.blocks()[1..];
        let allocated = blocks.iter().filter(|block| block.allocated);
        let held = self.held.iter().zip(allocated.clone());
        assert_eq!(allocated.count(), self.held.len());
        for ((offset, (_, held)), block) in held {
            assert_eq!(*offset, block.offset);
            assert!(held.size + 16 <= block.size);
        }
        let bytes: usize = blocks.iter().map(|block| block.size).sum();
        assert_eq!(bytes + 32, self.heap.space.used());
        let rover = self.heap.rover;
        assert!(
            rover == self.heap.space.used() || blocks.iter().any(|block| block.offset == rover)
        );
    }
}

/// A value written out of bounds: a word that looks like a header, or any other word.
fn rubbish() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0..300_u64, 0..2_u64).prop_map(|(size, allocated)| (16 * size) | allocated),
        any::<u64>(),
    ]
}

proptest! {
    /// After any words of the heap are overwritten, each call returns an error, or a block within
    /// the heap. An access outside the heap's memory would end the test with SIGSEGV or a panic.
    #[test]
    fn overwritten_classic_heap_stays_within_its_memory(
        fit in fit(),
        words in prop::collection::vec((0..516_usize, rubbish()), 1..20),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut heap = ClassicHeap::new(fit, 1 << 20).expect("there is memory");
        let block = |_| heap.malloc(100).expect("there is space");
        let mut blocks: Vec<_> = (0..20).map(block).collect();
        for (word, rubbish) in words {
            heap.space.set_word(8 * word, rubbish);
        }
        for step in steps {
            match step {
                ClassicOp::Malloc(size) => {
                    let Ok(block) = heap.malloc(size) else { continue };
                    let offset = heap.space.offset_of(block.addr().get()).expect("within the heap");
                    prop_assert!(offset + size <= heap.space.used(), "{offset:#x}");
                    blocks.push(block);
                }
                ClassicOp::Free(which) => {
                    let block = blocks[which % blocks.len()];
                    // SAFETY: no block is in use, and the test checks how the heap handles invalid
                    // pointers.
                    let _ = unsafe { heap.free(block) };
                }
            }
            let _ = heap.check();
        }
    }

    #[test]
    fn classic_heap_allocates_each_byte_to_one_holder(
        fit in fit(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let heap = ClassicHeap::new(fit, 1 << 20).expect("there is memory");
        let mut both = HeapAndModel { heap, held: BTreeMap::new() };
        for (step, byte) in steps.into_iter().zip((0..=u8::MAX).cycle()) {
            match step {
                ClassicOp::Malloc(size) => both.malloc(size, byte),
                ClassicOp::Free(which) => both.free(which),
            }
            both.check();
        }
        while !both.held.is_empty() {
            both.free(0);
        }
        both.check();
        prop_assert_eq!(both.heap.check().expect("sound").blocks().len(), 2, "one free block");
    }
}

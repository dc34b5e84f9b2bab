//! Tests of the heap as a published program uses it, and of its reaction to misuse.

#![allow(unsafe_code, reason = "frees blocks, and writes beyond their ends")]

use super::*;

const FITS: [Fit; 3] = [Fit::First, Fit::Next, Fit::Best];

fn heap(fit: Fit) -> ClassicHeap {
    ClassicHeap::new(fit, DEFAULT_SIZE).expect("there is memory")
}

fn free(heap: &mut ClassicHeap, block: NonNull<u8>) {
    // SAFETY: this is a block of this heap, which is not used any more.
    unsafe { heap.free(block) }.expect("it is allocated");
}

fn drawn(heap: &ClassicHeap) -> Vec<String> {
    let map = heap.check().expect("it is sound");
    let letter = |block: &BlockInfo| if block.allocated { 'a' } else { 'f' };
    map.blocks().iter().map(|block| format!("{}:{}", block.size, letter(block))).collect()
}

/// The map equals the map that a published program printed, character for character, except for the
/// heap's address.
#[test]
fn map_of_three_blocks_matches_published_map() {
    for fit in FITS {
        let mut heap = heap(fit);
        let [unused, p, q] = [32, 8, 8].map(|size| heap.malloc(size).expect("there is space"));
        assert_eq!(drawn(&heap), ["16:a", "48:a", "32:a", "32:a", "3984:f"]);
        let base = heap.space.address(0);
        assert_eq!(base % 4096, 0);
        let line =
            |at: usize, tag: &str| format!("{:#x}: header: [{tag}] footer: [{tag}]\n", base + at);
        let expected = [
            format!("Heap ({:#x}):\n", base + 0x10),
            line(0x10, "16:a"),
            line(0x20, "48:a"),
            line(0x50, "32:a"),
            line(0x70, "32:a"),
            line(0x90, "3984:f"),
            format!("{:#x}: EOL\n", base + 0x1020),
        ];
        assert_eq!(heap.check().expect("sound").to_string(), expected.concat());
        for block in [p, q, unused] {
            free(&mut heap, block);
        }
        assert_eq!(drawn(&heap), ["16:a", "4096:f"]);
    }
}

/// Two counters of the published program share a cache line because of the block before them.
/// Without that block, or with counters of 64 bytes each, they do not.
#[test]
fn preceding_block_moves_two_counters_into_one_cache_line() {
    let lines = |sizes: &[usize]| {
        let mut heap = heap(Fit::First);
        let blocks = sizes.iter().map(|&size| heap.malloc(size).expect("there is space"));
        let lines: Vec<usize> = blocks.map(|block| block.as_ptr().addr() / 64).collect();
        lines[lines.len() - 1] - lines[lines.len() - 2]
    };
    assert_eq!([lines(&[32, 8, 8]), lines(&[8, 8]), lines(&[32, 64, 64])], [0, 1, 1]);
}

/// The heap has four free blocks, of 128, 64, 96 and 80 bytes, and a free tail. Each fit chooses
/// differently.
#[test]
fn fits_choose_different_free_blocks() {
    let taken = FITS.map(|fit| {
        let mut heap = heap(fit);
        let sizes = [112, 16, 48, 16, 80, 16, 64, 16];
        let blocks = sizes.map(|size| heap.malloc(size).expect("there is space"));
        for hole in [0, 2, 4, 6] {
            free(&mut heap, blocks[hole]);
        }
        [64, 40].map(|size| {
            let block = heap.malloc(size).expect("there is space");
            blocks.iter().position(|other| *other == block)
        })
    });
    // The heap allocates 80 bytes and then 64. First fit takes the block of 128, of which 48 are
    // left, then the block of 64. Next fit takes the tail, after the last allocated block. Best fit
    // takes the blocks of 80 and of 64.
    assert_eq!(taken, [[Some(0), Some(2)], [None, None], [Some(6), Some(2)]]);
}

/// At the end of the list, the search continues at its beginning. If the block at which the next
/// search begins is joined with the block before it, the search begins at the joined block.
#[test]
fn next_fit_wraps_around_and_resumes_at_joined_block() {
    let mut heap = heap(Fit::Next);
    let blocks = [112, 16, 48, 16].map(|size| heap.malloc(size).expect("there is space"));
    let tail = heap.malloc(4096 - 128 - 32 - 64 - 32 - 16).expect("all that is left");
    assert_eq!(drawn(&heap), ["16:a", "128:a", "32:a", "64:a", "32:a", "3840:a"]);
    free(&mut heap, blocks[0]);
    assert_eq!(heap.malloc(112), Ok(blocks[0]), "wrapped around");
    free(&mut heap, blocks[2]);
    assert_eq!(heap.malloc(48), Ok(blocks[2]), "after the last result");
    for block in [blocks[1], blocks[2]] {
        free(&mut heap, block);
    }
    assert_eq!(heap.malloc(48), Ok(blocks[1]), "joined");
    free(&mut heap, tail);
    heap.check().expect("sound");
}

#[test]
fn classic_heap_grows_by_4096_bytes_or_block_size() {
    let mut heap = heap(Fit::First);
    assert_eq!(heap.space.used(), 32 + 4096);
    heap.malloc(4096).expect("it grows");
    assert_eq!(drawn(&heap), ["16:a", "4112:a", "4096:f"]);
    heap.malloc(100_000).expect("it grows");
    assert_eq!(drawn(&heap), ["16:a", "4112:a", "100016:a", "4096:f"]);
}

#[test]
fn full_classic_heap_returns_full_and_stays_usable() {
    let mut heap = ClassicHeap::new(Fit::First, 8192).expect("there is memory");
    for size in [usize::MAX, usize::MAX - 20, 1 << 50, 8192] {
        let found = heap.malloc(size).expect_err("no space");
        assert_eq!(found, ClassicError::Full { requested: size, size: 4128, max: 8192 });
    }
    assert_eq!(drawn(&heap), ["16:a", "4096:f"]);
    // The remaining space is smaller than a usual extension, so the heap uses all of it.
    let blocks = [4000, 4096 - 16].map(|size| heap.malloc(size).expect("there is space"));
    assert_eq!(drawn(&heap), ["16:a", "4016:a", "4096:a", "48:f"]);
    assert!(heap.malloc(33).is_err());
    for block in blocks {
        free(&mut heap, block);
    }
    assert_eq!(drawn(&heap), ["16:a", "8160:f"]);
}

#[test]
fn invalid_free_returns_error_and_changes_nothing() {
    let mut heap = heap(Fit::First);
    let [a, b, c] = [40, 40, 40].map(|size| heap.malloc(size).expect("there is space"));
    for block in [a, c] {
        // SAFETY: the block has 40 bytes.
        unsafe { block.write_bytes(0xee, 40) };
    }
    free(&mut heap, b);
    let before = heap.check().expect("sound");
    let foreign = NonNull::from(&mut 0_u64).cast::<u8>();
    // SAFETY: all results are within the heap.
    let [inside, odd, never, prologue] = unsafe { [c.add(16), a.add(3), c.add(128), a.sub(16)] };
    let address = |block: NonNull<u8>| block.as_ptr().addr();
    let expected = [
        (foreign, ClassicError::NotInHeap { address: address(foreign) }),
        (prologue, ClassicError::NotInHeap { address: address(prologue) }),
        (b, ClassicError::DoubleFree { offset: 0x60 }),
        (inside, ClassicError::InvalidPointer { offset: 0xb0, block: 0xa0, size: 64 }),
        (odd, ClassicError::InvalidPointer { offset: 0x23, block: 0x20, size: 64 }),
        (never, ClassicError::InvalidPointer { offset: 0x120, block: 0xe0, size: 3904 }),
    ];
    for (block, error) in expected {
        // SAFETY: no block is allocated there, and the word before it is not a block's header.
        assert_eq!(unsafe { heap.free(block) }, Err(error));
    }
    assert_eq!(heap.check().expect("sound"), before);
    // The block is freed and joined with the free block before it.
    free(&mut heap, c);
    // SAFETY: the block is not allocated: its header marks it as free.
    assert_eq!(unsafe { heap.free(c) }, Err(ClassicError::DoubleFree { offset: 0xa0 }));
}

/// A write beyond a block's end overwrites the heap's own words. It is detected when that block or
/// the next one is freed, or by a check, and the error names the block.
#[test]
fn write_beyond_block_end_error_names_block() {
    for far in [1, 8, 16] {
        for byte in [0xee, 0xef, 0, 1] {
            let mut heap = heap(Fit::First);
            let [a, b] = [32, 32].map(|size| heap.malloc(size).expect("there is space"));
            // SAFETY: the write is the mistake under test, and stays within the heap's memory.
            unsafe { a.add(32).write_bytes(byte, far) };
            let damaged = |found: &Result<(), ClassicError>, at: usize| match found {
                Err(ClassicError::Corrupted { offset, .. }) => *offset == at,
                _ => false,
            };
            // SAFETY: the blocks are not in use.
            let freed = unsafe { [heap.free(b), heap.free(a)] };
            // If the next header is overwritten too, the error names the block before that header.
            let first = if far > 8 { 0x20 } else { 0x50 };
            assert!(damaged(&freed[0], first) && damaged(&freed[1], 0x20), "{freed:?}");
            let checked = heap.check().map(drop);
            assert!(damaged(&checked, 0x20), "{checked:?}");
            let reported = checked.expect_err("damaged").to_string();
            assert!(reported.contains("beyond its end"), "{reported}");
        }
    }
}

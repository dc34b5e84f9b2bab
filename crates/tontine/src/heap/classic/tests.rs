//! What the source's programs see of the heap, and what becomes of mistakes.

#![allow(unsafe_code, reason = "frees blocks, and writes where nobody should")]

use super::*;

const FITS: [Fit; 3] = [Fit::First, Fit::Next, Fit::Best];

fn heap(fit: Fit) -> ClassicHeap {
    ClassicHeapOptions::new().fit(fit).create().expect("there is memory")
}

fn free(heap: &mut ClassicHeap, block: NonNull<u8>) {
    // SAFETY: it is of this heap, and nobody uses it any more.
    unsafe { heap.free(block) }.expect("it is allocated");
}

fn drawn(heap: &ClassicHeap) -> Vec<String> {
    let map = heap.check().expect("it is sound");
    let letter = |block: &BlockInfo| if block.allocated { 'a' } else { 'f' };
    map.blocks().iter().map(|block| format!("{}:{}", block.size, letter(block))).collect()
}

/// The source's program: its map, to the letter but for where the kernel put the heap.
#[test]
fn the_sources_three_blocks_lie_where_its_map_has_them() {
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

/// Two counters of the source share a cache line, because of the block before them; without it, or
/// with 64 bytes each, they do not.
#[test]
fn the_block_before_them_puts_two_counters_into_one_line() {
    let lines = |sizes: &[usize]| {
        let mut heap = heap(Fit::First);
        let blocks = sizes.iter().map(|&size| heap.malloc(size).expect("there is space"));
        let lines: Vec<usize> = blocks.map(|block| block.as_ptr().addr() / 64).collect();
        lines[lines.len() - 1] - lines[lines.len() - 2]
    };
    assert_eq!([lines(&[32, 8, 8]), lines(&[8, 8]), lines(&[32, 64, 64])], [0, 1, 1]);
}

/// Four holes, of 128, 64, 96 and 80 bytes, and a tail: which is taken shows the fit.
#[test]
fn each_fit_takes_its_own_hole() {
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
    // Blocks of 80 bytes and of 64. First: the hole of 128, of which 48 are left, then the one of
    // 64. Next: the tail, behind the last that was given out. Best: the holes of 80 and of 64.
    assert_eq!(taken, [[Some(0), Some(2)], [None, None], [Some(6), Some(2)]]);
}

/// The search that comes to the end begins anew; and where it was joined with the block before it,
/// the block from which it goes on is that one.
#[test]
fn next_fit_goes_around_and_on_from_a_block_that_was_joined() {
    let mut heap = heap(Fit::Next);
    let blocks = [112, 16, 48, 16].map(|size| heap.malloc(size).expect("there is space"));
    let tail = heap.malloc(4096 - 128 - 32 - 64 - 32 - 16).expect("all that is left");
    assert_eq!(drawn(&heap), ["16:a", "128:a", "32:a", "64:a", "32:a", "3840:a"]);
    free(&mut heap, blocks[0]);
    assert_eq!(heap.malloc(112), Ok(blocks[0]), "around");
    free(&mut heap, blocks[2]);
    assert_eq!(heap.malloc(48), Ok(blocks[2]), "on from the last");
    for block in [blocks[1], blocks[2]] {
        free(&mut heap, block);
    }
    assert_eq!(heap.malloc(48), Ok(blocks[1]), "joined");
    free(&mut heap, tail);
    heap.check().expect("sound");
}

#[test]
fn it_grows_by_4096_bytes_or_by_what_a_block_needs_and_is_one_with_what_was_free() {
    let mut heap = heap(Fit::First);
    assert_eq!(heap.size(), 32 + 4096);
    heap.malloc(4096).expect("it grows");
    assert_eq!(drawn(&heap), ["16:a", "4112:a", "4096:f"]);
    heap.malloc(100_000).expect("it grows");
    assert_eq!(drawn(&heap), ["16:a", "4112:a", "100016:a", "4096:f"]);
}

#[test]
fn a_full_heap_says_so_and_goes_on() {
    let mut heap = ClassicHeapOptions::new().max_size(8192).create().expect("there is memory");
    for size in [usize::MAX, usize::MAX - 20, 1 << 50, 8192] {
        let found = heap.malloc(size).expect_err("there is no room");
        assert_eq!(found, HeapError::Full { asked: size, size: 4128, max: 8192 });
    }
    assert_eq!(drawn(&heap), ["16:a", "4096:f"]);
    // What is left is less than a usual extension, and is used all the same.
    let blocks = [4000, 4096 - 16].map(|size| heap.malloc(size).expect("there is space"));
    assert_eq!(drawn(&heap), ["16:a", "4016:a", "4096:a", "48:f"]);
    assert!(heap.malloc(33).is_err());
    for block in blocks {
        free(&mut heap, block);
    }
    assert_eq!(drawn(&heap), ["16:a", "8160:f"]);
}

#[test]
fn a_heap_of_no_size_that_there_is_is_refused() {
    for most in [0, 4127, 1 << 47, usize::MAX] {
        let found = ClassicHeapOptions::new().max_size(most).create().expect_err("refused");
        assert!(matches!(found, HeapError::InvalidSize { size, .. } if size == most), "{found}");
    }
}

#[test]
fn what_cannot_be_freed_is_told_from_each_other_and_nothing_changes() {
    let mut heap = heap(Fit::First);
    let [a, b, c] = [40, 40, 40].map(|size| heap.malloc(size).expect("there is space"));
    for block in [a, c] {
        // SAFETY: 40 bytes are ours.
        unsafe { block.write_bytes(0xee, 40) };
    }
    free(&mut heap, b);
    let before = heap.check().expect("sound");
    let foreign = NonNull::from(&mut 0_u64).cast::<u8>();
    // SAFETY: within the heap.
    let [inside, odd, never, prologue] = unsafe { [c.add(16), a.add(3), c.add(128), a.sub(16)] };
    let address = |block: NonNull<u8>| block.as_ptr().addr();
    let expected = [
        (foreign, HeapError::NotInHeap { address: address(foreign) }),
        (prologue, HeapError::NotInHeap { address: address(prologue) }),
        (b, HeapError::DoubleFree { offset: 0x60 }),
        (inside, HeapError::InvalidPointer { offset: 0xb0, block: 0xa0, size: 64 }),
        (odd, HeapError::InvalidPointer { offset: 0x23, block: 0x20, size: 64 }),
        (never, HeapError::InvalidPointer { offset: 0x120, block: 0xe0, size: 3904 }),
    ];
    for (block, error) in expected {
        // SAFETY: it is none, and what lies before it looks like no header of a block in use.
        assert_eq!(unsafe { heap.free(block) }, Err(error));
    }
    assert_eq!(heap.check().expect("sound"), before);
    // Joined with the free block before it, it is none any more.
    free(&mut heap, c);
    // SAFETY: its header says that it is free.
    assert_eq!(unsafe { heap.free(c) }, Err(HeapError::DoubleFree { offset: 0xa0 }));
}

/// Whoever writes beyond its block overwrites what the heap put there: that is found when the block
/// is freed, or the next one, or by a check, and the block is named.
#[test]
fn who_writes_beyond_its_block_is_named() {
    for far in [1, 8, 16] {
        for byte in [0xee, 0xef, 0, 1] {
            let mut heap = heap(Fit::First);
            let [a, b] = [32, 32].map(|size| heap.malloc(size).expect("there is space"));
            // SAFETY: it is what must not be done; within the heap's memory, and nobody else's.
            unsafe { a.add(32).write_bytes(byte, far) };
            let damaged = |found: &Result<()>, at: usize| match found {
                Err(HeapError::Corrupted { offset, .. }) => *offset == at,
                _ => false,
            };
            // SAFETY: nobody uses them.
            let freed = unsafe { [heap.free(b), heap.free(a)] };
            // A header that is overwritten, too, says that the one before it is damaged.
            let first = if far > 8 { 0x20 } else { 0x50 };
            assert!(damaged(&freed[0], first) && damaged(&freed[1], 0x20), "{freed:?}");
            let checked = heap.check().map(drop);
            assert!(damaged(&checked, 0x20), "{checked:?}");
            let told = checked.expect_err("damaged").to_string();
            assert!(told.contains("beyond its end"), "{told}");
        }
    }
}

#[test]
fn threads_pass_one_lock_and_lose_nothing() {
    let heap = LockedHeap::new(ClassicHeap::new().expect("there is memory"));
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let heap = &heap;
            scope.spawn(move || {
                for round in 0..200 {
                    let size = 1 + (round * 37) % 300;
                    let block = heap.malloc(size).expect("there is space");
                    // SAFETY: so many bytes are this thread's until it frees them.
                    unsafe {
                        block.write_bytes(thread, size);
                        let bytes = std::slice::from_raw_parts(block.as_ptr(), size);
                        assert!(bytes.iter().all(|byte| *byte == thread));
                        heap.free(block).expect("it is allocated");
                    }
                }
            });
        }
    });
    assert!(heap.check().expect("sound").blocks().iter().skip(1).all(|block| !block.allocated));
}

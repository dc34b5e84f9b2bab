//! What the source's programs see of the heap, and what becomes of mistakes.

#![allow(unsafe_code, reason = "frees blocks, and writes where nobody should")]

use super::*;

const FITS: [Fit; 3] = [Fit::First, Fit::Next, Fit::Best];

fn heap(fit: Fit) -> Heap {
    Heap::new(Options::new().fit(fit)).expect("there is memory")
}

fn drawn(heap: &Heap) -> Vec<String> {
    let map = heap.check().expect("it is sound");
    let letter = |block: &Block| if block.allocated { 'a' } else { 'f' };
    map.blocks().iter().map(|block| format!("{}:{}", block.size, letter(block))).collect()
}

/// The source's program: its map, to the letter but for where the kernel put the heap.
#[test]
fn the_sources_three_blocks_lie_where_its_map_has_them() {
    for fit in FITS {
        let mut heap = heap(fit);
        let [unused, p, q] = [32, 8, 8].map(|size| heap.malloc(size).expect("there is room"));
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
            // SAFETY: nobody uses it.
            unsafe { heap.free(block) }.expect("it is allocated");
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
        let blocks = sizes.iter().map(|&size| heap.malloc(size).expect("there is room"));
        let lines: Vec<usize> = blocks.map(|block| block.as_ptr().addr() / 64).collect();
        lines[lines.len() - 1] - lines[lines.len() - 2]
    };
    assert_eq!([lines(&[32, 8, 8]), lines(&[8, 8]), lines(&[32, 64, 64])], [0, 1, 1]);
}

/// Three holes: which is taken shows the fit.
#[test]
fn each_fit_takes_its_own_hole() {
    let taken = FITS.map(|fit| {
        let mut heap = heap(fit);
        let sizes = [112, 16, 48, 16, 80, 16, 64, 16];
        let blocks = sizes.map(|size| heap.malloc(size).expect("there is room"));
        // The last one that was looked for: from there `Next` goes on.
        let holes = [blocks[0], blocks[2], blocks[4]];
        for hole in holes {
            // SAFETY: nobody uses it.
            unsafe { heap.free(hole) }.expect("it is allocated");
        }
        // SAFETY: nobody uses it.
        unsafe { heap.free(blocks[6]) }.expect("it is allocated");
        let block = heap.malloc(64).expect("there is room");
        let next = heap.malloc(40).expect("there is room");
        [block, next].map(|block| blocks.iter().position(|other| *other == block))
    });
    // First: the hole of 128, then what is left of it, which begins nowhere that was one before.
    // Next: behind the last block that it found. Best: 64 in 64, then 48 in 48.
    assert_eq!(taken, [[Some(0), Some(2)], [None, None], [Some(6), Some(2)]]);
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
    let mut heap = Heap::new(Options::new().most(8192)).expect("there is memory");
    for size in [usize::MAX, usize::MAX - 20, 1 << 50, 8192] {
        let found = heap.malloc(size).expect_err("there is no room");
        assert_eq!(found, Error::Full { asked: size, size: 4128, most: 8192 });
    }
    assert_eq!(drawn(&heap), ["16:a", "4096:f"]);
    let block = heap.malloc(4000).expect("there is room");
    assert!(heap.malloc(4096).is_err());
    // SAFETY: nobody uses it.
    unsafe { heap.free(block) }.expect("it is allocated");
    assert_eq!(drawn(&heap), ["16:a", "4096:f"]);
}

#[test]
fn a_heap_of_no_size_that_there_is_is_refused() {
    for most in [0, 4127, 1 << 47, usize::MAX] {
        let found = Heap::new(Options::new().most(most)).expect_err("refused");
        assert!(matches!(found, Error::BadSize { most: told, .. } if told == most), "{found}");
    }
}

#[test]
fn what_cannot_be_freed_is_told_from_each_other_and_nothing_changes() {
    let mut heap = heap(Fit::First);
    let [a, b, c] = [40, 40, 40].map(|size| heap.malloc(size).expect("there is room"));
    // SAFETY: nobody uses it.
    unsafe { heap.free(b) }.expect("it is allocated");
    let before = heap.check().expect("sound");
    let foreign = NonNull::from(&mut 0_u64).cast::<u8>();
    // SAFETY: within the blocks.
    let [inside, odd] = unsafe { [c.add(16), a.add(3)] };
    let expected = [
        (foreign, Error::Foreign { address: foreign.as_ptr().addr() }),
        (b, Error::FreeAlready { offset: 0x60 }),
        (inside, Error::NoBlock { offset: 0xb0, block: 0xa0, size: 64 }),
        (odd, Error::NoBlock { offset: 0x23, block: 0x20, size: 64 }),
    ];
    for (block, error) in expected {
        // SAFETY: it is refused.
        assert_eq!(unsafe { heap.free(block) }, Err(error));
    }
    assert_eq!(heap.check().expect("sound"), before);
    // Joined with the free block before it, it is none any more.
    // SAFETY: nobody uses it; the second time it is refused.
    let twice = unsafe { [heap.free(c), heap.free(c)] };
    assert_eq!(twice, [Ok(()), Err(Error::FreeAlready { offset: 0xa0 })]);
}

/// Whoever writes beyond its block overwrites what the heap put there: that is found when the block
/// is freed, or the next one, or by a check, and the block is named.
#[test]
fn who_writes_beyond_its_block_is_named() {
    for far in [1, 8, 16] {
        let mut heap = heap(Fit::First);
        let [a, b] = [32, 32].map(|size| heap.malloc(size).expect("there is room"));
        // SAFETY: it is what must not be done; within the heap's memory, and nobody else's.
        unsafe { a.add(32).write_bytes(0xee, far) };
        // SAFETY: nobody uses them.
        let freed = unsafe { [heap.free(a), heap.free(b)] };
        let damaged =
            |block: &Result<()>| matches!(block, Err(Error::Damaged { offset: 0x20, .. }));
        assert!(damaged(&freed[0]), "{freed:?}");
        let checked = heap.check().map(drop);
        assert!(damaged(&checked), "{checked:?}");
        let told = checked.expect_err("damaged").to_string();
        assert!(told.contains("beyond its end"), "{told}");
    }
}

/// Rubbish where the list should be: an error or a block, and never an access outside of the heap.
#[test]
fn a_heap_full_of_rubbish_stays_within_its_memory() {
    for rubbish in [0, 0x11, 0x30, 0x7f, 0xff] {
        for fit in FITS {
            let mut heap = heap(fit);
            let [a, b] = [32, 32].map(|size| heap.malloc(size).expect("there is room"));
            // SAFETY: it is what must not be done; within the heap's memory, and nobody else's.
            unsafe { a.write_bytes(rubbish, 4000) };
            assert!(heap.check().is_err());
            for _ in 0..20 {
                // It may have no room, or find the damage.
                let _ = heap.malloc(100);
            }
            // SAFETY: nobody uses it.
            assert!(unsafe { heap.free(b) }.is_err());
        }
    }
}

#[test]
fn threads_pass_one_lock_and_lose_nothing() {
    let heap = Locked::new(Options::new()).expect("there is memory");
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let heap = &heap;
            scope.spawn(move || {
                for round in 0..200 {
                    let size = 1 + (round * 37) % 300;
                    let block = heap.malloc(size).expect("there is room");
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

//! Fuzz targets for the shared heap: words overwritten by a hostile member, and forged handles,
//! parcels and members.

use super::input::FuzzInput;
use crate::heap::shared::{Block, Handle, Heap, Member, Parcel};

/// Number of slabs of the heap.
const SLABS: usize = 4;
/// Size of a slab in bytes.
const SLAB: usize = 64 << 10;
/// Maximum number of steps of one run.
const STEPS: usize = 200;

fn heap() -> Option<Heap> {
    Heap::create(SLABS * SLAB).ok()
}

/// Checks that a block is inside the heap's memory, without relying on the heap's words, and reads
/// and writes the block.
fn read_and_write(heap: &Heap, block: &mut Block<'_>) {
    let first = heap.alloc_end() - (SLABS * SLAB) as u64;
    assert!(block.offset() >= first && block.offset() + block.len() as u64 <= heap.alloc_end());
    if let Some(byte) = block.first_mut() {
        *byte = byte.wrapping_add(1);
    }
    if let Some(byte) = block.last_mut() {
        *byte = byte.wrapping_add(1);
    }
}

/// Overwrites words of a heap, and calls the heap's functions in between.
pub fn heap_words(bytes: &[u8]) {
    let Some(heap) = heap() else { return };
    let mut input = FuzzInput::new(bytes);
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut parcels: Vec<Parcel> = Vec::new();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let what = input.u8() % 10;
        match what {
            0 => {
                let (region, at, kind, word) = (input.u8(), input.u16(), input.u8(), input.u64());
                heap.scribble(region, at, |found| match kind % 4 {
                    0 => word,
                    1 => found ^ word,
                    2 => found ^ (1 << (word % 64)),
                    _ => found.wrapping_add(word),
                });
                continue;
            }
            1 => {
                let len = usize::from(input.u16()) * (1 + usize::from(blocks.len() % 5 == 4));
                if let Ok(mut block) = heap.alloc(len) {
                    assert_eq!(block.len(), len);
                    read_and_write(&heap, &mut block);
                    blocks.push(block);
                }
                continue;
            }
            6 => drop(heap.recover_and_trim()),
            7 => {
                let report = heap.check().expect("not forked");
                assert_eq!(report.slabs.len(), SLABS);
                let _ = (report.in_use(), report.to_string().len());
            }
            8 => {
                let swept = heap.dead_members().and_then(|dead| heap.reclaim_received(&dead));
                drop((swept, heap.reclaim_sent(Member::from_u64(input.u64()))));
            }
            _ => {
                let which = usize::from(input.u8());
                if what == 4 || what == 5 {
                    if parcels.is_empty() {
                        continue;
                    }
                    let parcel = parcels.swap_remove(which % parcels.len());
                    let landed =
                        if what == 4 { heap.accept(parcel) } else { heap.take_back(parcel) };
                    if let Ok(mut block) = landed {
                        read_and_write(&heap, &mut block);
                        blocks.push(block);
                    }
                    continue;
                }
                if blocks.is_empty() {
                    continue;
                }
                let block = blocks.swap_remove(which % blocks.len());
                match what {
                    2 => drop(block.free()),
                    3 => match block.hand_over(heap.member()) {
                        Ok(parcel) => parcels.push(parcel),
                        Err((_, block)) => blocks.push(block),
                    },
                    _ => {
                        if let Ok(mut block) = heap.claim(block.into_handle()) {
                            read_and_write(&heap, &mut block);
                            blocks.push(block);
                        }
                    }
                }
            }
        }
    }
    drop(blocks);
    let _ = heap.recover_and_trim();
    let _ = heap.check().expect("not forked").to_string();
}

/// Uses forged handles, parcels and members. Each call must return an error or the block that the
/// value happens to name, and the heap must have no fault afterwards.
pub fn heap_names(bytes: &[u8]) {
    let Some(heap) = heap() else { return };
    let mut input = FuzzInput::new(bytes);
    let block = |len| heap.alloc(len).ok();
    let (Some(kept), Some(sent), Some(_other)) = (block(100), block(5_000), block(200)) else {
        return;
    };
    let handle = kept.into_handle();
    let Ok(parcel) = sent.hand_over(heap.member()) else { return };
    let mut landed = Vec::new();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        // The parcel consists of arbitrary bytes or is a variation of a valid parcel.
        let near = input.u8();
        let mut made_up = [0; Parcel::SIZE];
        let some = input.bytes(Parcel::SIZE);
        made_up[..some.len()].copy_from_slice(some);
        if near & 1 != 0 {
            let real = parcel.to_bytes();
            made_up.iter_mut().zip(real).for_each(|(byte, real)| *byte ^= real);
        }
        let word = |at: usize| u64::from_le_bytes(made_up[at..at + 8].try_into().expect("eight"));
        match near >> 1 & 3 {
            0 => landed.extend(heap.accept(Parcel::from_bytes(made_up)).ok()),
            1 => landed.extend(heap.take_back(Parcel::from_bytes(made_up)).ok()),
            2 => {
                let named = Handle { offset: word(0), generation: word(8) };
                if heap.claim(named).map(Block::into_handle).is_ok() {
                    // A block in use may be claimed, since programs guarantee that each handle has
                    // one holder. Only the block's generation is checked.
                    assert!(
                        named.generation == handle.generation || named.generation < STEPS as u64
                    );
                    return;
                }
            }
            _ => {
                let to = Member::from_u64(word(0));
                assert_eq!(Member::from_u64(to.to_u64()), to);
                if let Ok(block) = heap.alloc(10) {
                    match block.hand_over(to) {
                        Ok(parcel) => drop(heap.take_back(parcel)),
                        Err((_, block)) => drop(block),
                    }
                }
            }
        }
    }
    assert!(landed.len() <= 1, "more blocks arrived than the one in flight");
    landed.iter_mut().for_each(|block| read_and_write(&heap, block));
    drop(landed);
    let report = heap.check().expect("not forked");
    assert!(report.faults.is_empty(), "{report}");
}

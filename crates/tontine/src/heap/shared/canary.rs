//! Canaries after blocks. [`write()`] writes them, and [`look`] checks them before a block changes
//! hands.
//!
//! The last 16 bytes of the block hold its length and a number derived from its offset. The bytes
//! between the requested length and these 16 bytes are filled with one value.

#![allow(unsafe_code, reason = "reads and writes behind a block")]

use super::class::SizeClass;
use super::core::Core;
use super::layout::{GRANULE, GRANULES};
use crate::heap::{HeapError, Result};

/// Bytes that the length and the canary occupy.
pub(super) const BYTES: usize = 16;
/// Value of the bytes between the requested length and the canary.
const FILL: u8 = 0xc5;

/// Returns the address of the length, which the canary follows, and the maximum length.
fn tail(core: &Core, granule: usize) -> Option<(*mut u64, usize)> {
    let bytes = core.class(granule / GRANULES)?.bytes();
    let space = core.space.geometry().size() - core.space.geometry().block(granule);
    let most = bytes.min(space) - BYTES;
    // SAFETY: the address is within the mapping, by the definition of `most`, and granule-aligned.
    Some((unsafe { core.space.block(granule).add(most).as_ptr().cast() }, most))
}

fn canary(core: &Core, granule: usize) -> u64 {
    // The product with Knuth's multiplier, made odd, resembles no address and no count.
    let number = (core.space.geometry().block(granule) / GRANULE) as u64;
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Writes length, fill and canary after a block that was just allocated. The class is a parameter,
/// because other members can write the slab's entry.
#[cold]
pub(super) fn write(core: &Core, granule: usize, class: SizeClass, len: usize) {
    let most = class.bytes() - BYTES;
    let len = len.min(most);
    // SAFETY: the bytes are within the block, which this process holds, and are aligned because
    // blocks are whole granules.
    unsafe {
        let tail: *mut u64 = core.space.block(granule).add(most).as_ptr().cast();
        core.space.block(granule).add(len).write_bytes(FILL, most - len);
        tail.write_volatile(len as u64);
        tail.add(1).write_volatile(canary(core, granule));
    }
}

/// Returns the requested length of a block. The value is untrusted and limited to the block's size.
pub(super) fn len(core: &Core, granule: usize) -> usize {
    let Some((tail, most)) = tail(core, granule) else { return 0 };
    // SAFETY: the tail is within the mapping.
    usize::try_from(unsafe { tail.read_volatile() }).map_or(most, |len| len.min(most))
}

/// Checks length, fill and canary after a block.
pub(super) fn look(core: &Core, granule: usize, expected_len: Option<usize>) -> Result<()> {
    let Some((tail, most)) = tail(core, granule) else { return Ok(()) };
    let expected = canary(core, granule);
    // SAFETY: the tail is within the mapping.
    let (len, found) = unsafe { (tail.read_volatile(), tail.add(1).read_volatile()) };
    let len = usize::try_from(len).map_or(most + 1, |len| len);
    let lied = len > most || expected_len.is_some_and(|expected| expected != len);
    let requested = expected_len.unwrap_or(len.min(most));
    // SAFETY: the byte is within the block.
    let byte = |at| unsafe { core.space.block(granule).add(at).read_volatile() };
    let overrun = |expected, found| {
        let offset = core.space.geometry().block(granule) as u64;
        Err(HeapError::Overrun { offset, requested, pid: core.holder_of(granule), expected, found })
    };
    if found != expected {
        return overrun(expected, found);
    }
    match (requested..most).map(byte).find(|byte| *byte != FILL) {
        Some(byte) => overrun(FILL.into(), byte.into()),
        None if lied => overrun(requested as u64, len as u64),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use crate::heap::shared::{Block, HeapOptions};

    #[test]
    fn block_from_shorter_pointer_keeps_canary_length() {
        let heap = HeapOptions::new(1 << 20).canaries(true).create().expect("there is memory");
        let mut block = heap.alloc(100).expect("space");
        block.fill(7);
        let raw = NonNull::slice_from_raw_parts(block.into_raw().cast(), 8);
        // SAFETY: the pointer is from `into_raw`, with a smaller length.
        let block = unsafe { Block::from_raw_in(raw, &heap) };
        assert_eq!(block.len(), 100);
        block.free().expect("the canary is unchanged");
    }
}

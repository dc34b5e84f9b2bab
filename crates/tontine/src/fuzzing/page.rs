//! Fuzz target: a process page filled by a hostile peer.

#![allow(unsafe_code, reason = "fills a mapping with arbitrary words")]

use std::os::fd::AsFd;

use crate::life::Watch;
use crate::sync::{AtomicU64, Ordering};
use crate::sys::region::OwnRegion;

/// Bytes of a process page.
const SIZE: usize = crate::life::PAGE_SIZE;

/// Reads a process page with these bytes, and the mailbox slots whose indexes are among the bytes.
pub fn process_page(bytes: &[u8]) {
    let Ok((region, descriptor)) = OwnRegion::new("fuzzed", SIZE) else { return };
    for (index, piece) in bytes.chunks(8).take(SIZE / 8).enumerate() {
        let mut word = [0; 8];
        word[..piece.len()].copy_from_slice(piece);
        // SAFETY: the word is inside the mapping and aligned; all access to it is atomic.
        let place = unsafe { region.base().add(8 * index).cast::<AtomicU64>().as_ref() };
        place.store(u64::from_le_bytes(word), Ordering::Relaxed);
    }
    let Ok(watch) = Watch::from_fd(descriptor.as_fd()) else { return };
    let alive = watch.is_alive();
    assert_eq!(alive, watch.is_alive());
    let (mut claimed, mut slept) = (0, 0);
    for desk in bytes.chunks_exact(4).map(|four| [four[0], four[1], four[2], four[3]]) {
        let desk = u32::from_le_bytes(desk);
        claimed += u32::from(desk < 1024);
        slept += u32::from(watch.sleeping(desk).is_some_and(|word| word.as_ptr().is_aligned()));
    }
    assert_eq!(claimed, slept);
}

//! The library's heap: [`Ours`]. Its workers are either processes, each of which is a member, or
//! threads of one member.

#![allow(unsafe_code, reason = "asserts that its blocks are valid")]

use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;

use tontine::heap::HeapError;
use tontine::heap::shared::{self, Block, Member, Parcel};
use tontine_bench::heap_map::{HeapMap, HeapMember};
use tontine_host::error::{MeasureError, Result};
use tontine_mechanisms::heap::{must_be_free, refused, rejoined};

use super::board::BlockAddress;
use super::heap::{MeasuredHeap, World};
use super::map::map_of;
use super::ring::RingEntry;

/// Size of the heap in bytes, many times the size of the benchmarks' blocks.
const BYTES: usize = 256 << 20;

/// A heap, created by this process.
#[derive(Debug)]
pub(super) struct Ours<const PROCESSES: bool>(Arc<shared::Heap>);

/// The heap for processes that are forked later.
pub(super) type OfProcesses = Ours<true>;
/// The heap for threads of this process.
pub(super) type OfThreads = Ours<false>;

impl<const PROCESSES: bool> Ours<PROCESSES> {
    pub(super) fn new() -> Result<Self> {
        let heap = shared::Heap::create(BYTES).map_err(refused)?;
        Ok(Self(Arc::new(heap)))
    }
}

/// Returns the error for an entry of zeros, which no worker writes.
#[cold]
fn none() -> MeasureError {
    MeasureError::fail("expected a block's address in the ring, found 0")
}

impl<const PROCESSES: bool> World for Ours<PROCESSES> {
    type WorkerHeap = Self;

    fn join(&self) -> Result<Self> {
        if PROCESSES {
            return Ok(Self(Arc::new(rejoined(&self.0)?)));
        }
        Ok(Self(Arc::clone(&self.0)))
    }

    fn close(&self) -> Result<()> {
        must_be_free(&self.0)
    }

    fn map(&self, moment: &str, named: &[(u32, HeapMember)]) -> Result<Option<HeapMap>> {
        let report = self.0.check().map_err(refused)?;
        Ok(Some(map_of(moment, &report, named)))
    }

    fn recover_and_trim(&self) -> Result<String> {
        let found = self.0.recover_and_trim().map_err(refused)?;
        let (blocks, adopted, back) = (found.blocks, found.adopted, found.given_back);
        Ok(format!("{blocks} blocks freed, {adopted} slabs taken over, {back} given back"))
    }
}

/// A block as a bare pointer, as in other allocators: dropping the pointer does not free the block.
#[derive(Debug)]
pub(super) struct Pointer<'h>(NonNull<u64>, PhantomData<&'h shared::Heap>);

impl<'h> Pointer<'h> {
    #[inline(always)]
    fn of(block: Block<'h>) -> Self {
        Self(block.into_raw().cast(), PhantomData)
    }

    /// Returns the block, of which only the first word is accessed.
    #[inline(always)]
    fn block(self, heap: &'h shared::Heap) -> Block<'h> {
        let raw = NonNull::slice_from_raw_parts(self.0.cast(), size_of::<u64>());
        // SAFETY: the pointer comes from `into_raw` of a block of at least eight bytes, and is
        // consumed here.
        unsafe { Block::from_raw_in(raw, heap) }
    }
}

// SAFETY: a block has the requested bytes, aligned to 64, until it is freed or passed on.
unsafe impl<const PROCESSES: bool> MeasuredHeap for Ours<PROCESSES> {
    type Block<'h> = Pointer<'h>;

    fn address(&self) -> BlockAddress {
        self.0.member().to_u64()
    }

    #[inline(always)]
    fn allocate(&self, size: usize) -> Result<Pointer<'_>> {
        match self.0.alloc(size) {
            Ok(block) => Ok(Pointer::of(block)),
            Err(error) => Err(refused(error)),
        }
    }

    #[inline(always)]
    fn at(&self, block: &mut Pointer<'_>) -> NonNull<u64> {
        block.0
    }

    #[inline(always)]
    fn free(&self, block: Pointer<'_>) -> Result<()> {
        block.block(&self.0).free().map_err(refused)
    }

    #[inline(always)]
    fn give(&self, block: Pointer<'_>, to: BlockAddress) -> Result<Option<RingEntry>> {
        if !PROCESSES {
            return Ok(Some([block.0.expose_provenance().get() as u64, 0, 0]));
        }
        match block.block(&self.0).hand_over(Member::from_u64(to)) {
            Ok(parcel) => Ok(Some(words(parcel.to_bytes()))),
            // The error contains the block, so dropping the error frees the block.
            Err((HeapError::MemberDead { .. }, _)) => Ok(None),
            Err((error, _)) => Err(refused(error)),
        }
    }

    #[inline(always)]
    fn take(&self, entry: RingEntry) -> Result<Option<Pointer<'_>>> {
        if !PROCESSES {
            let address = NonZeroUsize::new(entry[0] as usize).ok_or_else(none)?;
            return Ok(Some(Pointer(NonNull::with_exposed_provenance(address), PhantomData)));
        }
        match self.0.accept(Parcel::from_bytes(bytes(entry))) {
            Ok(block) => Ok(Some(Pointer::of(block))),
            // The block was freed because both its ends had died, and its slab may have been
            // returned since.
            Err(HeapError::Stale { .. } | HeapError::InvalidHandle { .. }) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    fn recover_and_trim(&self) -> Result<()> {
        self.0.recover_and_trim().map(|_| ()).map_err(refused)
    }
}

#[inline(always)]
fn words(bytes: [u8; Parcel::SIZE]) -> RingEntry {
    let word = |at| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    [word(0), word(8), word(16)]
}

#[inline(always)]
fn bytes(entry: RingEntry) -> [u8; Parcel::SIZE] {
    let mut bytes = [0; Parcel::SIZE];
    bytes.chunks_exact_mut(8).zip(entry).for_each(|(to, word)| {
        to.copy_from_slice(&word.to_le_bytes());
    });
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parcel_round_trips_through_an_entry() {
        let entry = [1 << 63 | 5, 7, u64::MAX];
        assert_eq!(words(bytes(entry)), entry);
    }

    #[test]
    fn unfreed_block_is_reported_at_the_end() {
        let heap = OfThreads::new().expect("a heap");
        heap.close().expect("nothing is in use");
        let block = heap.allocate(100).expect("room");
        let found = heap.close().expect_err("one is");
        assert!(found.why().contains("at the end"), "{found}");
        heap.free(block).expect("free");
        heap.close().expect("nothing again");
    }
}

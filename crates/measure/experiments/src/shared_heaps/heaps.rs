//! The heaps behind one interface, [`MeasuredHeap`]: the library's, [`Ours`], and the allocators of
//! a single process, [`Malloc`].

#![allow(unsafe_code, reason = "calls the allocators' C functions, asserts that blocks are valid")]

use std::sync::Arc;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use tontine::heap::HeapError;
use tontine::heap::shared::{self, Block, Member, Parcel};
use tontine_bench::heap_map::{HeapMap, HeapMember};
use tontine_mechanisms::heap::{must_be_free, refused, rejoined};

use super::map::map_of;
use super::table::{BlockAddress, RingEntry};
use crate::allocators::heap::Allocator;
use crate::prelude::*;

/// Size of the library's heap in bytes, many times the size of the benchmarks' blocks.
const BYTES: usize = 256 << 20;

/// A heap that several workers share, and one worker's access to it.
///
/// # Safety
/// The memory behind [`MeasuredHeap::at`] may be read and written, for the requested number of
/// bytes, until the block is freed or passed on.
pub(super) unsafe trait MeasuredHeap: Sync + Sized {
    type Block<'h>
    where
        Self: 'h;

    /// Gives a worker access, in the worker's own process or thread.
    fn join(&self) -> Result<Self>;

    /// Returns the address by which other workers pass a block to this worker.
    fn address(&self) -> BlockAddress {
        0
    }

    /// Allocates a block of `size` bytes, at least eight, aligned to a word.
    fn allocate(&self, size: usize) -> Result<Self::Block<'_>>;

    fn at(&self, block: &mut Self::Block<'_>) -> NonNull<u64>;

    fn free(&self, block: Self::Block<'_>) -> Result<()>;

    /// Converts a block to an entry for the worker at an address. If that worker is dead, frees the
    /// block and returns `None`.
    fn give(&self, block: Self::Block<'_>, to: BlockAddress) -> Result<Option<RingEntry>>;

    /// Converts an entry to its block. Returns `None` if the entry was for a worker that died.
    fn take(&self, entry: RingEntry) -> Result<Option<Self::Block<'_>>>;

    /// Recovers dead workers. Returns a description of the result.
    fn recover_and_trim(&self) -> Result<String> {
        Ok(String::new())
    }

    /// Checks that no memory is left allocated when all workers have ended.
    fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the heap's map while its workers, named by their pids, are stopped, or `None` if the
    /// map is not available from outside.
    fn map(&self, _moment: &str, _named: &[(u32, HeapMember)]) -> Result<Option<HeapMap>> {
        Ok(None)
    }
}

/// The library's heap, created by this process. Its workers are either processes, each of which is
/// a member, or threads of one member.
#[derive(Debug)]
pub(super) struct Ours<const PROCESSES: bool>(Arc<shared::Heap>);

impl<const PROCESSES: bool> Ours<PROCESSES> {
    pub(super) fn new() -> Result<Self> {
        shared::Heap::create(BYTES).map(|heap| Self(Arc::new(heap))).map_err(refused)
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

    fn join(&self) -> Result<Self> {
        if PROCESSES {
            return Ok(Self(Arc::new(rejoined(&self.0)?)));
        }
        Ok(Self(Arc::clone(&self.0)))
    }

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
            let address = NonZeroUsize::new(entry[0] as usize).ok_or_else(no_address)?;
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

    fn recover_and_trim(&self) -> Result<String> {
        let found = self.0.recover_and_trim().map_err(refused)?;
        let (blocks, adopted, back) = (found.blocks, found.adopted, found.given_back);
        Ok(format!("{blocks} blocks freed, {adopted} slabs taken over, {back} given back"))
    }

    fn close(&self) -> Result<()> {
        must_be_free(&self.0)
    }

    fn map(&self, moment: &str, named: &[(u32, HeapMember)]) -> Result<Option<HeapMap>> {
        let report = self.0.check().map_err(refused)?;
        Ok(Some(map_of(moment, &report, named)))
    }
}

#[cold]
fn no_address() -> MeasureError {
    MeasureError::fail("expected a block's address in the ring, found 0")
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

/// An allocator of one process. For all threads, a block is represented by its address.
pub(super) struct Malloc<F>(PhantomData<F>);

impl<F: Allocator> Malloc<F> {
    pub(super) fn new() -> Result<Self> {
        F::prepare()?;
        Ok(Self(PhantomData))
    }
}

/// A block of a heap of bare addresses, which is freed or passed on once.
pub(super) struct Bare(NonNull<u64>);

impl Bare {
    /// Wraps a heap's result for a request of `size` bytes.
    #[inline(always)]
    pub(super) fn new(at: *mut c_void, size: usize) -> Result<Self> {
        NonNull::new(at.cast()).map(Self).ok_or_else(|| no_memory(size))
    }

    #[inline(always)]
    pub(super) fn at(&self) -> NonNull<u64> {
        self.0
    }
}

#[cold]
fn no_memory(size: usize) -> MeasureError {
    MeasureError::fail(format!("expected a block of {size} bytes, found no memory for it"))
}

// SAFETY: `malloc` aligns for any fundamental type. A `Bare` wraps one of its results and is
// consumed by `free` or `give`.
unsafe impl<F: Allocator> MeasuredHeap for Malloc<F> {
    type Block<'h> = Bare;

    fn join(&self) -> Result<Self> {
        Ok(Self(PhantomData))
    }

    #[inline(always)]
    fn allocate(&self, size: usize) -> Result<Bare> {
        Bare::new(F::malloc(size), size)
    }

    #[inline(always)]
    fn at(&self, block: &mut Bare) -> NonNull<u64> {
        block.at()
    }

    #[inline(always)]
    fn free(&self, block: Bare) -> Result<()> {
        // SAFETY: the block comes from this allocator; a `Bare` is a block's only handle.
        unsafe { F::free(block.at().as_ptr().cast()) };
        Ok(())
    }

    #[inline(always)]
    fn give(&self, block: Bare, _: BlockAddress) -> Result<Option<RingEntry>> {
        Ok(Some([block.at().as_ptr().expose_provenance() as u64, 0, 0]))
    }

    #[inline(always)]
    fn take(&self, entry: RingEntry) -> Result<Option<Bare>> {
        let at = std::ptr::with_exposed_provenance_mut::<c_void>(entry[0] as usize);
        Bare::new(at, 0).map(Some)
    }
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
        let heap = Ours::<false>::new().expect("a heap");
        heap.close().expect("nothing is in use");
        let block = heap.allocate(100).expect("memory");
        let found = heap.close().expect_err("one is");
        assert!(found.why().contains("at the end"), "{found}");
        heap.free(block).expect("free");
        heap.close().expect("nothing again");
    }
}

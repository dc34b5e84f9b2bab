//! The heaps behind one interface: [`MeasuredHeap`] for a single worker, [`World`] for all workers.
//! [`Malloc`] wraps the allocators of a single process.

#![allow(unsafe_code, reason = "calls the allocators' C functions")]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use tontine_bench::heap_map::{HeapMap, HeapMember};
use tontine_host::error::{MeasureError, Result};

use super::board::BlockAddress;
use super::ring::RingEntry;

/// A heap that several workers share.
pub(super) trait World: Sync {
    /// A worker's access to the heap.
    type WorkerHeap: MeasuredHeap;

    /// Gives a worker access, in the worker's own process or thread.
    ///
    /// # Errors
    /// Returns `Failed` if the heap is not available.
    fn join(&self) -> Result<Self::WorkerHeap>;

    /// Checks that no memory is left allocated when all workers have ended.
    ///
    /// # Errors
    /// Returns `Failed` if memory is left allocated.
    fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the heap's map while its workers, named by their pids, are stopped, or `None` if the
    /// map is not available from outside.
    ///
    /// # Errors
    /// Returns `Failed` if the heap cannot be inspected.
    fn map(&self, _moment: &str, _named: &[(u32, HeapMember)]) -> Result<Option<HeapMap>> {
        Ok(None)
    }

    /// Recovers dead workers. Returns a description of the result.
    ///
    /// # Errors
    /// Returns `Failed` if the heap reports an error.
    fn recover_and_trim(&self) -> Result<String> {
        Ok(String::new())
    }
}

/// One worker's access to the heap.
///
/// # Safety
/// The memory behind [`MeasuredHeap::at`] may be read and written, for the requested number of
/// bytes, until the block is freed or passed on.
pub(super) unsafe trait MeasuredHeap {
    /// A block of this worker.
    type Block<'h>
    where
        Self: 'h;

    /// Returns the address by which other workers pass a block to this worker.
    fn address(&self) -> BlockAddress {
        0
    }

    /// Allocates a block of `size` bytes, at least eight, aligned to a word.
    ///
    /// # Errors
    /// Returns `Failed` if no memory is available.
    fn allocate(&self, size: usize) -> Result<Self::Block<'_>>;

    /// Returns the start of a block.
    fn at(&self, block: &mut Self::Block<'_>) -> NonNull<u64>;

    /// Frees a block.
    ///
    /// # Errors
    /// Returns `Failed` if the heap refuses.
    fn free(&self, block: Self::Block<'_>) -> Result<()>;

    /// Converts a block to an entry for the worker at an address. If that worker is dead, frees the
    /// block and returns `None`.
    ///
    /// # Errors
    /// Returns `Failed` if the heap refuses.
    fn give(&self, block: Self::Block<'_>, to: BlockAddress) -> Result<Option<RingEntry>>;

    /// Converts an entry to its block. Returns `None` if the entry was for a worker that died.
    ///
    /// # Errors
    /// Returns `Failed` if the heap has no such block.
    fn take(&self, entry: RingEntry) -> Result<Option<Self::Block<'_>>>;

    /// Recovers dead workers.
    ///
    /// # Errors
    /// Returns `Failed` if the heap reports an error.
    fn recover_and_trim(&self) -> Result<()> {
        Ok(())
    }
}

/// The two functions of an allocator of a single process.
pub(super) trait AllocFunctions: Sync + 'static {
    /// The allocator's `malloc`. Returns null if no memory is left.
    fn malloc(size: usize) -> *mut c_void;

    /// The allocator's `free`.
    ///
    /// # Safety
    /// The block comes from this allocator's `malloc` and has not been freed.
    unsafe fn free(block: *mut c_void);
}

/// An allocator of one process. For all threads, a block is represented by its address.
pub(super) struct Malloc<F>(PhantomData<F>);

impl<F> Malloc<F> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<F: AllocFunctions> World for Malloc<F> {
    type WorkerHeap = Self;

    fn join(&self) -> Result<Self> {
        Ok(Self::new())
    }
}

/// A block of a heap of bare addresses, which is freed or passed on once.
pub(super) struct Bare(NonNull<u64>);

impl Bare {
    /// Wraps a heap's result for a request of `size` bytes.
    ///
    /// # Errors
    /// Returns `Failed` if it is null.
    #[inline(always)]
    pub(super) fn new(at: *mut c_void, size: usize) -> Result<Self> {
        NonNull::new(at.cast()).map(Self).ok_or_else(|| none_left(size))
    }

    #[inline(always)]
    pub(super) fn at(&self) -> NonNull<u64> {
        self.0
    }
}

#[cold]
pub(super) fn none_left(size: usize) -> MeasureError {
    MeasureError::fail(format!("expected a block of {size} bytes, found no memory for it"))
}

// SAFETY: `malloc` aligns for any fundamental type. A `Bare` wraps one of its results and is
// consumed by `free` or `give`.
unsafe impl<F: AllocFunctions> MeasuredHeap for Malloc<F> {
    type Block<'h> = Bare;

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

/// Defines an allocator by the names of its two functions.
macro_rules! functions {
    ($name:ident, $malloc:path, $free:path, $about:literal) => {
        #[doc = $about]
        pub(super) struct $name;

        impl AllocFunctions for $name {
            #[inline(always)]
            fn malloc(size: usize) -> *mut c_void {
                // SAFETY: the function accepts any size.
                unsafe { $malloc(size) }
            }

            #[inline(always)]
            unsafe fn free(block: *mut c_void) {
                // SAFETY: the caller promises that `malloc` returned the block and that it is not
                // yet freed.
                unsafe { $free(block) };
            }
        }
    };
}

functions!(System, libc::malloc, libc::free, "The C library's.");
#[cfg(feature = "allocators")]
functions!(Mimalloc, libmimalloc_sys::mi_malloc, libmimalloc_sys::mi_free, "mimalloc.");
#[cfg(feature = "allocators")]
functions!(Jemalloc, tikv_jemalloc_sys::malloc, tikv_jemalloc_sys::free, "jemalloc.");

//! The heaps behind one face: [`Heap`], as one worker has it, and [`World`], as all have it; and
//! those of one process, [`Malloc`].

#![allow(unsafe_code, reason = "calls the allocators' C functions")]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use tontine_bench::heap_map::{HeapMap, HeapMember};
use tontine_host::trouble::{Result, Trouble};

use super::board::Address;
use super::ring::Entry;

/// A heap that several workers share.
pub(super) trait World: Sync {
    /// What a worker has of it.
    type Heap: Heap;

    /// Makes it ready for a worker, in its own process or thread.
    ///
    /// # Errors
    /// Failed, where it cannot be had.
    fn join(&self) -> Result<Self::Heap>;

    /// Looks at what is left when all have come to their end: nothing.
    ///
    /// # Errors
    /// Failed, where there is something.
    fn close(&self) -> Result<()> {
        Ok(())
    }

    /// How it looks while its workers stand still, who are named by their pids; `None` where that
    /// cannot be seen from outside.
    ///
    /// # Errors
    /// Failed, where it cannot be looked at.
    fn map(&self, _moment: &str, _named: &[(u32, HeapMember)]) -> Result<Option<HeapMap>> {
        Ok(None)
    }

    /// Looks after the dead, and says what came of it.
    ///
    /// # Errors
    /// Failed, where the heap says that something is wrong.
    fn recover_and_trim(&self) -> Result<String> {
        Ok(String::new())
    }
}

/// One worker's way to the heap.
///
/// # Safety
/// What [`Heap::at`] returns may be read and written, for as many bytes as were asked for, until
/// the block is freed or given away.
pub(super) unsafe trait Heap {
    /// A block that this worker has.
    type Block<'h>
    where
        Self: 'h;

    /// How others hand it a block.
    fn address(&self) -> Address {
        0
    }

    /// A block of so many bytes, at least eight, aligned to a word.
    ///
    /// # Errors
    /// Failed, where there is none.
    fn allocate(&self, size: usize) -> Result<Self::Block<'_>>;

    /// Where it begins.
    fn at(&self, block: &mut Self::Block<'_>) -> NonNull<u64>;

    /// Ends it.
    ///
    /// # Errors
    /// Failed, where the heap refuses.
    fn free(&self, block: Self::Block<'_>) -> Result<()>;

    /// Makes an entry of it for the worker at that address; `None` where that one is dead, and the
    /// block is freed.
    ///
    /// # Errors
    /// Failed, where the heap refuses.
    fn give(&self, block: Self::Block<'_>, to: Address) -> Result<Option<Entry>>;

    /// The block of an entry; `None` where it was for somebody who died.
    ///
    /// # Errors
    /// Failed, where the heap knows no such block.
    fn take(&self, entry: Entry) -> Result<Option<Self::Block<'_>>>;

    /// Looks after whoever died.
    ///
    /// # Errors
    /// Failed, where the heap says that something is wrong.
    fn recover_and_trim(&self) -> Result<()> {
        Ok(())
    }
}

/// The two functions of an allocator that one process has for itself.
pub(super) trait Functions: Sync + 'static {
    /// Its `malloc`; null where it has no memory left.
    fn malloc(size: usize) -> *mut c_void;

    /// Its `free`.
    ///
    /// # Safety
    /// The block is of this allocator's `malloc` and nobody has freed it.
    unsafe fn free(block: *mut c_void);
}

/// An allocator of one process. A block is its address, for all threads.
pub(super) struct Malloc<F>(PhantomData<F>);

impl<F> Malloc<F> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<F: Functions> World for Malloc<F> {
    type Heap = Self;

    fn join(&self) -> Result<Self> {
        Ok(Self::new())
    }
}

/// A block that has come from a heap of bare addresses and is freed or given away once.
pub(super) struct Bare(NonNull<u64>);

impl Bare {
    /// A heap's answer to a question for so many bytes.
    ///
    /// # Errors
    /// Failed, where it is null.
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
pub(super) fn none_left(size: usize) -> Trouble {
    Trouble::fail(format!("expected a block of {size} bytes, found no memory for it"))
}

// SAFETY: `malloc` aligns for any fundamental type; a `Bare` is made of what it returned, and goes
// with `free` or `give`.
unsafe impl<F: Functions> Heap for Malloc<F> {
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
        // SAFETY: it is of this allocator; a `Bare` is one block's only handle.
        unsafe { F::free(block.at().as_ptr().cast()) };
        Ok(())
    }

    #[inline(always)]
    fn give(&self, block: Bare, _: Address) -> Result<Option<Entry>> {
        Ok(Some([block.at().as_ptr().expose_provenance() as u64, 0, 0]))
    }

    #[inline(always)]
    fn take(&self, entry: Entry) -> Result<Option<Bare>> {
        let at = std::ptr::with_exposed_provenance_mut::<c_void>(entry[0] as usize);
        Bare::new(at, 0).map(Some)
    }
}

/// An allocator by the names of its two functions.
macro_rules! functions {
    ($name:ident, $malloc:path, $free:path, $about:literal) => {
        #[doc = $about]
        pub(super) struct $name;

        impl Functions for $name {
            #[inline(always)]
            fn malloc(size: usize) -> *mut c_void {
                // SAFETY: any size may be asked for.
                unsafe { $malloc(size) }
            }

            #[inline(always)]
            unsafe fn free(block: *mut c_void) {
                // SAFETY: by the caller's promise.
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

//! The allocators' functions behind one trait: [`Allocator`].

#![allow(unsafe_code, reason = "calls the allocators' C functions")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use tontine::heap::classic::{ClassicHeapOptions, Fit, LockedHeap};
use tontine::heap::shared;
use tontine_host::error::{MeasureError, Result};
use tontine_mechanisms::heap::refused;

/// The first word of a block, in which a thread marks the block's owner.
pub(super) type BlockAddr = NonNull<u64>;

/// An allocator.
pub(super) trait Allocator: 'static {
    /// Prepares the allocator. Called before the first thread is started.
    ///
    /// # Errors
    /// Returns `Skipped` if this build or this system lacks the allocator.
    fn prepare() -> Result<()> {
        Ok(())
    }

    /// The allocator's `malloc`. Returns null if no memory is left.
    fn malloc(size: usize) -> *mut c_void;

    /// The allocator's `free`.
    ///
    /// # Safety
    /// The block comes from this allocator's `malloc` and has not been freed.
    unsafe fn free(block: *mut c_void);
}

/// Allocates a block of `size` bytes, at least a word, and writes `tag` into its first word.
///
/// # Errors
/// Returns `Failed` if no block is available.
#[inline(always)]
pub(super) fn allocate<H: Allocator>(size: usize, tag: u64) -> Result<BlockAddr> {
    debug_assert!(size >= size_of::<u64>());
    let Some(block) = NonNull::new(H::malloc(size).cast::<u64>()) else {
        return Err(none_left(size));
    };
    // SAFETY: a fresh block of at least a word; `malloc` aligns it for any fundamental type.
    unsafe { block.write(tag) };
    Ok(block)
}

/// Frees a block and returns the tag that it carried.
///
/// # Safety
/// The block comes from `allocate::<H>` and is freed only once.
#[inline(always)]
pub(super) unsafe fn release<H: Allocator>(block: BlockAddr) -> u64 {
    // SAFETY: the block is live, and `allocate` wrote its first word; the caller promises to free
    // it once.
    unsafe {
        let tag = block.read();
        H::free(block.as_ptr().cast());
        tag
    }
}

#[cold]
fn none_left(size: usize) -> MeasureError {
    MeasureError::fail(format!("malloc({size}) returned no block"))
}

/// The C library's allocator with its defaults.
pub(super) struct Glibc;

/// The C library's allocator with a single arena.
pub(super) struct OneArena;

impl Allocator for Glibc {
    fn prepare() -> Result<()> {
        if cfg!(target_env = "gnu") {
            Ok(())
        } else {
            Err(MeasureError::skip("this program's C library is not glibc"))
        }
    }

    #[inline(always)]
    fn malloc(size: usize) -> *mut c_void {
        // SAFETY: `malloc` accepts any size.
        unsafe { libc::malloc(size) }
    }

    #[inline(always)]
    unsafe fn free(block: *mut c_void) {
        // SAFETY: the caller promises that `malloc` returned the block and that it is not yet
        // freed.
        unsafe { libc::free(block) };
    }
}

impl Allocator for OneArena {
    fn prepare() -> Result<()> {
        Glibc::prepare()?;
        #[cfg(target_env = "gnu")]
        // SAFETY: the call sets a parameter; the C library serialises it with its other functions.
        if unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) } != 1 {
            return Err(MeasureError::fail("mallopt(M_ARENA_MAX, 1) failed"));
        }
        Ok(())
    }

    #[inline(always)]
    fn malloc(size: usize) -> *mut c_void {
        Glibc::malloc(size)
    }

    #[inline(always)]
    unsafe fn free(block: *mut c_void) {
        // SAFETY: the caller promises that `malloc` returned the block and that it is not yet
        // freed.
        unsafe { Glibc::free(block) };
    }
}

/// The source's allocator with one of its fits, behind its one lock.
pub(super) struct Classic<const FIT: usize>;

pub(super) type FirstFit = Classic<0>;
pub(super) type NextFit = Classic<1>;
pub(super) type BestFit = Classic<2>;

/// The process's only heap, with its fit: an invocation measures one variant.
static CLASSIC: OnceLock<(usize, LockedHeap)> = OnceLock::new();

impl<const FIT: usize> Classic<FIT> {
    #[inline(always)]
    fn heap() -> Option<&'static LockedHeap> {
        CLASSIC.get().map(|(_, heap)| heap)
    }
}

impl<const FIT: usize> Allocator for Classic<FIT> {
    fn prepare() -> Result<()> {
        if CLASSIC.get().is_none() {
            let fit = [Fit::First, Fit::Next, Fit::Best][FIT];
            let heap = ClassicHeapOptions::new()
                .fit(fit)
                .create()
                .map_err(|error| MeasureError::fail(format!("the source's heap: {error}")))?;
            // If another thread stored its heap first, that one is used.
            let _ = CLASSIC.set((FIT, LockedHeap::new(heap)));
        }
        match CLASSIC.get() {
            Some((fit, _)) if *fit == FIT => Ok(()),
            _ => Err(MeasureError::fail(
                "this process already has the source's heap with another fit",
            )),
        }
    }

    #[inline(always)]
    fn malloc(size: usize) -> *mut c_void {
        let block = Self::heap().and_then(|heap| heap.malloc(size).ok());
        block.map_or(ptr::null_mut(), |block| block.as_ptr().cast())
    }

    #[inline(always)]
    unsafe fn free(block: *mut c_void) {
        let (Some(heap), Some(block)) = (Self::heap(), NonNull::new(block.cast())) else { return };
        // SAFETY: the caller promises that `malloc` returned the block and that it is not yet
        // freed.
        let freed = unsafe { heap.free(block) };
        freed.unwrap_or_else(|error| panic!("the source's heap: {error}"));
    }
}

/// The library's heap in shared memory, of which this process is the only member.
pub(super) struct SharedHeapAllocator;

/// The process's only shared heap.
static SHARED: OnceLock<shared::Heap> = OnceLock::new();

/// Size of the heap's address range, many times what the threads hold; memory is committed on
/// demand.
const SHARED_BYTES: usize = 1 << 30;

/// Contents of a block of [`SharedHeapAllocator`]: the word that the threads write, followed by the
/// value that frees the block. The value is needed because the address alone cannot free a block.
#[repr(C)]
struct Carrying {
    tag: u64,
    block: shared::Block<'static>,
}

// The smallest block has space for both words, so this costs no memory.
const _: () = assert!(size_of::<Carrying>() <= 64 && align_of::<Carrying>() <= 64);

impl Allocator for SharedHeapAllocator {
    fn prepare() -> Result<()> {
        if SHARED.get().is_none() {
            let heap = shared::Heap::create(SHARED_BYTES).map_err(refused)?;
            // If another thread stored its heap first, that one is used.
            let _ = SHARED.set(heap);
        }
        Ok(())
    }

    #[inline(always)]
    fn malloc(size: usize) -> *mut c_void {
        let size = size.max(size_of::<Carrying>());
        let Some(Ok(mut block)) = SHARED.get().map(|heap| heap.alloc(size)) else {
            return ptr::null_mut();
        };
        let at = block.as_mut_ptr().cast::<Carrying>();
        // SAFETY: the field lies within the block, which is large enough, aligned to 64, and owned
        // by this process.
        unsafe { (&raw mut (*at).block).write(block) };
        at.cast()
    }

    #[inline(always)]
    unsafe fn free(block: *mut c_void) {
        // SAFETY: `malloc` wrote the value there, and the caller promises that it is read only this
        // once.
        drop(unsafe { (&raw const (*block.cast::<Carrying>()).block).read() });
    }
}

/// Defines a peer allocator by the names of its two functions.
#[cfg(feature = "peers")]
macro_rules! peer {
    ($name:ident, $malloc:path, $free:path, $about:literal) => {
        #[doc = $about]
        pub(super) struct $name;

        impl Allocator for $name {
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

#[cfg(feature = "allocators")]
peer!(Mimalloc, libmimalloc_sys::mi_malloc, libmimalloc_sys::mi_free, "mimalloc.");
#[cfg(feature = "allocators")]
peer!(Jemalloc, tikv_jemalloc_sys::malloc, tikv_jemalloc_sys::free, "jemalloc, with its prefix.");
#[cfg(feature = "peers")]
peer!(Snmalloc, snmalloc_sys::sn_malloc, snmalloc_sys::sn_free, "snmalloc.");

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "allocators")]
    unsafe extern "C" {
        // The crate declares this function only under a feature that adds another crate.
        fn mi_usable_size(block: *const c_void) -> usize;
    }

    /// Ensures that a row named after one allocator does not measure another one.
    #[cfg(feature = "allocators")]
    #[test]
    fn each_block_belongs_to_its_own_allocator() {
        let [mi, je, sn] = [
            allocate::<Mimalloc>(100, 1).expect("mimalloc"),
            allocate::<Jemalloc>(100, 2).expect("jemalloc"),
            allocate::<Snmalloc>(100, 3).expect("snmalloc"),
        ];
        // SAFETY: each block is passed to the allocator from which it came.
        let usable = unsafe {
            [
                mi_usable_size(mi.as_ptr().cast()),
                tikv_jemalloc_sys::malloc_usable_size(je.as_ptr().cast()),
                snmalloc_sys::sn_malloc_usable_size(sn.as_ptr().cast()),
            ]
        };
        assert!(usable.iter().all(|&size| (100..200).contains(&size)), "{usable:?}");
        // SAFETY: each block is freed once, by its own allocator.
        let tags =
            unsafe { [release::<Mimalloc>(mi), release::<Jemalloc>(je), release::<Snmalloc>(sn)] };
        assert_eq!(tags, [1, 2, 3]);
    }

    #[test]
    fn allocation_failure_names_the_requested_size() {
        struct Empty;
        impl Allocator for Empty {
            fn malloc(_: usize) -> *mut c_void {
                std::ptr::null_mut()
            }
            unsafe fn free(_: *mut c_void) {}
        }
        let found = allocate::<Empty>(48, 0).expect_err("nothing");
        assert!(found.why().contains("malloc(48)"), "{found}");
    }
}

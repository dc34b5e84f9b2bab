//! The allocators' functions behind one trait: [`Allocator`].

#![allow(unsafe_code, reason = "calls the allocators' C functions")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, OnceLock};

use tontine::heap::shared;
use tontine_mechanisms::classic::{ClassicHeap, DEFAULT_SIZE, Fit};
use tontine_mechanisms::heap::refused;

use crate::prelude::*;

/// The first word of a block, in which a thread marks the block's owner.
pub(crate) type BlockAddr = NonNull<u64>;

pub(crate) trait Allocator: Sync + 'static {
    /// Prepares the allocator. Called before the first thread is started.
    fn prepare() -> Result<()> {
        Ok(())
    }

    fn malloc(size: usize) -> *mut c_void;

    /// The allocator's `free`.
    ///
    /// # Safety
    /// The block comes from this allocator's `malloc` and has not been freed.
    unsafe fn free(block: *mut c_void);
}

/// Allocates a block of `size` bytes, at least a word, and writes `tag` into its first word.
#[inline(always)]
pub(crate) fn allocate<H: Allocator>(size: usize, tag: u64) -> Result<BlockAddr> {
    debug_assert!(size >= size_of::<u64>());
    let block = NonNull::new(H::malloc(size).cast::<u64>()).ok_or_else(|| none_left(size))?;
    // SAFETY: a fresh block of at least a word; `malloc` aligns it for any fundamental type.
    unsafe { block.write(tag) };
    Ok(block)
}

/// Frees a block and returns the tag that it carried.
///
/// # Safety
/// The block comes from `allocate::<H>` and is freed only once.
#[inline(always)]
pub(crate) unsafe fn release<H: Allocator>(block: BlockAddr) -> u64 {
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

pub(crate) struct Glibc<const ONE_ARENA: bool>;

impl<const ONE_ARENA: bool> Allocator for Glibc<ONE_ARENA> {
    fn prepare() -> Result<()> {
        if !cfg!(target_env = "gnu") {
            skip!("this program's C library is not glibc");
        }
        #[cfg(target_env = "gnu")]
        // SAFETY: the call sets a parameter; the C library serialises it with its other functions.
        if ONE_ARENA && unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) } != 1 {
            bail!("mallopt(M_ARENA_MAX, 1) failed");
        }
        Ok(())
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

/// The source's allocator with one of its fits, behind its one lock.
pub(crate) struct Classic<const FIT: usize>;

/// The process's only heap, with its fit: an invocation measures one variant.
static CLASSIC: OnceLock<(usize, Mutex<ClassicHeap>)> = OnceLock::new();

fn locked(heap: &Mutex<ClassicHeap>) -> MutexGuard<'_, ClassicHeap> {
    heap.lock().expect("no thread panics while it has the lock")
}

impl<const FIT: usize> Allocator for Classic<FIT> {
    fn prepare() -> Result<()> {
        if CLASSIC.get().is_none() {
            let fit = [Fit::First, Fit::Next, Fit::Best][FIT];
            let heap = ClassicHeap::new(fit, DEFAULT_SIZE)
                .map_err(|error| MeasureError::fail(format!("the source's heap: {error}")))?;
            // If another thread stored its heap first, that one is used.
            let _ = CLASSIC.set((FIT, Mutex::new(heap)));
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
        let heap = CLASSIC.get().map(|(_, heap)| locked(heap));
        let block = heap.and_then(|mut heap| heap.malloc(size).ok());
        block.map_or(ptr::null_mut(), |block| block.as_ptr().cast())
    }

    #[inline(always)]
    unsafe fn free(block: *mut c_void) {
        let heap = CLASSIC.get().zip(NonNull::new(block.cast()));
        let Some(((_, heap), block)) = heap else { return };
        // SAFETY: the caller promises that `malloc` returned the block and that it is not yet
        // freed.
        let freed = unsafe { locked(heap).free(block) };
        freed.unwrap_or_else(|error| panic!("the source's heap: {error}"));
    }
}

pub(crate) struct SharedHeapAllocator;

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

#[cfg(feature = "peers")]
macro_rules! peer {
    ($name:ident, $malloc:path, $free:path, $about:literal) => {
        #[doc = $about]
        pub(crate) struct $name;

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

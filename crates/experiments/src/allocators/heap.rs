//! The allocators' functions behind one face: [`Heap`].

#![allow(unsafe_code, reason = "calls the allocators' C functions")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use tontine::heap::classic::{ClassicHeapOptions, Fit, LockedHeap};
use tontine::heap::shared;
use tontine_host::trouble::{Result, Trouble};
use tontine_mechanisms::heap::refused;

/// A block's first word, where a thread writes whose block it is.
pub(super) type Block = NonNull<u64>;

/// An allocator.
pub(super) trait Heap: 'static {
    /// Makes it ready, before the first thread is started.
    ///
    /// # Errors
    /// Skipped, where this build or this system has it not.
    fn prepare() -> Result<()> {
        Ok(())
    }

    /// Its `malloc`; null where it has no memory left.
    fn malloc(size: usize) -> *mut c_void;

    /// Its `free`.
    ///
    /// # Safety
    /// The block is of this allocator's `malloc` and nobody has freed it.
    unsafe fn free(block: *mut c_void);
}

/// A block of `size` bytes, at least a word, with `tag` in its first one.
///
/// # Errors
/// Failed, where there is none.
#[inline(always)]
pub(super) fn allocate<H: Heap>(size: usize, tag: u64) -> Result<Block> {
    debug_assert!(size >= size_of::<u64>());
    let Some(block) = NonNull::new(H::malloc(size).cast::<u64>()) else {
        return Err(none_left(size));
    };
    // SAFETY: a fresh block of at least a word; `malloc` aligns for any fundamental type.
    unsafe { block.write(tag) };
    Ok(block)
}

/// Frees a block and returns the tag that it carried.
///
/// # Safety
/// The block is of `allocate::<H>`, and this is its only end.
#[inline(always)]
pub(super) unsafe fn release<H: Heap>(block: Block) -> u64 {
    // SAFETY: alive, and its first word was written by `allocate`; freed once, by the caller's
    // promise.
    unsafe {
        let tag = block.read();
        H::free(block.as_ptr().cast());
        tag
    }
}

#[cold]
fn none_left(size: usize) -> Trouble {
    Trouble::fail(format!("malloc({size}) returned no block"))
}

/// The C library's allocator as it is.
pub(super) struct Glibc;

/// The same with a single arena.
pub(super) struct OneArena;

impl Heap for Glibc {
    fn prepare() -> Result<()> {
        if cfg!(target_env = "gnu") {
            Ok(())
        } else {
            Err(Trouble::skip("this program's C library is not glibc"))
        }
    }

    #[inline(always)]
    fn malloc(size: usize) -> *mut c_void {
        // SAFETY: any size may be asked for.
        unsafe { libc::malloc(size) }
    }

    #[inline(always)]
    unsafe fn free(block: *mut c_void) {
        // SAFETY: by the caller's promise.
        unsafe { libc::free(block) };
    }
}

impl Heap for OneArena {
    fn prepare() -> Result<()> {
        Glibc::prepare()?;
        #[cfg(target_env = "gnu")]
        // SAFETY: sets a parameter; the C library serialises it with its own calls.
        if unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) } != 1 {
            return Err(Trouble::fail("mallopt(M_ARENA_MAX, 1): refused"));
        }
        Ok(())
    }

    #[inline(always)]
    fn malloc(size: usize) -> *mut c_void {
        Glibc::malloc(size)
    }

    #[inline(always)]
    unsafe fn free(block: *mut c_void) {
        // SAFETY: by the caller's promise.
        unsafe { Glibc::free(block) };
    }
}

/// The source's allocator with one of its fits, behind its one lock.
pub(super) struct Classic<const FIT: usize>;

pub(super) type FirstFit = Classic<0>;
pub(super) type NextFit = Classic<1>;
pub(super) type BestFit = Classic<2>;

/// A process has one, with one fit: an invocation measures one variant.
static CLASSIC: OnceLock<(usize, LockedHeap)> = OnceLock::new();

impl<const FIT: usize> Classic<FIT> {
    #[inline(always)]
    fn heap() -> Option<&'static LockedHeap> {
        CLASSIC.get().map(|(_, heap)| heap)
    }
}

impl<const FIT: usize> Heap for Classic<FIT> {
    fn prepare() -> Result<()> {
        if CLASSIC.get().is_none() {
            let fit = [Fit::First, Fit::Next, Fit::Best][FIT];
            let heap = ClassicHeapOptions::new()
                .fit(fit)
                .create()
                .map_err(|error| Trouble::fail(format!("the source's heap: {error}")))?;
            // Somebody else may have been first.
            let _ = CLASSIC.set((FIT, LockedHeap::new(heap)));
        }
        match CLASSIC.get() {
            Some((fit, _)) if *fit == FIT => Ok(()),
            _ => Err(Trouble::fail("this process has the source's heap with another fit")),
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
        // SAFETY: by the caller's promise.
        let freed = unsafe { heap.free(block) };
        freed.unwrap_or_else(|error| panic!("the source's heap: {error}"));
    }
}

/// The library's heap in shared memory, of which this process is the only member.
pub(super) struct Shared;

/// A process has one.
static SHARED: OnceLock<shared::Heap> = OnceLock::new();

/// Its addresses, many times what threads hold; memory comes when it is needed.
const SHARED_BYTES: usize = 1 << 30;

/// What lies in a block of [`Shared`]: behind the word that the threads write, what frees it. For
/// such a block is a value and no bare address.
#[repr(C)]
struct Carrying {
    tag: u64,
    block: shared::Block<'static>,
}

// The smallest block has room for it: it costs no memory.
const _: () = assert!(size_of::<Carrying>() <= 64 && align_of::<Carrying>() <= 64);

impl Heap for Shared {
    fn prepare() -> Result<()> {
        if SHARED.get().is_none() {
            let heap = shared::Heap::create(SHARED_BYTES).map_err(refused)?;
            // Somebody else may have been first.
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
        // SAFETY: within the block, which is large enough, aligned to 64, and this process's.
        unsafe { (&raw mut (*at).block).write(block) };
        at.cast()
    }

    #[inline(always)]
    unsafe fn free(block: *mut c_void) {
        // SAFETY: `malloc` wrote it there, and by the caller's promise it is read this once.
        drop(unsafe { (&raw const (*block.cast::<Carrying>()).block).read() });
    }
}

/// A peer by the names of its two functions.
#[cfg(feature = "peers")]
macro_rules! peer {
    ($name:ident, $malloc:path, $free:path, $about:literal) => {
        #[doc = $about]
        pub(super) struct $name;

        impl Heap for $name {
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
        // The crate declares it with a feature that pulls in another crate.
        fn mi_usable_size(block: *const c_void) -> usize;
    }

    /// A row named after one allocator must not measure another one.
    #[cfg(feature = "allocators")]
    #[test]
    fn each_block_is_known_to_its_own_allocator() {
        let [mi, je, sn] = [
            allocate::<Mimalloc>(100, 1).expect("mimalloc"),
            allocate::<Jemalloc>(100, 2).expect("jemalloc"),
            allocate::<Snmalloc>(100, 3).expect("snmalloc"),
        ];
        // SAFETY: each block is asked of the allocator that it came from.
        let usable = unsafe {
            [
                mi_usable_size(mi.as_ptr().cast()),
                tikv_jemalloc_sys::malloc_usable_size(je.as_ptr().cast()),
                snmalloc_sys::sn_malloc_usable_size(sn.as_ptr().cast()),
            ]
        };
        assert!(usable.iter().all(|&size| (100..200).contains(&size)), "{usable:?}");
        // SAFETY: each is freed once, by its own allocator.
        let tags =
            unsafe { [release::<Mimalloc>(mi), release::<Jemalloc>(je), release::<Snmalloc>(sn)] };
        assert_eq!(tags, [1, 2, 3]);
    }

    #[test]
    fn an_allocator_without_memory_is_named_with_what_was_asked() {
        struct Empty;
        impl Heap for Empty {
            fn malloc(_: usize) -> *mut c_void {
                std::ptr::null_mut()
            }
            unsafe fn free(_: *mut c_void) {}
        }
        let found = allocate::<Empty>(48, 0).expect_err("nothing");
        assert!(found.why().contains("malloc(48)"), "{found}");
    }
}

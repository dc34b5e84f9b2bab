//! One lock for all threads: [`LockedHeap`].

#![allow(unsafe_code, reason = "passes a caller's promise on")]

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use super::{ClassicHeap, Map};
use crate::heap::Result;

/// A [`ClassicHeap`] that threads share: each call takes one lock. It does not scale with threads;
/// `tontine measure allocators` shows what that costs.
///
/// ```
/// use tontine::heap::classic::{ClassicHeap, LockedHeap};
///
/// let heap = LockedHeap::new(ClassicHeap::new()?);
/// std::thread::scope(|threads| {
///     threads.spawn(|| {
///         let block = heap.malloc(64).expect("the heap has space");
///         // SAFETY: `malloc` of this heap returned the block, and nothing uses it any more.
///         unsafe { heap.free(block) }.expect("the block is allocated");
///     });
/// });
/// # Ok::<(), tontine::heap::HeapError>(())
/// ```
#[derive(Debug)]
pub struct LockedHeap(Mutex<ClassicHeap>);

impl LockedHeap {
    /// Puts a lock around a heap.
    pub const fn new(heap: ClassicHeap) -> Self {
        Self(Mutex::new(heap))
    }

    /// Allocates a block, like [`ClassicHeap::malloc`].
    ///
    /// # Errors
    /// Those of [`ClassicHeap::malloc`].
    pub fn malloc(&self, size: usize) -> Result<NonNull<u8>> {
        self.lock().malloc(size)
    }

    /// Frees a block, like [`ClassicHeap::free`].
    ///
    /// # Errors
    /// Those of [`ClassicHeap::free`].
    ///
    /// # Safety
    /// The caller must ensure what [`ClassicHeap::free`] asks for, for all threads.
    pub unsafe fn free(&self, block: NonNull<u8>) -> Result<()> {
        // SAFETY: by the caller's promise.
        unsafe { self.lock().free(block) }
    }

    /// Checks all blocks, like [`ClassicHeap::check`].
    ///
    /// # Errors
    /// Those of [`ClassicHeap::check`].
    pub fn check(&self) -> Result<Map> {
        self.lock().check()
    }

    fn lock(&self) -> MutexGuard<'_, ClassicHeap> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }
}

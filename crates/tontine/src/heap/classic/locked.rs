//! A classic heap with one lock for all threads: [`LockedHeap`].

#![allow(unsafe_code, reason = "`free` has the contract of `ClassicHeap::free`")]

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use super::{ClassicHeap, Map};
use crate::heap::Result;

/// A [`ClassicHeap`] that threads share. Each call takes one lock, so the heap does not scale with
/// threads. `tontine measure allocators` measures the cost.
///
/// # Examples
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
    /// Returns the heap behind a lock.
    pub const fn new(heap: ClassicHeap) -> Self {
        Self(Mutex::new(heap))
    }

    /// Allocates a block, like [`ClassicHeap::malloc`].
    ///
    /// # Errors
    /// Returns the errors of [`ClassicHeap::malloc`], such as [`HeapError::Full`] if no space is
    /// left.
    ///
    /// [`HeapError::Full`]: crate::heap::HeapError::Full
    pub fn malloc(&self, size: usize) -> Result<NonNull<u8>> {
        self.lock().malloc(size)
    }

    /// Frees a block, like [`ClassicHeap::free`].
    ///
    /// # Errors
    /// Returns the errors of [`ClassicHeap::free`], such as [`HeapError::DoubleFree`].
    ///
    /// # Safety
    /// The caller must ensure:
    ///
    /// 1. `malloc` of this heap returned `block`, in this thread or another.
    /// 2. No thread has freed the block since.
    /// 3. No thread uses a pointer or reference to the block's bytes after the call.
    ///
    /// [`HeapError::DoubleFree`]: crate::heap::HeapError::DoubleFree
    pub unsafe fn free(&self, block: NonNull<u8>) -> Result<()> {
        // SAFETY: the caller upholds the contract (1 to 3).
        unsafe { self.lock().free(block) }
    }

    /// Checks all blocks, like [`ClassicHeap::check`].
    ///
    /// # Errors
    /// [`HeapError::Corrupted`] with the first corrupted block.
    ///
    /// [`HeapError::Corrupted`]: crate::heap::HeapError::Corrupted
    pub fn check(&self) -> Result<Map> {
        self.lock().check()
    }

    fn lock(&self) -> MutexGuard<'_, ClassicHeap> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }
}

//! The settings with which a heap is created: [`HeapOptions`].

use super::Heap;
use super::layout::{MOST_SLABS, SLAB};
use super::space::HeapSpace;
use crate::heap::{HeapError, Result};

/// Settings of a new [`Heap`].
///
/// # Examples
/// ```
/// use tontine::heap::shared::HeapOptions;
///
/// let heap = HeapOptions::new(1 << 20).canaries(true).create()?;
/// drop(heap.alloc(100)?);
/// # Ok::<(), tontine::heap::HeapError>(())
/// ```
#[must_use = "options do nothing until `create` is called"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapOptions {
    capacity: usize,
    canaries: bool,
}

impl HeapOptions {
    /// Returns the settings of a heap with `capacity` bytes of blocks, rounded up to whole slabs of
    /// 64 KiB, without canaries.
    ///
    /// Memory is allocated when blocks need it, so a large capacity costs only address space.
    pub const fn new(capacity: usize) -> Self {
        Self { capacity, canaries: false }
    }

    /// Sets whether the heap writes a *canary*, a known value, after each block, and checks it when
    /// the block is freed, handed over or published. A canary that has changed means that the block
    /// was written beyond its end: [`HeapError::Overrun`].
    ///
    /// Canaries are for debugging: each block needs 16 more bytes. Default: `false`.
    ///
    /// # Examples
    /// ```
    /// use tontine::heap::HeapError;
    /// use tontine::heap::shared::{Block, HeapOptions};
    ///
    /// let heap = HeapOptions::new(1 << 20).canaries(true).create()?;
    /// let pointer = heap.alloc(100)?.into_raw();
    /// // SAFETY: the byte belongs to the heap; writing it is the mistake that a canary detects.
    /// unsafe { pointer.cast::<u8>().add(100).write(1) };
    /// // SAFETY: `into_raw` returned the pointer for a block of this heap; it is used once.
    /// let block = unsafe { Block::from_raw_in(pointer, &heap) };
    /// assert!(matches!(block.free(), Err(HeapError::Overrun { requested: 100, .. })));
    /// # Ok::<(), HeapError>(())
    /// ```
    pub const fn canaries(mut self, canaries: bool) -> Self {
        self.canaries = canaries;
        self
    }

    /// Creates a heap in a memfd, and makes this process its first member.
    ///
    /// # Errors
    /// - [`HeapError::InvalidSize`] if the capacity is 0, or above 4 TiB.
    /// - [`HeapError::FileTooLarge`] if the heap would exceed the process's limit on file sizes.
    /// - [`HeapError::System`] if the kernel has no memory or address space for the heap.
    pub fn create(self) -> Result<Heap> {
        let slabs = self.capacity.div_ceil(SLAB);
        if !(1..=MOST_SLABS).contains(&slabs) {
            let reason = "a shared heap has from 1 byte to 4 TiB of blocks";
            return Err(HeapError::InvalidSize { size: self.capacity, reason });
        }
        Heap::join(HeapSpace::create(slabs, self.canaries)?)
    }
}

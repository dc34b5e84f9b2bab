//! Private memory for a part of a received message: [`PartBuffer`].
//!
//! The kernel zeroes memory that a process takes anew, and maps it page by page, which takes longer
//! than the copy into it. The last blocks that were freed are therefore kept for the next messages.

#![allow(unsafe_code, reason = "the buffer interface, and memory for it")]

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_int;
use std::ptr::NonNull;

use parking_lot::Mutex;
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Alignment of each part in bytes: a line of the cache.
pub(crate) const ALIGNMENT: usize = 64;

/// Unit of the size of a block that may be kept, and its minimum.
const UNIT: usize = 64 << 10;

/// Maximum number of bytes that are kept.
const MAX_KEPT: usize = 8 << 20;

/// Memory of `capacity` bytes.
struct Block {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the memory belongs to whoever has the block.
unsafe impl Send for Block {}

/// Freed blocks, oldest first. A thread that finds it locked does without: a forked child could
/// find it locked by a thread of its parent, indefinitely.
static KEPT: Mutex<Vec<Block>> = Mutex::new(Vec::new());

impl Block {
    /// Returns memory for `length` bytes, which has any content; `None` if there is none.
    fn new(length: usize) -> Option<Self> {
        if let Some(mut kept) = KEPT.try_lock()
            && let Some(at) = kept.iter().rposition(|block| block.suits(length))
        {
            return Some(kept.remove(at));
        }
        let unit = if length < UNIT { ALIGNMENT } else { UNIT };
        let capacity = length.max(1).checked_next_multiple_of(unit)?;
        let layout = Layout::from_size_align(capacity, ALIGNMENT).ok()?;
        // SAFETY: the size is not zero.
        NonNull::new(unsafe { alloc(layout) }).map(|start| Self { start, capacity })
    }

    /// Returns `true` if the block is large enough, and not much larger.
    fn suits(&self, length: usize) -> bool {
        (length..=length.saturating_mul(2)).contains(&self.capacity)
    }

    /// Frees the memory, or keeps it for another message.
    fn free(self) {
        if (UNIT..=MAX_KEPT).contains(&self.capacity)
            && let Some(mut kept) = KEPT.try_lock()
        {
            let mut bytes = self.capacity + kept.iter().map(|block| block.capacity).sum::<usize>();
            kept.push(self);
            while bytes > MAX_KEPT {
                let oldest = kept.remove(0);
                bytes -= oldest.capacity;
                oldest.dealloc();
            }
        } else {
            self.dealloc();
        }
    }

    fn dealloc(self) {
        let layout = Layout::from_size_align(self.capacity, ALIGNMENT).expect("it was allocated");
        // SAFETY: `new` allocated the memory with this layout.
        unsafe { dealloc(self.start.as_ptr(), layout) }
    }
}

/// Private, writable memory that holds a copy of a part of a message.
#[pyclass(module = "tontine", frozen)]
pub(crate) struct PartBuffer {
    /// `Some` until the object is dropped.
    block: Option<Block>,
    length: usize,
}

// SAFETY: the class only hands out the address. As with any writable buffer, the program's threads
// coordinate their use of the bytes.
unsafe impl Sync for PartBuffer {}

impl PartBuffer {
    /// Returns memory for `length` bytes, which has any content.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(crate) fn new(length: usize) -> PyResult<Self> {
        let block = Block::new(length).ok_or_else(|| PyMemoryError::new_err(()))?;
        Ok(Self { block: Some(block), length })
    }

    /// Returns the address of the first byte; `length` bytes are writable.
    pub(crate) fn start(&self) -> *mut u8 {
        self.block.as_ref().map_or(NonNull::dangling(), |block| block.start).as_ptr()
    }
}

impl Drop for PartBuffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            block.free();
        }
    }
}

#[pymethods]
impl PartBuffer {
    fn __len__(&self) -> usize {
        self.length
    }

    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        buffer: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (start, length) = (slf.get().start(), slf.get().length);
        // SAFETY: the interpreter passes a buffer to fill, which keeps the object alive, and the
        // object its memory.
        let failed = unsafe {
            ffi::PyBuffer_FillInfo(buffer, slf.as_ptr(), start.cast(), length as _, 0, flags)
        };
        if failed == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

//! Private memory for a part of a received message: [`PartBuffer`].

#![allow(unsafe_code, reason = "the buffer interface, and memory for it")]

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_int;
use std::ptr::NonNull;

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Alignment of each part in bytes: a line of the cache.
pub(crate) const ALIGNMENT: usize = 64;

/// Private, writable memory that holds a copy of a part of a message.
#[pyclass(module = "tontine", frozen)]
pub(crate) struct PartBuffer {
    start: NonNull<u8>,
    layout: Layout,
    length: usize,
}

// SAFETY: the object owns the memory.
unsafe impl Send for PartBuffer {}
// SAFETY: the class only returns the address. As with any writable buffer, the program's threads
// coordinate their use of the bytes.
unsafe impl Sync for PartBuffer {}

impl PartBuffer {
    /// Returns memory for `length` bytes, which has any content.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(crate) fn new(length: usize) -> PyResult<Self> {
        let memory = || PyMemoryError::new_err(());
        let layout = Layout::from_size_align(length.max(1), ALIGNMENT).map_err(|_| memory())?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc(layout) }).ok_or_else(memory)?;
        Ok(Self { start, layout, length })
    }

    /// Returns the address of the first byte; `length` bytes are writable.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for PartBuffer {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this layout, and no buffer of the object is left.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
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

//! The bytes of a Python object: [`MessageBytes`].

#![allow(unsafe_code, reason = "the buffer interface")]

use std::mem::MaybeUninit;
use std::ops::Deref;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Number of bytes from which a copy releases the interpreter's lock.
pub(crate) const LONG: usize = 64 << 10;

/// The bytes of an object with the buffer interface, in C order, until they are dropped.
///
/// As in any use of the buffer interface, another thread may change the bytes of a mutable object
/// while they are read. The result then mixes bytes from before and after the change.
pub(crate) enum MessageBytes<'a> {
    Immutable(&'a [u8]),
    Buffer(Box<ffi::Py_buffer>),
}

// SAFETY: the exporter keeps the bytes of a buffer in place until it is released, and any thread
// may read them.
unsafe impl Sync for MessageBytes<'_> {}

impl<'a> MessageBytes<'a> {
    /// Returns the bytes of an object.
    ///
    /// # Errors
    /// `TypeError` if the object has no buffer interface; `BufferError`, or an error of its own, if
    /// its bytes are not contiguous.
    pub(crate) fn of(object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Immutable(bytes.as_bytes()));
        }
        let mut buffer = Box::new(MaybeUninit::<ffi::Py_buffer>::zeroed());
        // SAFETY: the object is alive, and the call fills the buffer if it succeeds. The box keeps
        // the buffer's address, which some exporters store.
        let failed = unsafe {
            ffi::PyObject_GetBuffer(object.as_ptr(), buffer.as_mut_ptr(), ffi::PyBUF_SIMPLE)
        };
        if failed != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: the call has filled the buffer.
        Ok(Self::Buffer(unsafe { Box::from_raw(Box::into_raw(buffer).cast()) }))
    }
}

impl Deref for MessageBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Immutable(bytes) => bytes,
            Self::Buffer(buffer) if buffer.len == 0 => &[],
            // SAFETY: the exporter keeps `len` bytes at `buf` in place until the buffer is
            // released.
            Self::Buffer(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf.cast(), buffer.len as usize)
            },
        }
    }
}

impl Drop for MessageBytes<'_> {
    fn drop(&mut self) {
        if let Self::Buffer(buffer) = self {
            // SAFETY: `PyObject_GetBuffer` filled the buffer, which is released once. A value lives
            // only in a call from Python, whose thread is attached when it ends.
            unsafe { ffi::PyBuffer_Release(&raw mut **buffer) }
        }
    }
}

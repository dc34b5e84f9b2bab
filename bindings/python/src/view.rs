//! A message in the sender's memory: [`MessageView`].

#![allow(unsafe_code, reason = "the buffer interface")]

use std::ffi::c_int;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyWeakrefMethods, PyWeakrefReference};

use crate::buffer::PartBuffer;
use crate::bytes::LONG;

/// A message in the sender's memory.
#[derive(Clone, Copy)]
pub(crate) struct MessagePointer {
    pub(crate) start: *const u8,
    pub(crate) length: usize,
}

// SAFETY: any thread may read the message.
unsafe impl Send for MessagePointer {}
// SAFETY: as for `Send`.
unsafe impl Sync for MessagePointer {}

impl MessagePointer {
    /// Copies the message, whose mailbox the caller has locked.
    pub(crate) fn copy<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, self.length, |copy| {
            // SAFETY: the caller has locked the mailbox, which keeps the message in place. No
            // reference to the message is made, since a hostile sender may change it.
            unsafe { self.start.copy_to_nonoverlapping(copy.as_mut_ptr(), self.length) };
            Ok(())
        })
    }

    /// Returns a part of the message.
    pub(crate) fn part(self, range: &Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.length);
        // SAFETY: the part begins inside the message, or at its end.
        Self { start: unsafe { self.start.add(range.start) }, length: range.end - range.start }
    }

    /// Copies the message, whose mailbox the caller has locked, into private memory.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(crate) fn copy_to_buffer(self, py: Python<'_>) -> PyResult<PartBuffer> {
        let buffer = PartBuffer::new(self.length)?;
        if self.length < LONG {
            self.copy_to(&buffer);
        } else {
            py.detach(|| self.copy_to(&buffer));
        }
        Ok(buffer)
    }

    /// Copies the message to a new buffer of its length.
    fn copy_to(self, buffer: &PartBuffer) {
        // SAFETY: as in `copy`; no other thread has the buffer.
        unsafe { self.start.copy_to_nonoverlapping(buffer.start(), self.length) }
    }
}

/// Value of `exports` once the mailbox may receive again.
const RELEASED: usize = usize::MAX;

/// A message in the sender's memory, for a `with` statement.
///
/// The statement yields a read-only `memoryview`, and acknowledges the message at its end. It
/// raises `BufferError` if the view, or an array made from it, is then still in use; the mailbox
/// receives again once they are deleted.
#[pyclass(module = "tontine", frozen)]
pub(crate) struct MessageView {
    /// The mailbox, which keeps the message in place while `viewed` is `true`.
    mailbox: Py<PyAny>,
    viewed: Arc<AtomicBool>,
    message: MessagePointer,
    /// Number of buffers that other objects hold, or [`RELEASED`].
    exports: AtomicUsize,
    /// The view that the `with` statement yielded.
    view: Mutex<Option<Py<PyWeakrefReference>>>,
}

impl MessageView {
    /// Returns the view of a message. The mailbox keeps the message in place while `viewed` is
    /// `true`.
    pub(crate) fn new(
        mailbox: Py<PyAny>,
        viewed: Arc<AtomicBool>,
        message: MessagePointer,
    ) -> Self {
        Self { mailbox, viewed, message, exports: AtomicUsize::new(0), view: Mutex::new(None) }
    }

    /// Ends further use, unless another object holds a buffer. Returns `true` if the caller must
    /// let the mailbox receive again.
    fn begin_release(&self) -> bool {
        let (before, after) = (Ordering::AcqRel, Ordering::Acquire);
        self.exports.compare_exchange(0, RELEASED, before, after).is_ok()
    }
}

/// The last object that used the message is gone.
impl Drop for MessageView {
    fn drop(&mut self) {
        if self.begin_release() {
            self.viewed.store(false, Ordering::Release);
        }
    }
}

#[pymethods]
impl MessageView {
    fn __len__(&self) -> usize {
        self.message.length
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        let view = PyMemoryView::from(slf.as_any())?;
        let weak = PyWeakrefReference::new(view.as_any())?.unbind();
        let mut last = slf.get().view.lock().unwrap_or_else(PoisonError::into_inner);
        let last_weak = last.replace(weak);
        drop(last);
        drop(last_weak);
        Ok(view)
    }

    #[pyo3(signature = (kind, _value, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let view = self.view.lock().unwrap_or_else(PoisonError::into_inner).take();
        let view = view.and_then(|view| view.bind(py).upgrade());
        let released = view.map_or(Ok(()), |view| view.call_method0("release").map(drop));
        if released.is_ok() && self.begin_release() {
            return self.mailbox.call_method0(py, "_end_view").map(drop).inspect_err(|_| {
                self.viewed.store(false, Ordering::Release);
            });
        }
        let ended = self.exports.load(Ordering::Acquire) == RELEASED;
        // The frames of an exception keep their arrays until it is handled.
        if ended || !kind.is_none() {
            return Ok(());
        }
        Err(PyBufferError::new_err(
            "the message is still in use: delete the views and arrays made from it before its \
             `with` statement ends",
        ))
    }

    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        buffer: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let (before, after) = (Ordering::AcqRel, Ordering::Acquire);
        let export = |exports| if exports == RELEASED { None } else { Some(exports + 1) };
        if this.exports.fetch_update(before, after, export).is_err() {
            return Err(PyRuntimeError::new_err("the `with` statement of this message has ended"));
        }
        let (start, length) = (this.message.start.cast_mut(), this.message.length);
        // SAFETY: the interpreter passes a buffer to fill. The message stays in place until it is
        // released, which does not happen while there are exports.
        let failed = unsafe {
            ffi::PyBuffer_FillInfo(buffer, slf.as_ptr(), start.cast(), length as _, 1, flags)
        };
        if failed != 0 {
            this.exports.fetch_sub(1, Ordering::AcqRel);
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _buffer: *mut ffi::Py_buffer) {
        self.exports.fetch_sub(1, Ordering::AcqRel);
    }
}

//! A message in the sender's memory: [`MessageView`].

#![allow(unsafe_code, reason = "the buffer interface")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::mailbox::{InPlace, Mailbox};

/// Value of `exports` once the mailbox may receive again.
const RELEASED: usize = usize::MAX;

/// A message in the sender's memory, for a `with` statement.
///
/// The statement yields a read-only `memoryview`, and acknowledges the message at its end. It raises
/// `BufferError` if the view, or an array made from it, is then still in use; the mailbox receives
/// again once they are deleted.
#[pyclass(module = "tontine", frozen)]
pub(crate) struct MessageView {
    mailbox: Py<Mailbox>,
    message: InPlace,
    /// Number of buffers that other objects hold, or [`RELEASED`].
    exports: AtomicUsize,
    view: Mutex<Option<Py<PyAny>>>,
}

impl MessageView {
    /// Returns the view of a message, which the mailbox keeps in place.
    pub(crate) fn new(mailbox: Py<Mailbox>, message: InPlace) -> Self {
        Self { mailbox, message, exports: AtomicUsize::new(0), view: Mutex::new(None) }
    }

    /// Lets the mailbox receive again, unless another object holds a buffer. Returns `true` if none
    /// does.
    fn release(&self) -> bool {
        let (before, after) = (Ordering::AcqRel, Ordering::Acquire);
        match self.exports.compare_exchange(0, RELEASED, before, after) {
            Ok(_) => {
                self.mailbox.get().release_view();
                true
            }
            Err(exports) => exports == RELEASED,
        }
    }
}

/// The last object that used the message is gone.
impl Drop for MessageView {
    fn drop(&mut self) {
        self.release();
    }
}

#[pymethods]
impl MessageView {
    fn __len__(&self) -> usize {
        self.message.length
    }

    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let view = PyMemoryView::from(slf.as_any())?.into_any().unbind();
        let copy = view.clone_ref(slf.py());
        *slf.get().view.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy);
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
        let released = view.map_or(Ok(()), |view| view.call_method0(py, "release").map(drop));
        if released.is_ok() && self.release() {
            return self.mailbox.get().ack_if_open(py);
        }
        // The frames of an exception keep their arrays until it is handled.
        if !kind.is_none() {
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

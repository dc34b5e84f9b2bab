//! A receiver that holds several messages: [`PyHolding`], for queues with several consumers.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::io::fcntl_dupfd_cloexec;
use tontine::Error;
use tontine::mailbox::{HeldMessage, HoldingMailbox, Order};

use crate::failure::exception;
use crate::shared::{self, Shared, options};

/// Maximum number of messages that are held.
const MAX_HELD: usize = 1 << 16;

/// A mailbox whose messages are completed one by one, in any order: `HoldingMailbox`.
#[pyclass(name = "Holding", module = "tontine._tontine", frozen)]
pub(crate) struct PyHolding {
    mailbox: Shared<HoldingMailbox>,
    descriptor: OwnedFd,
}

/// A message that a `Holding` has received.
#[pyclass(name = "Held", module = "tontine._tontine", frozen)]
pub(crate) struct PyHeld(Mutex<Option<HeldMessage>>);

#[pymethods]
impl PyHeld {
    /// The bytes of the message; none once it is completed.
    #[getter]
    fn bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.lock().as_deref().unwrap_or_default())
    }
}

#[pymethods]
impl PyHolding {
    /// Opens a mailbox in causal order if the machine has the clock for it.
    #[new]
    fn new(py: Python<'_>, address: PathBuf, cap: u64) -> PyResult<Self> {
        let open = |order| {
            let options = options(Some(cap), Vec::new(), true).mode(0o600).order(order);
            options.mailbox_cap(cap.saturating_mul(128)).bind(shared::address(&address))
        };
        let opened = match open(Order::Causal) {
            Err(Error::NoSharedClock { .. }) => open(Order::BySender),
            opened => opened,
        };
        let mailbox = opened.and_then(|mailbox| mailbox.into_holding(MAX_HELD));
        let mailbox = mailbox.map_err(|error| exception(py, &error))?;
        let descriptor = fcntl_dupfd_cloexec(mailbox.as_fd(), 3).map_err(std::io::Error::from)?;
        Ok(Self { mailbox: Shared::new(mailbox, "queue"), descriptor })
    }

    /// Returns the next message, or None if there is none now.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<PyHeld>> {
        self.mailbox.with(py, |mailbox| match mailbox.try_recv() {
            Ok(message) => Ok(Some(PyHeld(Mutex::new(Some(message))))),
            Err(Error::WouldBlock | Error::Full { .. }) => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// Completes a message: it will not be received again.
    ///
    /// Raises:
    ///     ValueError: It was completed before.
    fn complete(&self, py: Python<'_>, message: &PyHeld) -> PyResult<()> {
        let message = message.0.lock().take();
        let message = message.ok_or_else(|| PyValueError::new_err("a completed message"))?;
        self.mailbox.with(py, |mailbox| {
            mailbox.complete(message);
            Ok(())
        })
    }

    /// Returns the descriptor, which is readable when there may be a message; call `arm` before.
    fn fileno(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    /// Prepares for waiting on the descriptor; false if there may be a message now.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.mailbox.with(py, HoldingMailbox::arm)
    }

    /// Closes the mailbox. Senders can take back what was not completed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.mailbox.close(py)
    }
}

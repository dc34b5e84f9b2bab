//! An end of a lane, used by the threads of one process: [`Shared`].

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use parking_lot::{Mutex, MutexGuard};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use tontine::mailbox::{Address, Options, Order};
use tontine::{Error, Peer};

use crate::failure::{exception, sender_died};
use crate::wait::MAX_SLEEP;

/// A mailbox or a sender, until this process closes it. Calls of several threads wait for each
/// other.
pub(crate) struct Shared<T> {
    end: Mutex<Option<T>>,
    pid: u32,
    what: &'static str,
}

/// Reason why an operation on an end failed. It becomes an exception after the end is unlocked.
pub(crate) enum Failure {
    /// The library's error.
    Library(Error),
    /// This process has closed the end.
    ClosedHere,
    /// The process of a sender died.
    SenderDied(Peer),
    /// A message is in use in place.
    Viewed,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl<T: Send> Shared<T> {
    pub(crate) fn new(end: T, what: &'static str) -> Self {
        Self { end: Mutex::new(Some(end)), pid: std::process::id(), what }
    }

    /// Locks the end for this thread. The guard must not outlive a call that may run Python code.
    ///
    /// # Errors
    /// The exception that a signal handler raised; `Forked` if a thread of the parent holds the
    /// lock.
    pub(crate) fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<T>>> {
        if let Some(end) = self.end.try_lock() {
            return Ok(end);
        }
        loop {
            if std::process::id() != self.pid {
                return Err(exception(py, &Error::Forked));
            }
            py.check_signals()?;
            if let Some(end) = py.detach(|| self.end.try_lock_for(MAX_SLEEP)) {
                return Ok(end);
            }
        }
    }

    /// Calls `operation` on the open end.
    ///
    /// # Errors
    /// Those of [`Shared::lock`] and [`Shared::exception`].
    pub(crate) fn with<R>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut T) -> tontine::Result<R>,
    ) -> PyResult<R> {
        let outcome = match &mut *self.lock(py)? {
            Some(end) => operation(end).map_err(Failure::from),
            None => Err(Failure::ClosedHere),
        };
        outcome.map_err(|failure| self.exception(py, &failure))
    }

    /// Closes the end.
    ///
    /// # Errors
    /// Those of [`Shared::lock`].
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let end = self.lock(py)?.take();
        drop(end);
        Ok(())
    }

    pub(crate) fn exception(&self, py: Python<'_>, failure: &Failure) -> PyErr {
        match failure {
            Failure::Library(error) => exception(py, error),
            Failure::ClosedHere => {
                PyValueError::new_err(format!("this {} is closed; open a new one", self.what))
            }
            Failure::SenderDied(peer) => sender_died(py, *peer),
            Failure::Viewed => PyBufferError::new_err(
                "a message is in use: end its `with` statement, and delete the views and arrays \
                 made from it, before the next call",
            ),
        }
    }
}

/// Converts a path, or "@" and a name, into an address.
pub(crate) fn address(path: &Path) -> Address {
    match path.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => Address::abstract_name(name),
        None => Address::path(path),
    }
}

/// Duplicates the descriptor of an end.
pub(crate) fn duplicate(end: &impl AsFd) -> tontine::Result<OwnedFd> {
    end.as_fd().try_clone_to_owned().map_err(|error| Error::System {
        call: "fcntl",
        errno: error.raw_os_error().unwrap_or_default(),
    })
}

/// Returns the options that both ends have.
pub(crate) fn options(
    cap: Option<u64>,
    allow_uids: Vec<u32>,
    raise_descriptor_limit: bool,
) -> Options {
    let mut options = Options::new().raise_descriptor_limit(raise_descriptor_limit);
    if let Some(bytes) = cap {
        options = options.lane_cap(bytes);
    }
    allow_uids.into_iter().fold(options, Options::allow_uid)
}

/// Returns the order of this name; `None` for the best that the machine has.
pub(crate) fn chosen_order(name: Option<&str>) -> PyResult<Option<Order>> {
    match name {
        None => Ok(None),
        Some("causal") => Ok(Some(Order::Causal)),
        Some("by_sender") => Ok(Some(Order::BySender)),
        Some(other) => Err(PyValueError::new_err(format!(
            "expected \"causal\", \"by_sender\" or None as the order, found {other:?}"
        ))),
    }
}

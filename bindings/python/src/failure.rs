//! Errors of the library as Python exceptions, which the module `tontine._errors` defines.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;
use tontine::{Error, Peer};

/// The error number of `SenderDied`, like that of `OwnerDied`: the value of EOWNERDEAD on Linux.
const OWNER_DEAD: i32 = rustix::io::Errno::OWNERDEAD.raw_os_error();

/// Converts an error into the exception of its class, with error number and text.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let (class, pid) = match error {
        Error::OwnerDied { peer } => ("OwnerDied", peer.pid),
        Error::Closed { peer } => ("Closed", peer.pid),
        Error::WouldBlock => ("WouldBlock", None),
        Error::TimedOut => ("TimedOut", None),
        Error::TooLarge { .. } => ("TooLarge", None),
        Error::Forked => ("Forked", None),
        Error::AddrInUse { holder, .. } => ("AddressInUse", *holder),
        Error::NoSenders => ("NoSenders", None),
        Error::NoMailbox { .. } => ("NoMailbox", None),
        Error::Denied { peer, .. } => ("Denied", peer.pid),
        _ => ("Error", None),
    };
    let text = match error {
        Error::Forked => "this object belongs to the parent of this process; open one here".into(),
        _ => error.to_string(),
    };
    of_class(py, class, error.errno(), text, pid)
}

/// Returns the exception for a sender whose process died.
pub(crate) fn sender_died(py: Python<'_>, peer: Peer) -> PyErr {
    let text = format!("{peer} died; all messages that it had sent were received before");
    of_class(py, "SenderDied", OWNER_DEAD, text, peer.pid)
}

fn of_class(py: Python<'_>, class: &str, errno: i32, text: String, pid: Option<u32>) -> PyErr {
    static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let made = || {
        let classes = CLASSES
            .get_or_try_init(py, || py.import("tontine._errors").map(Bound::unbind))?
            .bind(py);
        let exception = classes.getattr(class)?.call1((errno, text))?;
        exception.setattr("pid", pid)?;
        Ok(exception)
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

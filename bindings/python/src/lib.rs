//! Tontine for Python: the module `tontine._tontine`, which the package `tontine` re-exports.
//!
//! - [`failure`]: errors as Python exceptions.
//! - [`bytes`]: the bytes of a Python object; [`buffer`]: private memory for received ones.
//! - [`parts`]: messages of several parts, such as a pickle and its arrays.
//! - [`wait`]: sleeps without the interpreter's lock, which signal handlers end (PEP 475).
//! - [`shared`]: one end of a lane, used by the threads of one process.
//! - [`listener`]: the socket of a queue, which several processes hold.
//! - [`mailbox`], [`sender`]: the two ends, and [`view`], a message without a copy.
//! - [`holding`]: a receiver that completes messages in any order.
//! - [`work`]: the inner loops of executors and their workers.
//!
//! The crate `tontine` does the work. No Python code runs while an end is locked: it could use the
//! same end.
//!
//! Floors, from the bottom up: `buffer`, `bytes`, `failure`; `wait`; `shared`, `view`, `listener`;
//! `parts`, `holding`; `mailbox`, `sender`; `work`.

mod buffer;
mod bytes;
mod failure;
mod holding;
mod listener;
mod mailbox;
mod parts;
mod sender;
mod shared;
mod view;
mod wait;
mod work;

/// The compiled part of the package `tontine`.
#[pyo3::pymodule(gil_used = false)]
#[pyo3(name = "_tontine")]
mod module {
    #[pymodule_export]
    use super::holding::{PyHeld, PyHolding};
    #[pymodule_export]
    use super::listener::PyListener;
    #[pymodule_export]
    use super::mailbox::PyMailbox;
    #[pymodule_export]
    use super::parts::part_ranges;
    #[pymodule_export]
    use super::sender::PySender;
    #[pymodule_export]
    use super::view::MessageView;
    #[pymodule_export]
    use super::work::{
        Board, die_with, run_tasks, send_raised, send_ready, send_split, take_results,
    };

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

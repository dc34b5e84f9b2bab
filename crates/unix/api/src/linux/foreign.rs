//! Handlers that other parts of the program installed: [`Foreign`].

use std::collections::BTreeMap;

use crate::signal::Signal;
use crate::sys::Handler;

/// Handlers that other code installed. Each is held both as the crate returns it and as the kernel
/// stores it.
#[derive(Debug)]
pub(super) struct Foreign(pub(super) BTreeMap<Signal, (Handler, SigactionRecord)>);

/// A `struct sigaction`.
pub(super) struct SigactionRecord(pub(super) libc::sigaction);

impl std::fmt::Debug for SigactionRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigactionRecord({:#x})", self.0.sa_sigaction)
    }
}

impl Foreign {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }
}

//! Threads of this process: made by the standard library, known by their number, joined once.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use super::{Linux, stack, table};
use crate::errno::{Errno, Result};
use crate::process::{Body, Tid};

/// Threads that were made here and not joined; `None` while somebody joins.
///
/// One that ended and is never joined stays until a new thread has its number.
#[derive(Debug)]
pub(super) struct Threads(BTreeMap<Tid, Option<JoinHandle<()>>>);

impl Threads {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// In a forked child, which has none of them. Their handles are leaked: to drop one would
    /// detach a thread that is not there.
    pub(super) fn forget(&mut self) {
        std::mem::forget(std::mem::take(&mut self.0));
    }
}

/// `thread`. A body that panics ends its thread alone.
pub(super) fn start(body: Body) -> Result<Tid> {
    let placement = table::read().placement;
    let (tell, told) = mpsc::sync_channel(1);
    let (go, gone) = mpsc::sync_channel(1);
    let handle = Builder::new().spawn(move || {
        placement.apply();
        stack::forget();
        // The maker waits for it, and lets it go once it is known: both ends are there.
        let _ = tell.send(current());
        let _ = gone.recv();
        let _ = catch_unwind(AssertUnwindSafe(|| body(&Linux(()))));
    })?;
    let thread = told.recv().map_err(|_| Errno::EAGAIN)?;
    table::write().threads.0.insert(thread, Some(handle));
    let _ = go.send(());
    Ok(thread)
}

/// `join`.
pub(super) fn join(thread: Tid) -> Result<()> {
    if thread == current() {
        return Err(Errno::EDEADLK);
    }
    let handle = {
        let mut table = table::write();
        table.threads.0.get_mut(&thread).ok_or(Errno::ESRCH)?.take().ok_or(Errno::EINVAL)?
    };
    // The body does not panic.
    let _ = handle.join();
    let mut table = table::write();
    // A new thread may have the number by now.
    if let Some(None) = table.threads.0.get(&thread) {
        table.threads.0.remove(&thread);
    }
    Ok(())
}

/// The caller.
pub(super) fn current() -> Tid {
    Tid(rustix::thread::gettid().as_raw_nonzero().get())
}

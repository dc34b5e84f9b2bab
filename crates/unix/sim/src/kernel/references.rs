//! References to a process that was looked up (§5.2): [`ProcRef`] and [`HeldProc`]. An exit
//! completes when no reference is left.
//!
//! Slots are never freed: a lookup first takes a reference, and then checks that the slot still
//! holds the intended process.

use std::ops::Deref;

use tontine_unix::Pid;

use super::Kernel;
use super::proc::{Proc, ProcState};
use crate::lock::SimpleGuard;
use crate::lock::lock_order::PLock;

/// A process that was looked up. While this reference exists, the process cannot complete its exit,
/// unless it was already ending at the lookup.
pub(super) struct ProcRef<'k> {
    kernel: &'k Kernel,
    proc: &'k Proc,
    birth: u32,
    counted: bool,
}

impl<'k> ProcRef<'k> {
    /// Refers to the process that is in the slot now.
    pub(super) fn new(kernel: &'k Kernel, proc: &'k Proc) -> Self {
        let counted = proc.count();
        Self { kernel, proc, birth: proc.generation(), counted }
    }

    /// Converts the reference for structures without a lifetime; returns `None` if the process was
    /// already ending.
    pub(super) fn hold(self) -> Option<HeldProc> {
        let Self { proc, birth, counted, .. } = self;
        std::mem::forget(self);
        counted.then_some(HeldProc { slot: proc.slot, birth })
    }

    /// Returns the process's state, unless the process has been waited for in the meantime.
    pub(super) fn state(&self) -> Option<SimpleGuard<'k, PLock, ProcState>> {
        let state = self.proc.lock(&self.kernel.locks);
        (self.counted || (self.proc.generation() == self.birth && self.birth != 0)).then_some(state)
    }
}

/// A reference that is stored in the system's own structures.
#[must_use = "a counted reference that is lost blocks an exit indefinitely"]
pub(super) struct HeldProc {
    slot: u32,
    birth: u32,
}

impl HeldProc {
    /// Converts this value back to a reference.
    pub(super) fn refer(self, kernel: &Kernel) -> ProcRef<'_> {
        let Self { slot, birth } = self;
        ProcRef { kernel, proc: kernel.slab.get(slot), birth, counted: true }
    }
}

impl Deref for ProcRef<'_> {
    type Target = Proc;

    fn deref(&self) -> &Proc {
        self.proc
    }
}

impl Drop for ProcRef<'_> {
    fn drop(&mut self) {
        if !self.counted {
            return;
        }
        if self.proc.uncount()
            && let Some(ender) = &self.proc.lock(&self.kernel.locks).ender
        {
            ender.unpark();
        }
    }
}

impl Kernel {
    /// Returns the process with this number, and with the generation in `pid` if `pid` has one.
    pub(super) fn find(&self, pid: Pid) -> Option<ProcRef<'_>> {
        let slot = self.pids.slot(pid.number())?;
        let found = ProcRef::new(self, self.slab.get(slot));
        let same = found.number() == pid.number() && found.birth == found.generation();
        (same && pid.birth().is_none_or(|birth| birth == found.birth)).then_some(found)
    }
}

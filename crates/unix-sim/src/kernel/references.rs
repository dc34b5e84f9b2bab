//! References to a process that was looked up (§5.2): [`ProcRef`] and [`HeldProc`]. An exit
//! completes when there is none.
//!
//! Slots are never freed: count a reference, then look whether the slot still has whom you meant.

use std::ops::Deref;

use tontine_unix::Pid;

use super::Kernel;
use super::proc::{Proc, ProcState};
use crate::lock::SimpleGuard;
use crate::lock::lock_order::PLock;

/// A process that was looked up: it completes no exit while this lives, unless it was ending
/// already.
#[derive(Debug)]
pub(super) struct ProcRef<'k> {
    kernel: &'k Kernel,
    proc: &'k Proc,
    birth: u32,
    counted: bool,
}

impl<'k> ProcRef<'k> {
    /// Refers to who is in the slot now.
    pub(super) fn new(kernel: &'k Kernel, proc: &'k Proc) -> Self {
        let counted = proc.count();
        Self { kernel, proc, birth: proc.birth(), counted }
    }

    /// Keeps the reference where no lifetime can be; `None` if the process was ending already.
    pub(super) fn hold(self) -> Option<HeldProc> {
        let Self { proc, birth, counted, .. } = self;
        std::mem::forget(self);
        counted.then_some(HeldProc { slot: proc.slot, birth })
    }

    /// Its state, unless it has been waited for in the meantime.
    pub(super) fn state(&self) -> Option<SimpleGuard<'k, PLock, ProcState>> {
        let state = self.proc.lock(&self.kernel.locks);
        (self.counted || (self.proc.birth() == self.birth && self.birth != 0)).then_some(state)
    }
}

/// A reference that is kept in the system's own structures.
#[derive(Debug)]
#[must_use = "a counted reference that is lost keeps an exit waiting for ever"]
pub(super) struct HeldProc {
    slot: u32,
    birth: u32,
}

impl HeldProc {
    /// The reference again.
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
    /// Who has this number, and was born then if `pid` says when.
    pub(super) fn find(&self, pid: Pid) -> Option<ProcRef<'_>> {
        let slot = self.pids.slot(pid.number())?;
        let found = ProcRef::new(self, self.slab.get(slot));
        let same = found.number() == pid.number() && found.birth == found.birth();
        (same && pid.birth().is_none_or(|birth| birth == found.birth)).then_some(found)
    }
}

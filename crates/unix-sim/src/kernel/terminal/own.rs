//! Which terminal is a process's own, its controlling terminal.
//!
//! It is the session's, but as on Linux each process has its own word on that: the leader that took
//! it, and whoever was forked since by those that have it. Who was there before has none: it opens
//! nothing by `/dev/tty`, and job control does not hold it back.

use std::sync::atomic::Ordering;

use crate::executor::{self, Object};
use crate::kernel::proc::Proc;

/// What no terminal's lock has for an instance.
pub(in crate::kernel) const NO_TERMINAL: u32 = u32::MAX;

impl Proc {
    /// Whether a terminal, if it is its session's, is its own.
    pub(super) fn has_terminal(&self, instance: u32) -> bool {
        executor::looks_at(Object::Process(self.slot));
        self.terminal.load(Ordering::Relaxed) == instance
    }

    /// This terminal is its own from now on, or none: [`NO_TERMINAL`].
    pub(in crate::kernel) fn set_terminal(&self, instance: u32) {
        executor::changes(Object::Process(self.slot));
        self.terminal.store(instance, Ordering::Relaxed);
    }

    /// A child has what its parent has.
    pub(in crate::kernel) fn share_terminal(&self, parent: &Self) {
        executor::looks_at(Object::Process(parent.slot));
        self.set_terminal(parent.terminal.load(Ordering::Relaxed));
    }
}

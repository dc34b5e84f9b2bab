//! The controlling terminal of each process.
//!
//! The terminal belongs to the session, but as on Linux each process records whether it is its
//! own: that holds for the leader that acquired it, and for processes that are forked later by
//! those for which it holds. Other processes open nothing by `/dev/tty`, and job control does not
//! restrict them.

use std::sync::atomic::Ordering;

use crate::executor::{self, Object};
use crate::kernel::proc::Proc;

/// A value that no terminal's lock has as its instance.
pub(in crate::kernel) const NO_TERMINAL: u32 = u32::MAX;

impl Proc {
    /// Returns `true` if a terminal, given that it is the session's, is the process's own.
    pub(super) fn has_terminal(&self, instance: u32) -> bool {
        executor::looks_at(Object::Process(self.slot));
        self.terminal.load(Ordering::Relaxed) == instance
    }

    /// Sets its own terminal, or none: [`NO_TERMINAL`].
    pub(in crate::kernel) fn set_terminal(&self, instance: u32) {
        executor::changes(Object::Process(self.slot));
        self.terminal.store(instance, Ordering::Relaxed);
    }

    /// Copies the terminal of the parent to a child.
    pub(in crate::kernel) fn share_terminal(&self, parent: &Self) {
        executor::looks_at(Object::Process(parent.slot));
        self.set_terminal(parent.terminal.load(Ordering::Relaxed));
    }
}

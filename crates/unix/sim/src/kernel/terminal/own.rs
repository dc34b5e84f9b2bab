//! The controlling terminal of each process.
//!
//! The terminal belongs to the session, but as on Linux each process records whether the terminal
//! is its own. This holds for the leader that acquired the terminal, and for processes that are
//! later forked by processes for which it holds. Other processes cannot open `/dev/tty`, and job
//! control does not restrict them.

use std::sync::atomic::Ordering;

use crate::executor::{self, Object};
use crate::kernel::proc::Proc;

impl Proc {
    /// Returns `true` if a terminal, assumed to be the session's, is also the process's own.
    pub(super) fn has_terminal(&self, instance: u32) -> bool {
        executor::looks_at(Object::Process(self.slot));
        self.terminal.load(Ordering::Relaxed) == instance
    }

    /// Sets the process's own terminal, or [`NO_TERMINAL`](crate::kernel::session::NO_TERMINAL) if
    /// it has none.
    pub(in crate::kernel) fn set_terminal(&self, instance: u32) {
        executor::changes(Object::Process(self.slot));
        self.terminal.store(instance, Ordering::Relaxed);
    }

    /// Copies the parent's own terminal to a child.
    pub(in crate::kernel) fn share_terminal(&self, parent: &Self) {
        executor::looks_at(Object::Process(parent.slot));
        self.set_terminal(parent.terminal.load(Ordering::Relaxed));
    }
}

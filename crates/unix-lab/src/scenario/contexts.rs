//! The processes of one memory and what each has as its context: [`Contexts`].
//!
//! A forked child inherits its parent's handlers. What they set are the child's variables, not
//! those of the process that installed them, so a handler looks for the process that it runs in.
//! It may interrupt anything: looking takes no lock and allocates nothing. A signal that is there
//! before the child's first statement finds no entry, and sets the installer's variables.

use std::sync::{Arc, OnceLock, Weak};

/// Processes that live in one memory and have forked each other, in the order of their births.
pub(super) struct Contexts<C> {
    first: OnceLock<Box<Entry<C>>>,
}

struct Entry<C> {
    pid: i32,
    context: Weak<C>,
    next: OnceLock<Box<Entry<C>>>,
}

impl<C> Default for Contexts<C> {
    fn default() -> Self {
        Self { first: OnceLock::new() }
    }
}

impl<C> Contexts<C> {
    /// From now on the process `pid` has this one.
    pub(super) fn add(&self, pid: i32, context: &Arc<C>) {
        let context = Arc::downgrade(context);
        let mut entry = Box::new(Entry { pid, context, next: OnceLock::new() });
        let mut end = &self.first;
        // Another processor's process may be at the same place.
        while let Err(refused) = end.set(entry) {
            entry = refused;
            end = &end.get().expect("it refused because there is one").next;
        }
    }

    /// The one of process `pid`: the youngest, where the number was used again.
    pub(super) fn of(&self, pid: i32) -> Option<Arc<C>> {
        let entries = std::iter::successors(self.first.get(), |entry| entry.next.get());
        entries.filter(|entry| entry.pid == pid).last()?.context.upgrade()
    }
}

impl<C> Drop for Contexts<C> {
    /// One after another: as many as there may be must not be as many calls deep.
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(mut entry) = next {
            next = entry.next.take();
        }
    }
}

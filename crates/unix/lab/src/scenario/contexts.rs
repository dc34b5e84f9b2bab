//! The contexts of the processes that share one address space: [`Contexts`].
//!
//! A forked child inherits its parent's handlers. These handlers must set the child's variables,
//! not the variables of the process that installed them. Therefore a handler looks up the process
//! in which it runs. Because a handler may interrupt any code, the lookup takes no lock and
//! allocates nothing. A signal that arrives before the child's first statement finds no entry, and
//! its handler sets the variables of the installer.

use std::sync::{Arc, OnceLock, Weak};

/// The related processes in one address space, in the order of their creation.
pub(super) struct Contexts<C> {
    first: OnceLock<Box<ContextEntry<C>>>,
}

struct ContextEntry<C> {
    pid: i32,
    context: Weak<C>,
    next: OnceLock<Box<ContextEntry<C>>>,
}

impl<C> Default for Contexts<C> {
    fn default() -> Self {
        Self { first: OnceLock::new() }
    }
}

impl<C> Contexts<C> {
    pub(super) fn add(&self, pid: i32, context: &Arc<C>) {
        let context = Arc::downgrade(context);
        let mut entry = Box::new(ContextEntry { pid, context, next: OnceLock::new() });
        let mut end = &self.first;
        // A process on another processor may append at the same time.
        while let Err(refused) = end.set(entry) {
            entry = refused;
            end = &end.get().expect("it refused because there is one").next;
        }
    }

    /// Returns the context of process `pid`. If the number was reused, returns the latest context.
    pub(super) fn of(&self, pid: i32) -> Option<Arc<C>> {
        let entries = std::iter::successors(self.first.get(), |entry| entry.next.get());
        entries.filter(|entry| entry.pid == pid).last()?.context.upgrade()
    }
}

impl<C> Drop for Contexts<C> {
    /// Drops the entries in a loop, because a recursive drop would recurse once per entry.
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(mut entry) = next {
            next = entry.next.take();
        }
    }
}

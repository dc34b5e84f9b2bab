//! Parents and children (§5.4, table 2): [`Links`](super::links::Links), and
//! the lock over them.
//!
//! `proc_relation_lock` guards the pointers of all processes, which are called *the relations*. The
//! pointers are slot numbers in atomic words, so that a mistake here causes a wrong answer but no
//! invalid access; only the lock keeps several pointers consistent.

use std::sync::atomic::Ordering;

use tontine_unix::Pid;

use super::Kernel;
use super::proc::Proc;
use crate::executor::{self, Object};
use crate::lock::lock_order::ProcRelationLock;
use crate::lock::{ReadGuard, WriteGuard};

/// Records a change of the relations of `parent` and `child`, for readers without a lock.
fn reach_both(parent: &Proc, child: &Proc) {
    executor::changes(Object::Family(parent.slot));
    executor::changes(Object::Family(child.slot));
}

impl Proc {
    /// Sets whether the process inherits the orphans among its descendants. Called under `p_lock`.
    pub(super) fn set_subreaper(&self, on: bool) {
        executor::changes(Object::Process(self.slot));
        self.subreaper.store(on, Ordering::Relaxed);
    }
}

/// The relations, locked for reading; `None` for a process that has no parent.
pub(super) type ReadRelations<'k> = Option<ReadGuard<'k, ProcRelationLock, ()>>;

/// The relations, locked for writing; `None` for a process that has no parent.
pub(super) type WrittenRelations<'k> = Option<WriteGuard<'k, ProcRelationLock, ()>>;

impl Kernel {
    /// Locks the relations for reading if `child` has a parent, and returns the parent.
    pub(super) fn read_parent(&self, child: &Proc) -> (ReadRelations<'_>, Option<&Proc>) {
        let locked = child.links.p_pptr.get().map(|_| self.relations.read(&self.locks));
        let parent = locked.as_ref().and_then(|_| self.parent_in_slab(child));
        (locked, parent)
    }

    /// Like [`Kernel::read_parent`], for changing the relations.
    pub(super) fn write_parent(&self, child: &Proc) -> (WrittenRelations<'_>, Option<&Proc>) {
        let locked = child.links.p_pptr.get().map(|_| self.relations.write(&self.locks));
        let parent = locked.as_ref().and_then(|_| self.parent_in_slab(child));
        (locked, parent)
    }

    fn parent_in_slab(&self, child: &Proc) -> Option<&Proc> {
        child.links.p_pptr.get().map(|slot| self.slab.get(slot))
    }

    /// Returns the handle of `child`'s parent. The parent stays in its slot while the relations are
    /// locked (§5.4).
    pub(super) fn parent_of(&self, child: &Proc) -> Pid {
        let (_relations, parent) = self.read_parent(child);
        parent.map_or(Pid::number_only(0), Proc::pid)
    }

    /// Returns the parent as it was a moment ago; the parent may have changed since.
    pub(super) fn parent_hint(&self, child: &Proc) -> Option<&Proc> {
        executor::looks_at(Object::Family(child.slot));
        self.parent_in_slab(child)
    }

    /// Makes `child` the youngest child of `parent`. Called with the relations locked.
    pub(super) fn link(&self, parent: &Proc, child: &Proc) {
        reach_both(parent, child);
        let younger_end = parent.links.p_cptr.get();
        child.links.p_pptr.set(Some(parent.slot));
        child.links.p_osptr.set(younger_end);
        child.links.p_ysptr.set(None);
        match younger_end {
            Some(older) => self.slab.get(older).links.p_ysptr.set(Some(child.slot)),
            None => parent.links.p_eldest.set(Some(child.slot)),
        }
        parent.links.p_cptr.set(Some(child.slot));
        let changed = u32::from(child.links.changed.load(Ordering::Relaxed));
        parent.links.changed_children.fetch_add(changed, Ordering::Relaxed);
    }

    /// Removes `child` from the children of `parent`, which leaves it without a parent. Called
    /// with the relations locked.
    pub(super) fn unlink(&self, parent: &Proc, child: &Proc) {
        self.detach(parent, child);
        for link in [&child.links.p_pptr, &child.links.p_osptr, &child.links.p_ysptr] {
            link.set(None);
        }
    }

    /// Makes a child of `parent` a child of `reaper`. Called with the relations locked. A
    /// thread that reads the parent without the lock finds a parent at every moment; this
    /// matters because a process without a parent ends without notifying one.
    pub(super) fn adopt(&self, parent: &Proc, reaper: &Proc, child: &Proc) {
        self.detach(parent, child);
        self.link(reaper, child);
        child.is_made_by(0);
    }

    /// Removes `child` from among its siblings.
    fn detach(&self, parent: &Proc, child: &Proc) {
        reach_both(parent, child);
        let (older, younger) = (child.links.p_osptr.get(), child.links.p_ysptr.get());
        match younger {
            Some(slot) => self.slab.get(slot).links.p_osptr.set(older),
            None => parent.links.p_cptr.set(older),
        }
        let changed = u32::from(child.links.changed.load(Ordering::Relaxed));
        parent.links.changed_children.fetch_sub(changed, Ordering::Relaxed);
        match older {
            Some(slot) => self.slab.get(slot).links.p_ysptr.set(younger),
            None => parent.links.p_eldest.set_last(younger),
        }
    }

    /// Sets whether `child` has a change to report. Called with the relations locked.
    pub(super) fn set_changed(&self, parent: &Proc, child: &Proc, changed: bool) {
        reach_both(parent, child);
        if child.links.changed.swap(changed, Ordering::Relaxed) == changed {
            return;
        }
        let count = &parent.links.changed_children;
        if changed {
            count.fetch_add(1, Ordering::Relaxed);
        } else {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns `true` if any child may have a change to report. Called with the relations locked.
    pub(super) fn any_changed(&self, parent: &Proc) -> bool {
        executor::looks_at(Object::Family(parent.slot));
        parent.links.changed_children.load(Ordering::Relaxed) > 0
    }

    /// Returns `true` if `child` is a child of `parent`. Called with the relations locked.
    pub(super) fn is_child(&self, parent: &Proc, child: &Proc) -> bool {
        child.links.p_pptr.get() == Some(parent.slot)
    }

    /// Returns `true` if an exiting process has no children and can inherit none. Needs no lock,
    /// because the process's forks are over, orphans are given only to subreapers, and the thread
    /// that removed its last child has finished with the process. A child that requests tracing by
    /// the process finds it exiting.
    pub(super) fn stays_childless(&self, proc: &Proc) -> bool {
        executor::looks_at(Object::Family(proc.slot));
        executor::looks_at(Object::Process(proc.slot));
        let inherits = self.is_init(proc) || proc.subreaper.load(Ordering::Relaxed);
        !inherits && proc.links.p_eldest.is_unset()
    }

    /// Clears the links of a new process: it has no parent yet, and no change to report.
    pub(super) fn clear_links(&self, proc: &Proc) {
        proc.links.changed.store(false, Ordering::Relaxed);
        proc.links.changed_children.store(0, Ordering::Relaxed);
    }

    /// Returns the children of `parent`, the eldest first. Called with the relations locked. A
    /// child may be unlinked after it was returned.
    pub(super) fn children<'k>(&'k self, parent: &Proc) -> impl Iterator<Item = &'k Proc> {
        let mut next = parent.links.p_eldest.get();
        std::iter::from_fn(move || {
            let child = self.slab.get(next?);
            next = child.links.p_ysptr.get();
            Some(child)
        })
    }
}

//! Parents and children (§5.4, table 2): [`Links`], and the locks over them.
//!
//! `proc_relation_lock` guards the pointers of all processes. In mode `PerProcess` (§9), the
//! parent's family lock guards the parent's list of children and, in each child, the pointers to
//! parent and siblings. The pointers are slot numbers in atomic words, so that a mistake here
//! causes a wrong answer but no invalid access; only the locks keep several pointers consistent.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tontine_unix::Pid;

use super::Kernel;
use super::proc::Proc;
use crate::executor::{self, Object};
use crate::lock::lock_order::{PFamilyLock, ProcRelationLock};
use crate::lock::{BlockingLock, ReadGuard, WriteGuard, write_both};
use crate::mode::LockingMode;

/// The relation pointers of a process.
#[derive(Debug)]
pub(super) struct Links {
    /// The parent.
    p_pptr: FamilyLink,
    /// The youngest child.
    p_cptr: FamilyLink,
    /// The eldest child, with which `wait` begins, as on Linux.
    p_eldest: FamilyLink,
    /// The next younger sibling.
    p_ysptr: FamilyLink,
    /// The next older sibling.
    p_osptr: FamilyLink,
    /// `true` if `wait` has a change of this process to report.
    changed: AtomicBool,
    /// Number of children with a change, so that `wait` need not check thousands of unchanged
    /// children.
    changed_children: AtomicU32,
    /// Guards the list of children in mode `PerProcess`.
    lock: BlockingLock<PFamilyLock, ()>,
}

/// A slot number, or none.
#[derive(Debug)]
struct FamilyLink(AtomicU32);

impl FamilyLink {
    const NONE: u32 = u32::MAX;

    fn get(&self) -> Option<u32> {
        let slot = self.0.load(Ordering::Relaxed);
        (slot != Self::NONE).then_some(slot)
    }

    /// Like [`FamilyLink::set`], but a thread that finds the link unset by [`FamilyLink::is_unset`]
    /// sees all earlier changes.
    fn set_last(&self, slot: Option<u32>) {
        // SYNC childless: pairs with `FamilyLink::is_unset`.
        self.0.store(slot.unwrap_or(Self::NONE), Ordering::Release);
    }

    fn is_unset(&self) -> bool {
        // SYNC childless: pairs with `FamilyLink::set_last`.
        self.0.load(Ordering::Acquire) == Self::NONE
    }

    fn set(&self, slot: Option<u32>) {
        self.0.store(slot.unwrap_or(Self::NONE), Ordering::Relaxed);
    }
}

/// Records a change of the relations of `parent` and `child`, for readers without a lock.
fn reach_both(parent: &Proc, child: &Proc) {
    executor::changes(Object::Family(parent.slot));
    executor::changes(Object::Family(child.slot));
}

impl Links {
    pub(super) fn new(slot: u32) -> Self {
        let unset = || FamilyLink(AtomicU32::new(FamilyLink::NONE));
        Self {
            p_pptr: unset(),
            p_cptr: unset(),
            p_eldest: unset(),
            p_ysptr: unset(),
            p_osptr: unset(),
            changed: AtomicBool::new(false),
            changed_children: AtomicU32::new(0),
            lock: BlockingLock::new(slot, ()),
        }
    }
}

impl Links {
    /// Returns `true` if no thread holds or waits for the family's lock.
    pub(super) fn are_idle(&self) -> bool {
        self.lock.is_idle()
    }
}

/// A guard for reading relations: of all processes, or of one family.
#[must_use]
pub(super) enum Reading<'k> {
    /// No relations: the process has no parent.
    NoParent,
    All {
        _guard: ReadGuard<'k, ProcRelationLock, ()>,
    },
    Family {
        _guard: ReadGuard<'k, PFamilyLock, ()>,
    },
}

/// A guard for changing relations: of all processes, or of one or two families.
#[must_use]
pub(super) enum Writing<'k> {
    /// No relations: the process has no parent.
    NoParent,
    All {
        _guard: WriteGuard<'k, ProcRelationLock, ()>,
    },
    Family {
        _guard: WriteGuard<'k, PFamilyLock, ()>,
    },
    Families {
        _guards: (WriteGuard<'k, PFamilyLock, ()>, Option<WriteGuard<'k, PFamilyLock, ()>>),
    },
}

impl Kernel {
    fn per_process(&self) -> bool {
        self.config.mode == LockingMode::PerProcess
    }

    /// Locks the children of `parent` for reading.
    pub(super) fn read_family<'k>(&'k self, parent: &'k Proc) -> Reading<'k> {
        if self.per_process() {
            Reading::Family { _guard: parent.links.lock.read(&self.locks) }
        } else {
            Reading::All { _guard: self.relations.read(&self.locks) }
        }
    }

    /// Locks the children of `parent` for writing.
    pub(super) fn write_family<'k>(&'k self, parent: &'k Proc) -> Writing<'k> {
        if self.per_process() {
            Writing::Family { _guard: parent.links.lock.write(&self.locks) }
        } else {
            Writing::All { _guard: self.relations.write(&self.locks) }
        }
    }

    /// Locks the children of two processes for writing.
    pub(super) fn write_families<'k>(&'k self, one: &'k Proc, other: &'k Proc) -> Writing<'k> {
        if !self.per_process() {
            Writing::All { _guard: self.relations.write(&self.locks) }
        } else {
            Writing::Families {
                _guards: write_both(&one.links.lock, &other.links.lock, &self.locks),
            }
        }
    }

    /// Locks the children of `child`'s parent for reading. The child keeps that parent until the
    /// guard is dropped.
    pub(super) fn read_parent<'k>(&'k self, child: &Proc) -> (Reading<'k>, Option<&'k Proc>) {
        loop {
            let before = child.links.p_pptr.get();
            let Some(parent) = before.map(|slot| self.slab.get(slot)) else {
                return (Reading::NoParent, None);
            };
            let guard = self.read_family(parent);
            let now = child.links.p_pptr.get();
            if now == before {
                return (guard, Some(parent));
            }
            if !self.per_process() {
                return (guard, now.map(|slot| self.slab.get(slot)));
            }
        }
    }

    /// Like [`Kernel::read_parent`], for changing the parent's children.
    pub(super) fn write_parent<'k>(&'k self, child: &Proc) -> (Writing<'k>, Option<&'k Proc>) {
        loop {
            let before = child.links.p_pptr.get();
            let Some(parent) = before.map(|slot| self.slab.get(slot)) else {
                return (Writing::NoParent, None);
            };
            let guard = self.write_family(parent);
            let now = child.links.p_pptr.get();
            if now == before {
                return (guard, Some(parent));
            }
            if !self.per_process() {
                return (guard, now.map(|slot| self.slab.get(slot)));
            }
        }
    }

    /// Returns the handle of `child`'s parent. The parent stays in its slot while its family is
    /// locked (§5.4).
    pub(super) fn parent_of(&self, child: &Proc) -> Pid {
        let _coarse = self.coarse();
        let (_reading, parent) = self.read_parent(child);
        parent.map_or(Pid::number_only(0), Proc::pid)
    }

    /// Returns the parent as it was a moment ago; the parent may have changed since.
    pub(super) fn parent_hint(&self, child: &Proc) -> Option<&Proc> {
        executor::looks_at(Object::Family(child.slot));
        child.links.p_pptr.get().map(|slot| self.slab.get(slot))
    }

    /// Makes `child` the youngest child of `parent`. Called under the family's lock.
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
    /// under the family's lock.
    pub(super) fn unlink(&self, parent: &Proc, child: &Proc) {
        self.detach(parent, child);
        for link in [&child.links.p_pptr, &child.links.p_osptr, &child.links.p_ysptr] {
            link.set(None);
        }
    }

    /// Makes a child of `parent` a child of `reaper`. Called under the locks of both families. A
    /// thread that reads the parent without these locks finds a parent at every moment; this
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

    /// Sets whether `child` has a change to report. Called under the family's lock.
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

    /// Returns `true` if any child may have a change to report. Called under the family's lock.
    pub(super) fn any_changed(&self, parent: &Proc) -> bool {
        executor::looks_at(Object::Family(parent.slot));
        parent.links.changed_children.load(Ordering::Relaxed) > 0
    }

    /// Returns `true` if `child` is a child of `parent`. Called under the family's lock.
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

    /// Returns the children of `parent`, the eldest first. Called under the family's lock. A child
    /// may be unlinked after it was returned.
    pub(super) fn children<'k>(&'k self, parent: &Proc) -> impl Iterator<Item = &'k Proc> {
        let mut next = parent.links.p_eldest.get();
        std::iter::from_fn(move || {
            let child = self.slab.get(next?);
            next = child.links.p_ysptr.get();
            Some(child)
        })
    }
}

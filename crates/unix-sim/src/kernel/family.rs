//! Who is whose child (§5.4, table 2): [`Links`], and the locks over them.
//!
//! The pointers of all processes are guarded by `proc_relation_lock`; in mode `PerProcess` (§9) by
//! the parent's family lock: it guards the parent's list of children and, in each child, the
//! pointers to parent and siblings. The pointers are slot numbers in atomic words, so that a
//! mistake here is a wrong answer and no wild access; the locks alone make several of them one.

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
    /// Parent.
    p_pptr: Link,
    /// Youngest child.
    p_cptr: Link,
    /// Eldest child: where `wait` begins, as Linux does.
    p_eldest: Link,
    /// Next younger sibling.
    p_ysptr: Link,
    /// Next older sibling.
    p_osptr: Link,
    /// Whether there is something to be told of it by `wait`.
    changed: AtomicBool,
    /// Children of which there is, so that `wait` need not look at thousands of which there is
    /// nothing.
    changed_children: AtomicU32,
    /// Guards the list of children in mode `PerProcess`.
    lock: BlockingLock<PFamilyLock, ()>,
}

/// A slot, or nobody.
#[derive(Debug)]
struct Link(AtomicU32);

impl Link {
    const NOBODY: u32 = u32::MAX;

    fn get(&self) -> Option<u32> {
        let slot = self.0.load(Ordering::Relaxed);
        (slot != Self::NOBODY).then_some(slot)
    }

    /// As [`Link::set`]; who sees by [`Link::is_nobody`] that nobody is left sees all that was
    /// changed before.
    fn set_last(&self, slot: Option<u32>) {
        // SYNC childless: pairs with `Link::is_nobody`.
        self.0.store(slot.unwrap_or(Self::NOBODY), Ordering::Release);
    }

    fn is_nobody(&self) -> bool {
        // SYNC childless: pairs with `Link::set_last`.
        self.0.load(Ordering::Acquire) == Self::NOBODY
    }

    fn set(&self, slot: Option<u32>) {
        self.0.store(slot.unwrap_or(Self::NOBODY), Ordering::Relaxed);
    }
}

/// What both say of their relations changes: who looks without a lock sees it.
fn reach_both(parent: &Proc, child: &Proc) {
    executor::changes(Object::Family(parent.slot));
    executor::changes(Object::Family(child.slot));
}

impl Links {
    pub(super) fn new(slot: u32) -> Self {
        let nobody = || Link(AtomicU32::new(Link::NOBODY));
        Self {
            p_pptr: nobody(),
            p_cptr: nobody(),
            p_eldest: nobody(),
            p_ysptr: nobody(),
            p_osptr: nobody(),
            changed: AtomicBool::new(false),
            changed_children: AtomicU32::new(0),
            lock: BlockingLock::new(slot, ()),
        }
    }
}

impl Links {
    /// Whether nobody has or waits for the family's lock.
    pub(super) fn are_idle(&self) -> bool {
        self.lock.is_idle()
    }
}

/// That relations may be looked at: all, or those of one family.
#[must_use]
pub(super) enum Reading<'k> {
    /// Nothing: who was asked for has no parent.
    Nobody,
    All {
        _guard: ReadGuard<'k, ProcRelationLock, ()>,
    },
    Family {
        _guard: ReadGuard<'k, PFamilyLock, ()>,
    },
}

/// That relations may be changed: all, or those of one family or two.
#[must_use]
pub(super) enum Writing<'k> {
    /// Nothing: who was asked for has no parent.
    Nobody,
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

    /// For looking at the children of `parent`.
    pub(super) fn read_family<'k>(&'k self, parent: &'k Proc) -> Reading<'k> {
        if self.per_process() {
            Reading::Family { _guard: parent.links.lock.read(&self.locks) }
        } else {
            Reading::All { _guard: self.relations.read(&self.locks) }
        }
    }

    /// For changing the children of `parent`.
    pub(super) fn write_family<'k>(&'k self, parent: &'k Proc) -> Writing<'k> {
        if self.per_process() {
            Writing::Family { _guard: parent.links.lock.write(&self.locks) }
        } else {
            Writing::All { _guard: self.relations.write(&self.locks) }
        }
    }

    /// For changing the children of two processes.
    pub(super) fn write_families<'k>(&'k self, one: &'k Proc, other: &'k Proc) -> Writing<'k> {
        if !self.per_process() {
            Writing::All { _guard: self.relations.write(&self.locks) }
        } else {
            Writing::Families {
                _guards: write_both(&one.links.lock, &other.links.lock, &self.locks),
            }
        }
    }

    /// For looking at `child`'s parent, which keeps it until this is dropped.
    pub(super) fn read_parent<'k>(&'k self, child: &Proc) -> (Reading<'k>, Option<&'k Proc>) {
        loop {
            let before = child.links.p_pptr.get();
            let Some(parent) = before.map(|slot| self.slab.get(slot)) else {
                return (Reading::Nobody, None);
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

    /// As [`Kernel::read_parent`], for changing what the parent has of children.
    pub(super) fn write_parent<'k>(&'k self, child: &Proc) -> (Writing<'k>, Option<&'k Proc>) {
        loop {
            let before = child.links.p_pptr.get();
            let Some(parent) = before.map(|slot| self.slab.get(slot)) else {
                return (Writing::Nobody, None);
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

    /// The handle of `child`'s parent, which stays where it is while its family is locked (§5.4).
    pub(super) fn parent_of(&self, child: &Proc) -> Pid {
        let _coarse = self.coarse();
        let (_reading, parent) = self.read_parent(child);
        parent.map_or(Pid::number_only(0), Proc::pid)
    }

    /// The parent as it was a moment ago; it may be another by now.
    pub(super) fn parent_hint(&self, child: &Proc) -> Option<&Proc> {
        executor::looks_at(Object::Family(child.slot));
        child.links.p_pptr.get().map(|slot| self.slab.get(slot))
    }

    /// Makes `child` the youngest child of `parent`. Under the family's lock.
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

    /// Takes `child` from the children of `parent`: it is nobody's. Under the family's lock.
    pub(super) fn unlink(&self, parent: &Proc, child: &Proc) {
        self.detach(parent, child);
        for link in [&child.links.p_pptr, &child.links.p_osptr, &child.links.p_ysptr] {
            link.set(None);
        }
    }

    /// Makes a child of `parent` one of `reaper`'s. Under the locks of both families; whoever looks
    /// without them who the parent is finds one at each moment, for who has none ends as nobody's
    /// child.
    pub(super) fn adopt(&self, parent: &Proc, reaper: &Proc, child: &Proc) {
        self.detach(parent, child);
        self.link(reaper, child);
        child.is_made_by(0);
    }

    /// Takes `child` from among its siblings.
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

    /// There is something to be told of `child`, or no longer. Under the family's lock.
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

    /// Whether there may be something to be told of any child. Under the family's lock.
    pub(super) fn any_changed(&self, parent: &Proc) -> bool {
        executor::looks_at(Object::Family(parent.slot));
        parent.links.changed_children.load(Ordering::Relaxed) > 0
    }

    /// Whether `child` is a child of `parent`. Under the family's lock.
    pub(super) fn is_child(&self, parent: &Proc, child: &Proc) -> bool {
        child.links.p_pptr.get() == Some(parent.slot)
    }

    /// Whether a process that exits has no children, and is nobody who is given any. Under no lock:
    /// its own forks are over, orphans are given to subreapers alone, and whoever took its last
    /// child away is done with it. A child that asks to be traced by it finds it exiting.
    pub(super) fn stays_childless(&self, proc: &Proc) -> bool {
        executor::looks_at(Object::Family(proc.slot));
        executor::looks_at(Object::Process(proc.slot));
        let inherits = self.is_init(proc) || proc.subreaper.load(Ordering::Relaxed);
        !inherits && proc.links.p_eldest.is_nobody()
    }

    /// A new process is nobody's yet, and there is nothing to be told of it.
    pub(super) fn clear_links(&self, proc: &Proc) {
        proc.links.changed.store(false, Ordering::Relaxed);
        proc.links.changed_children.store(0, Ordering::Relaxed);
    }

    /// The children of `parent`, the eldest first. Under the family's lock; a child may be unlinked
    /// when it has been seen.
    pub(super) fn children<'k>(&'k self, parent: &Proc) -> impl Iterator<Item = &'k Proc> {
        let mut next = parent.links.p_eldest.get();
        std::iter::from_fn(move || {
            let child = self.slab.get(next?);
            next = child.links.p_ysptr.get();
            Some(child)
        })
    }
}

//! The relation pointers of a process (table 2): [`Links`]. [`family`](super::family) reads and
//! changes them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The relation pointers of a process.
pub(super) struct Links {
    /// The parent.
    pub(super) p_pptr: FamilyLink,
    /// The youngest child.
    pub(super) p_cptr: FamilyLink,
    /// The eldest child, with which `wait` begins, as on Linux.
    pub(super) p_eldest: FamilyLink,
    /// The next younger sibling.
    pub(super) p_ysptr: FamilyLink,
    /// The next older sibling.
    pub(super) p_osptr: FamilyLink,
    /// `true` if `wait` has a change of this process to report.
    pub(super) changed: AtomicBool,
    /// Number of children with a change, so that `wait` need not check thousands of unchanged
    /// children.
    pub(super) changed_children: AtomicU32,
}

/// A slot number, or none.
pub(super) struct FamilyLink(AtomicU32);

impl FamilyLink {
    const NONE: u32 = u32::MAX;

    pub(super) fn get(&self) -> Option<u32> {
        let slot = self.0.load(Ordering::Relaxed);
        (slot != Self::NONE).then_some(slot)
    }

    /// Like [`FamilyLink::set`], but a thread that finds the link unset by [`FamilyLink::is_unset`]
    /// sees all earlier changes.
    pub(super) fn set_last(&self, slot: Option<u32>) {
        // SYNC childless: pairs with `FamilyLink::is_unset`.
        self.0.store(slot.unwrap_or(Self::NONE), Ordering::Release);
    }

    pub(super) fn is_unset(&self) -> bool {
        // SYNC childless: pairs with `FamilyLink::set_last`.
        self.0.load(Ordering::Acquire) == Self::NONE
    }

    pub(super) fn set(&self, slot: Option<u32>) {
        self.0.store(slot.unwrap_or(Self::NONE), Ordering::Relaxed);
    }
}

impl Links {
    pub(super) fn new() -> Self {
        let unset = || FamilyLink(AtomicU32::new(FamilyLink::NONE));
        Self {
            p_pptr: unset(),
            p_cptr: unset(),
            p_eldest: unset(),
            p_ysptr: unset(),
            p_osptr: unset(),
            changed: AtomicBool::new(false),
            changed_children: AtomicU32::new(0),
        }
    }
}

//! Recording of the objects that the running fiber reaches: [`looks_at`], [`changes`].
//!
//! Nothing is recorded unless a chooser compares steps or a model charges for cache lines.
//! [`footprint`] defines which steps have an object in common.
//!
//! [`footprint`]: super::footprint

use super::footprint::{NO_SLOT, Object};
use super::here::HERE;
use super::modelled;

/// Records that the running fiber reads an object.
#[inline]
pub(crate) fn looks_at(object: Object) {
    if is_noted() {
        reach(object, false);
    }
}

/// Records that the running fiber changes an object, or may change it.
#[inline]
pub(crate) fn changes(object: Object) {
    if is_noted() {
        reach(object, true);
    }
}

/// Records that the running fiber sleeps, or that it wakes the fiber with this number.
#[inline]
pub(super) fn reach_fiber(id: u32) {
    if is_noted() {
        HERE.with(|here| here.reaching.add_fiber(id));
    }
}

/// Returns `true` if the executor uses the records.
#[inline]
fn is_noted() -> bool {
    HERE.with(|here| here.notes.get())
}

#[inline]
fn reach(object: Object, changes: bool) {
    let bit = object.bit();
    note(bit, if changes { bit } else { 0 }, object.slot());
}

/// Records bits and a slot. Not inlined, so that the call site tests only one word if nothing is
/// recorded.
#[cold]
#[inline(never)]
fn note(looked_at: u64, changed: u64, slot: u32) {
    HERE.with(|here| here.reaching.add(looked_at, changed));
    if slot != NO_SLOT {
        modelled::reach_words(slot, changed != 0);
    }
}

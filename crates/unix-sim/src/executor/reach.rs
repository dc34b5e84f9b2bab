//! Notes what the running fiber reaches: [`looks_at`], [`changes`].
//!
//! Nothing is noted unless a chooser compares steps or a model charges for lines. What two steps
//! have in common is [`footprint`]'s.
//!
//! [`footprint`]: super::footprint

use super::footprint::{NO_SLOT, Object};
use super::here::HERE;
use super::modelled;

/// The running fiber looks at something.
#[inline]
pub(crate) fn looks_at(object: Object) {
    if is_noted() {
        reach(object, false);
    }
}

/// It changes something, or may.
#[inline]
pub(crate) fn changes(object: Object) {
    if is_noted() {
        reach(object, true);
    }
}

/// It sleeps, or wakes the fiber with this number.
#[inline]
pub(super) fn reach_fiber(id: u32) {
    if is_noted() {
        HERE.with(|here| here.reaching.add_fiber(id));
    }
}

/// Whether somebody is told what was reached: nobody else wants to know.
#[inline]
fn is_noted() -> bool {
    HERE.with(|here| here.notes.get())
}

#[inline]
fn reach(object: Object, changes: bool) {
    let bit = object.bit();
    note(bit, if changes { bit } else { 0 }, object.slot());
}

/// Out of line: where nothing is noted, a look at one word is all that is in the way.
#[cold]
#[inline(never)]
fn note(looked_at: u64, changed: u64, slot: u32) {
    HERE.with(|here| here.reaching.add(looked_at, changed));
    if slot != NO_SLOT {
        modelled::reach_words(slot, changed != 0);
    }
}

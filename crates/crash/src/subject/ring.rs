//! The ring that four subjects share: slots, and two counts that say which of them are full.
//!
//! Plain memory, as in every textbook: whoever calls [`Ring::push`] or [`Ring::pop`] holds the
//! subject's own lock. What each lock leaves behind when its holder dies is what the subjects
//! differ in.

#![allow(
    unsafe_code,
    reason = "plain memory shared between processes, guarded by the callers' locks"
)]

use crate::message::{LENGTH, Message};

/// Messages that the ring holds.
pub(super) const SLOTS: usize = 4;

/// Zero bytes are an empty ring.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Ring {
    /// Messages ever written.
    pub(super) written: u64,
    /// Messages ever read.
    pub(super) read: u64,
    slots: [Message; SLOTS],
}

impl Ring {
    /// Whether nothing is in it.
    ///
    /// # Safety
    /// `ring` is mapped, and the caller holds the lock that guards it.
    pub(super) unsafe fn is_empty(ring: *const Self) -> bool {
        // SAFETY: by the caller.
        unsafe { (*ring).written == (*ring).read }
    }

    /// Whether nothing more goes into it.
    ///
    /// # Safety
    /// As for [`Ring::is_empty`].
    pub(super) unsafe fn is_full(ring: *const Self) -> bool {
        // SAFETY: by the caller.
        unsafe { (*ring).written.wrapping_sub((*ring).read) >= SLOTS as u64 }
    }

    /// Copies a message in, then counts it: killed in between, it was never there.
    ///
    /// # Safety
    /// As for [`Ring::is_empty`]; the ring is not full.
    pub(super) unsafe fn push(ring: *mut Self, message: &Message) {
        // SAFETY: by the caller.
        unsafe {
            let written = (*ring).written;
            Self::write(ring, written, message);
            (*ring).written = written.wrapping_add(1);
        }
    }

    /// Copies a message out, then counts it: killed in between, it is there still.
    ///
    /// # Safety
    /// As for [`Ring::is_empty`]; the ring is not empty.
    pub(super) unsafe fn pop(ring: *mut Self, into: &mut Message) -> usize {
        // SAFETY: by the caller.
        unsafe {
            let slot = (*ring).read as usize % SLOTS;
            let from = (&raw const (*ring).slots).cast::<Message>().add(slot);
            std::ptr::copy_nonoverlapping(from, into, 1);
            (*ring).read = (*ring).read.wrapping_add(1);
        }
        LENGTH
    }

    /// Copies a message into the slot for number `written`, and counts nothing.
    ///
    /// # Safety
    /// As for [`Ring::push`].
    pub(super) unsafe fn write(ring: *mut Self, written: u64, message: &Message) {
        // SAFETY: by the caller; the slot is one of the array's.
        unsafe {
            let slots = (&raw mut (*ring).slots).cast::<Message>();
            std::ptr::copy_nonoverlapping(message, slots.add(written as usize % SLOTS), 1);
        }
    }
}

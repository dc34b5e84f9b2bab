//! A message written in place: [`Reservation`].

#![allow(unsafe_code, reason = "a view of our own memory")]

use std::ops::{Deref, DerefMut};

use super::outbound::OutboundLane;
use crate::error::Result;
use crate::lane::writer::Place;

/// Room for one message, written in place. Dropped without [`Reservation::commit`], nothing was
/// sent.
///
/// Its bytes belong to the process that reserved them.
///
/// # Panics
/// A forked child that looks at the bytes panics: the memory is not there. A slice of them that was
/// taken before the fork must not be touched in the child.
#[derive(Debug)]
pub struct Reservation<'a> {
    lane: &'a mut OutboundLane,
    place: Place,
    length: usize,
}

impl<'a> Reservation<'a> {
    /// The room of `length` bytes that was just found.
    pub(super) fn new(lane: &'a mut OutboundLane, length: usize) -> Self {
        let place = lane.reserve(length);
        Self { lane, place, length }
    }

    /// Sends what stands in it.
    ///
    /// Where the reader has died since, and the sender waits for its successor
    /// ([`OnDeath::WaitForSuccessor`](super::OnDeath::WaitForSuccessor)), the message stays in the
    /// lane and is handed over with the rest, at the sender's next call.
    ///
    /// # Errors
    /// [`Error::OwnerDied`](crate::Error::OwnerDied) where the reader died meanwhile,
    /// [`Error::Closed`](crate::Error::Closed) where it closed;
    /// [`Error::Forked`](crate::Error::Forked); what else [`Sender::send`](super::Sender::send)
    /// says. Nothing was sent then.
    #[inline]
    pub fn commit(self) -> Result<()> {
        self.lane.check()?;
        if !self.lane.is_open() {
            self.lane.look_before_commit()?;
        }
        self.lane.publish(self.place, self.length);
        Ok(())
    }

    /// Where its bytes are.
    fn start(&self) -> *mut u8 {
        assert!(
            self.lane.check().is_ok(),
            "a Reservation was looked at in a forked child, where its memory is not mapped; \
             reserve in the child, by a Sender that was connected there"
        );
        let (region, at) = self.lane.payload();
        // SAFETY: the place of a message that fits lies inside the mapping, which is there: this is
        // the process that made it.
        unsafe { region.base().add(at) }.as_ptr()
    }
}

impl Deref for Reservation<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the room was found to fit, and the sender is borrowed: nobody else writes it or
        // goes on elsewhere. What an earlier lap left there are initialised bytes.
        unsafe { std::slice::from_raw_parts(self.start(), self.length) }
    }
}

impl DerefMut for Reservation<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.length) }
    }
}

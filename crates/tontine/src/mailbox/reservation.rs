//! A message written in place: [`Reservation`].

#![allow(unsafe_code, reason = "a view of our own memory")]

use std::ops::{Deref, DerefMut};

use super::outbound::Joined;
use super::sender::Sender;
use crate::error::Result;

/// Room for one message, written in place. Dropped without [`Reservation::commit`], nothing was
/// sent.
#[derive(Debug)]
pub struct Reservation<'a> {
    pub(super) sender: &'a mut Sender,
    pub(super) length: usize,
}

impl Reservation<'_> {
    /// Sends what stands in it.
    ///
    /// # Errors
    /// The reader died or closed meanwhile, and nothing was sent;
    /// [`Error::Forked`](crate::Error::Forked).
    #[inline]
    pub fn commit(self) -> Result<()> {
        self.sender.check()?;
        if !self.sender.connection.joined.as_ref().is_none_or(Joined::is_open) {
            // Nothing is given back now: the message stands in the chunk.
            self.sender.look_for_end()?;
        }
        self.sender.writer.publish(self.length);
        self.sender.published();
        Ok(())
    }
}

impl Deref for Reservation<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let writer = &self.sender.writer;
        // SAFETY: the room was found to fit; nobody else writes it, and nobody publishes it while
        // the sender is borrowed. What an earlier lap left there are initialised bytes.
        unsafe {
            let start = writer.region().base().add(writer.payload_at());
            std::slice::from_raw_parts(start.as_ptr(), self.length)
        }
    }
}

impl DerefMut for Reservation<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let writer = &self.sender.writer;
        // SAFETY: as above; `self` is borrowed mutably.
        unsafe {
            let start = writer.region().base().add(writer.payload_at());
            std::slice::from_raw_parts_mut(start.as_ptr(), self.length)
        }
    }
}

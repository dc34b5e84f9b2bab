//! A message written in place: [`Reservation`].

#![allow(unsafe_code, reason = "a view of our own memory")]

use std::ops::{Deref, DerefMut};

use super::joined::Joined;
use super::sender::Sender;
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
    sender: &'a mut Sender,
    place: Place,
    length: usize,
}

impl<'a> Reservation<'a> {
    /// The room of `length` bytes that `sender` has just found.
    pub(super) fn new(sender: &'a mut Sender, length: usize) -> Self {
        assert!(sender.writer.fits(length));
        let place = sender.writer.place();
        Self { sender, place, length }
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
    /// [`Error::Forked`](crate::Error::Forked); what else [`Sender::send`] says. Nothing was sent
    /// then.
    #[inline]
    pub fn commit(self) -> Result<()> {
        self.sender.check()?;
        if !self.sender.connection.joined.as_ref().is_some_and(Joined::is_open) {
            self.sender.look_before_commit()?;
        }
        self.sender.writer.publish(self.place, self.length);
        self.sender.published();
        Ok(())
    }

    /// Where its bytes are.
    fn start(&self) -> *mut u8 {
        assert!(
            self.sender.check().is_ok(),
            "a Reservation was looked at in a forked child, where its memory is not mapped; \
             reserve in the child, by a Sender that was connected there"
        );
        let writer = &self.sender.writer;
        // SAFETY: the place of a message that fits lies inside the mapping, which is there: this is
        // the process that made it.
        unsafe { writer.region().base().add(writer.payload_at()) }.as_ptr()
    }
}

impl Sender {
    /// Whether the reader takes what was reserved. Only looks: what was written stands in the
    /// newest chunk, so nothing is given back here, and no successor looked for.
    #[cold]
    #[inline(never)]
    fn look_before_commit(&mut self) -> Result<()> {
        self.listen();
        if self.ended.is_none() {
            self.look_at_reader();
        }
        match &self.ended {
            Some(ended) if self.is_waited_out(ended) => Ok(()),
            Some(ended) => Err(ended.clone()),
            None => Ok(()),
        }
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

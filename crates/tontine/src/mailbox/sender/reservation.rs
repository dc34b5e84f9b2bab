//! Messages written in place: [`Reservation`], and the functions of [`Sender`] that return it.

#![allow(unsafe_code, reason = "a view of our own memory")]

use std::ops::{Deref, DerefMut};

use super::Sender;
use super::outbound::OutboundLane;
use super::wait_limit::WaitLimit;
use crate::error::Result;
use crate::lane::writer::RecordSlot;

/// Space in a lane for one message, to be written in place; dereferences to its bytes.
///
/// [`Sender::reserve`] returns it. [`Reservation::commit`] sends the message; a reservation that is
/// dropped without a commit sends nothing. The bytes belong to the process that reserved them, and
/// initially contain remains of an earlier message.
///
/// # Panics
/// Dereferencing panics in a forked child, in which the lane is not mapped. The child must not
/// access a slice of the bytes that was taken before the fork.
///
/// # Examples
/// ```
/// use tontine::mailbox::{Mailbox, Sender};
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let mut mailbox = Mailbox::bind(&path)?;
/// let mut sender = Sender::connect(&path)?;
///
/// let mut space = sender.reserve(4)?;
/// space.copy_from_slice(b"lost");
/// drop(space); // sends nothing
///
/// let mut space = sender.reserve(4)?;
/// space.copy_from_slice(b"sent");
/// space.commit()?;
/// assert_eq!(&*mailbox.recv()?, b"sent");
/// # Ok::<(), tontine::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a reservation sends nothing until `commit`"]
pub struct Reservation<'a> {
    lane: &'a mut OutboundLane,
    place: RecordSlot,
    length: usize,
}

impl Sender {
    /// Reserves space in the lane for a message of `length` bytes, to be written in place; blocks
    /// while the lane has no free space for it.
    ///
    /// # Errors
    /// The errors of [`Sender::send`], in particular [`Error::OwnerDied`](crate::Error::OwnerDied),
    /// [`Error::Closed`](crate::Error::Closed) and [`Error::TooLarge`](crate::Error::TooLarge).
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{Mailbox, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Sender::connect(&path)?;
    /// let mut space = sender.reserve(8)?;
    /// space.copy_from_slice(&42_u64.to_le_bytes());
    /// space.commit()?;
    /// assert_eq!(*mailbox.recv()?, 42_u64.to_le_bytes());
    /// # Ok::<(), tontine::Error>(())
    /// ```
    #[inline]
    pub fn reserve(&mut self, length: usize) -> Result<Reservation<'_>> {
        if !self.lane.has_space(length) {
            self.make_space(length, &WaitLimit::Endless)?;
        }
        Ok(Reservation::new(&mut self.lane, length))
    }

    /// Reserves space like [`Sender::reserve`], without blocking.
    ///
    /// # Errors
    /// [`Error::WouldBlock`](crate::Error::WouldBlock) if the lane has no free space now; otherwise
    /// the errors of [`Sender::reserve`].
    #[inline]
    pub fn try_reserve(&mut self, length: usize) -> Result<Reservation<'_>> {
        if !self.lane.has_space(length) {
            self.make_space(length, &WaitLimit::None)?;
        }
        Ok(Reservation::new(&mut self.lane, length))
    }
}

impl<'a> Reservation<'a> {
    /// Wraps the space of `length` bytes that was just found.
    fn new(lane: &'a mut OutboundLane, length: usize) -> Self {
        let place = lane.reserve(length);
        Self { lane, place, length }
    }

    /// Sends the message that was written to the reserved space.
    ///
    /// If the receiver has died since the reservation, and the sender waits for its successor
    /// ([`OnDeath::WaitForSuccessor`](crate::mailbox::OnDeath::WaitForSuccessor)), the message
    /// stays in the lane, and the sender's next call hands it over with the others.
    ///
    /// # Errors
    /// Nothing was sent if `commit` fails.
    ///
    /// - [`Error::OwnerDied`](crate::Error::OwnerDied) if the receiver has died since the
    ///   reservation.
    /// - [`Error::Closed`](crate::Error::Closed) if the receiver has closed the mailbox since then.
    /// - [`Error::Forked`](crate::Error::Forked) in a forked child.
    /// - The error of [`Sender::send`] if the receiver has refused the lane or broken the protocol
    ///   since then.
    #[inline]
    pub fn commit(self) -> Result<()> {
        self.lane.check()?;
        if !self.lane.is_open() {
            self.lane.look_before_commit()?;
        }
        self.lane.publish(self.place, self.length);
        Ok(())
    }

    /// Returns the address of the first byte.
    fn start(&self) -> *mut u8 {
        assert!(
            self.lane.check().is_ok(),
            "a Reservation was dereferenced in a forked child, where its memory is not mapped; \
             reserve in the child, with a Sender that was connected there"
        );
        let (region, at) = self.lane.payload();
        // SAFETY: the slot of a message that fits is inside the mapping, and the mapping exists
        // because this is the process that made it.
        unsafe { region.base().add(at) }.as_ptr()
    }
}

impl Deref for Reservation<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the space was found to fit, and the sender is borrowed, so no other code writes
        // to it or continues the lane elsewhere. All its bytes are initialised, by an earlier lap
        // or to zero.
        unsafe { std::slice::from_raw_parts(self.start(), self.length) }
    }
}

impl DerefMut for Reservation<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.length) }
    }
}

//! What a receiver gets: [`Message`], [`InPlace`].

#![allow(unsafe_code, reason = "the view that `recv_in_place` promises")]

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::error::Peer;

/// Names a lane of a mailbox for as long as the mailbox lives; never used again for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SenderId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl SenderId {
    /// The same as one number, for what has only numbers: a log, a table in C.
    pub fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }
}

impl fmt::Display for SenderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

/// A message, copied out of shared memory. The next call of a `recv` acknowledges it.
#[derive(Debug)]
pub struct Message<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) sender: SenderId,
    pub(super) peer: Peer,
}

impl Message<'_> {
    /// The lane that it came by.
    pub fn sender(&self) -> SenderId {
        self.sender
    }

    /// The process that sent it, as the kernel named it when it connected.
    pub fn peer(&self) -> Peer {
        self.peer
    }
}

impl Deref for Message<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// A message where the sender wrote it: no copy, and no protection from a sender that goes on
/// writing.
#[derive(Debug)]
pub struct InPlace<'a> {
    pub(super) start: NonNull<u8>,
    pub(super) length: usize,
    pub(super) sender: SenderId,
    pub(super) peer: Peer,
    pub(super) mailbox: std::marker::PhantomData<&'a mut [u8]>,
}

impl InPlace<'_> {
    /// The lane that it came by.
    pub fn sender(&self) -> SenderId {
        self.sender
    }

    /// The process that sent it, as the kernel named it when it connected.
    pub fn peer(&self) -> Peer {
        self.peer
    }
}

impl Deref for InPlace<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes lie in a mapping that the borrowed mailbox holds, checked when found;
        // that the sender changes them no more is what the caller of `recv_in_place` vouched for.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

//! Received messages: [`Message`], copied, and [`InPlace`], in the sender's memory.

#![allow(unsafe_code, reason = "the view that `recv_in_place` promises")]

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::error::Peer;

/// The identifier of a lane, and so of one connected [`Sender`](crate::mailbox::Sender). Unique for
/// as long as its mailbox exists.
///
/// A process may have several lanes, and process ids are reused; a `SenderId` is never reused.
///
/// # Examples
/// ```
/// use tontine::mailbox::{Mailbox, Sender};
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let mut mailbox = Mailbox::bind(&path)?;
/// let (mut one, mut two) = (Sender::connect(&path)?, Sender::connect(&path)?);
/// one.send(b"first")?;
/// let first = mailbox.recv()?.sender();
/// two.send(b"second")?;
/// assert_ne!(mailbox.recv()?.sender(), first);
/// assert_eq!(mailbox.is_alive(first), Some(true));
/// # Ok::<(), tontine::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SenderId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl SenderId {
    /// Returns the identifier as one number, for logs and for tables in C.
    pub fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// Returns the identifier with this [`number`](SenderId::number).
    pub fn from_number(number: u64) -> Self {
        Self { slot: number as u32, generation: (number >> 32) as u32 }
    }
}

impl fmt::Display for SenderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

/// A received message, copied out of shared memory; dereferences to its bytes.
///
/// The next receiving call acknowledges the message; [`Mailbox::ack`](super::Mailbox::ack)
/// acknowledges it earlier, and [`Mailbox::requeue`](super::Mailbox::requeue) marks it as unread.
///
/// # Examples
/// ```
/// use tontine::mailbox::{Mailbox, Sender};
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let mut mailbox = Mailbox::bind(&path)?;
/// let mut sender = Sender::connect(&path)?;
/// sender.send(b"hello")?;
///
/// let message = mailbox.recv()?;
/// assert_eq!(message.len(), 5);
/// assert!(message.starts_with(b"hel"));
/// println!("lane {}, {}", message.sender(), message.peer());
/// # Ok::<(), tontine::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the next receiving call acknowledges this message"]
pub struct Message<'a> {
    /// The mailbox's copy buffer, which holds this message.
    pub(super) bytes: &'a mut Vec<u8>,
    pub(super) sender: SenderId,
    pub(super) peer: Peer,
    pub(super) redelivered: u32,
}

impl Message<'_> {
    /// Returns the identifier of the lane on which the message arrived.
    pub fn sender(&self) -> SenderId {
        self.sender
    }

    /// Returns the process that sent the message, as the kernel identified it when the process
    /// connected.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the number of owners of the address that may have received the message before: 0 if
    /// it is certainly received for the first time.
    ///
    /// A receiver that dies, or closes the mailbox, before it acknowledges a message leaves the
    /// message to its successor, which cannot know whether its predecessor died *because of* it.
    /// Count it as a suspect when several owners may have received it, and set it aside before it
    /// ends the next one. This mailbox counts too if it has put the message back
    /// ([`Mailbox::requeue`](super::Mailbox::requeue)).
    ///
    /// The count is never too low. It is too high if an owner died after it had turned to the
    /// message's lane and before it received the message. Messages that a sender takes back and
    /// sends again, and messages that a gateway brings from another host, begin at 0 again.
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{Mailbox, OnDeath, Options};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Options::new().on_death(OnDeath::WaitThroughRestarts).connect(&path)?;
    /// sender.send(b"poison")?;
    /// assert_eq!(mailbox.recv()?.redelivered(), 0);
    /// mailbox.requeue();
    /// drop(mailbox); // or its process dies
    ///
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// sender.service()?; // hands the message over
    /// let message = mailbox.recv()?;
    /// assert_eq!((&*message, message.redelivered()), (&b"poison"[..], 1));
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn redelivered(&self) -> u32 {
        self.redelivered
    }

    /// Converts the message into its bytes, without another copy, unless the mailbox's buffer is
    /// more than twice as long as the message.
    ///
    /// The buffer that the mailbox has copied the message to is returned, and the mailbox allocates
    /// another for its next message. The message stays unacknowledged until the next receiving
    /// call.
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{Mailbox, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Sender::connect(&path)?;
    /// sender.send(b"one")?;
    /// sender.send(b"two")?;
    ///
    /// let one: Vec<u8> = mailbox.recv()?.into_vec();
    /// let two = mailbox.recv()?.into_vec();
    /// assert_eq!((&one[..], &two[..]), (&b"one"[..], &b"two"[..]));
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn into_vec(self) -> Vec<u8> {
        if self.bytes.capacity() / 2 > self.bytes.len() {
            self.bytes.clone()
        } else {
            std::mem::take(self.bytes)
        }
    }
}

impl Deref for Message<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// A received message in the sender's memory, without a copy; dereferences to its bytes.
///
/// [`Mailbox::recv_in_place`](super::Mailbox::recv_in_place) returns it, and is unsafe: a hostile
/// sender can change the bytes while they are read. The next receiving call acknowledges the
/// message.
///
/// # Examples
/// ```
/// use tontine::mailbox::{Mailbox, Sender};
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let mut mailbox = Mailbox::bind(&path)?;
/// let mut sender = Sender::connect(&path)?;
/// sender.send(&[7; 1000])?;
///
/// // SAFETY: only this program's own senders know the path, and they use this library.
/// let message = unsafe { mailbox.recv_in_place()? };
/// assert!(message.iter().all(|byte| *byte == 7));
/// # Ok::<(), tontine::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the next receiving call acknowledges this message"]
pub struct InPlace<'a> {
    pub(super) start: NonNull<u8>,
    pub(super) length: usize,
    pub(super) sender: SenderId,
    pub(super) peer: Peer,
    pub(super) redelivered: u32,
    pub(super) mailbox: std::marker::PhantomData<&'a mut [u8]>,
}

impl InPlace<'_> {
    /// Returns the identifier of the lane on which the message arrived.
    pub fn sender(&self) -> SenderId {
        self.sender
    }

    /// Returns the process that sent the message, as the kernel identified it when the process
    /// connected.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the number of owners of the address that may have received the message before, like
    /// [`Message::redelivered`].
    pub fn redelivered(&self) -> u32 {
        self.redelivered
    }
}

impl Deref for InPlace<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are in a mapping that the borrowed mailbox holds, as was checked when
        // the message was found. The caller of `recv_in_place` guarantees that the sender no longer
        // changes them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

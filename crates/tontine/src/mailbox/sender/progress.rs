//! The progress of a lane at its sender: positions, messages in doubt, and the relay's reports.
//!
//! The calls are methods of [`Sender`]; [`Unread`] separates the messages that a receiver may have
//! processed from the others. Neighbours: [`super`] contains the calls that send,
//! [`crate::mailbox::receiver::relay`] the receiver that reads ahead of its acknowledgements.

use super::Sender;
use super::outbound::OutboundLane;
use crate::error::{Error, Peer, Result};

/// The messages that a receiver did not acknowledge before it ended, in the order in which they
/// were sent.
///
/// See [`Sender::take_unread_parts`] for an example.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unread {
    /// Messages that a receiver may have processed without acknowledging them.
    pub in_doubt: Vec<Vec<u8>>,
    /// Messages that no receiver processed.
    pub unsent: Vec<Vec<u8>>,
}

/// An iterator that removes the messages that a receiver did not acknowledge from the lane.
///
/// [`Sender::take_unread_iter`] returns it. The messages that it did not return stay in the lane.
#[derive(Debug)]
#[must_use = "the iterator removes a message from the lane when it returns the message"]
pub struct UnreadIter<'a>(&'a mut OutboundLane);

impl Iterator for UnreadIter<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        // The iterator may be used in a child that the program forked meanwhile, where the lane is
        // not mapped.
        self.0.check().ok()?;
        self.0.take_back_first()
    }
}

impl std::iter::FusedIterator for UnreadIter<'_> {}

impl Sender {
    /// Returns the process that owns the mailbox. Unlike [`Sender::peer`], it is known before that
    /// process has accepted the connection, unless the lane was opened over a socket. Before a
    /// mailbox at a [passed](crate::mailbox::Options::listen) socket has accepted the connection,
    /// the owner is the process that called `listen`.
    pub fn owner(&self) -> Option<Peer> {
        let owner = self.lane.connection.peer();
        (owner != Peer::UNKNOWN).then_some(owner)
    }

    /// Returns the lane's position after the last message that was sent: the number of bytes in the
    /// lane since its beginning, headers and padding included.
    ///
    /// Once [`Sender::acked`] has reached this position, the receiver has acknowledged the message.
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
    /// let one = sender.sent();
    /// sender.send(b"two")?;
    ///
    /// assert_eq!(&*mailbox.recv()?, b"one");
    /// mailbox.ack();
    /// assert_eq!(sender.acked(), one);
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn sent(&self) -> u64 {
        self.lane.writer.tail()
    }

    /// Returns the position up to which the receiver has acknowledged the lane. If the receiver has
    /// ended, returns its last position.
    ///
    /// Also reverts [`Sender::arm_acked`], and reads the receiver's control messages. In a forked
    /// child, returns the position that was last known at the fork.
    pub fn acked(&mut self) -> u64 {
        if self.lane.check().is_ok() {
            self.disarm();
            self.lane.listen();
            // If the position is invalid, the last accepted position stays valid.
            let _ = self.lane.refresh();
        }
        self.lane.writer.acknowledged()
    }

    /// Returns the number of messages that the receiver has not acknowledged; counts them one by
    /// one. Public for the Python binding.
    #[doc(hidden)]
    pub fn unread_count(&mut self) -> usize {
        self.acked();
        self.lane.writer.unread_before(u64::MAX)
    }

    /// Prepares for waiting on the descriptor until the receiver acknowledges more than everything
    /// before `position`.
    ///
    /// Returns `true` if the receiver has acknowledged nothing after `position`: wait until the
    /// descriptor is readable, as after [`Sender::arm`]. Returns `false` if it has: call
    /// [`Sender::acked`]. Arm again before each wait. A receiver reports several acknowledgements
    /// at once, like the free space that they create.
    ///
    /// # Errors
    /// The errors of [`Sender::send`] that end a lane, in particular [`Error::OwnerDied`] and
    /// [`Error::Closed`]. [`Sender::acked`] then returns the final position.
    ///
    /// # Examples
    /// ```
    /// use rustix::event::{PollFd, PollFlags, Timespec, poll};
    /// use tontine::mailbox::{Mailbox, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Sender::connect(&path)?;
    /// sender.send(b"hello")?;
    /// let receiver = std::thread::spawn(move || {
    ///     mailbox.recv().map(|message| message.len())?;
    ///     mailbox.ack();
    ///     Ok::<_, tontine::Error>(mailbox)
    /// });
    /// while sender.acked() < sender.sent() {
    ///     let acked = sender.acked();
    ///     if sender.arm_acked(acked)? {
    ///         let half_a_second = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
    ///         let mut fds = [PollFd::new(&sender, PollFlags::IN)]; // and your own
    ///         let _ = poll(&mut fds, Some(&half_a_second));
    ///     }
    /// }
    /// # receiver.join().unwrap()?;
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn arm_acked(&mut self, position: u64) -> Result<bool> {
        self.wait.arm_for_ack(&mut self.lane, position)
    }

    /// Returns `true` while a relay reports that the remote host has not answered for some time.
    ///
    /// The lane still accepts messages until it is full. `false` if the receiver is not a relay.
    pub fn is_suspected(&self) -> bool {
        self.lane.connection.open().is_some_and(|joined| joined.is_suspected())
    }

    /// Removes and returns, in the order in which they were sent, the messages that a dead or
    /// closed receiver did not acknowledge.
    ///
    /// A receiver may have acted on the first of these messages and died before it acknowledged it;
    /// through a relay, on more of them ([`Sender::take_unread_parts`] tells which).
    /// Later calls on this sender still return the error that they returned before (`OwnerDied`,
    /// `Closed`).
    ///
    /// # Errors
    /// - [`Error::WouldBlock`] while the receiver is alive, since it may be reading the messages.
    /// - [`Error::Forked`] in a forked child.
    ///
    /// # Examples
    /// ```
    /// use tontine::{Error, mailbox::{Mailbox, Sender}};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Sender::connect(&path)?;
    /// for message in [b"one", b"two", b"six"] {
    ///     sender.send(message)?;
    /// }
    /// assert_eq!(&*mailbox.recv()?, b"one");
    /// assert_eq!(sender.take_unread(), Err(Error::WouldBlock));
    ///
    /// mailbox.close(); // acknowledges "one"
    /// assert_eq!(sender.take_unread()?, [b"two", b"six"]);
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn take_unread(&mut self) -> Result<Vec<Vec<u8>>> {
        self.lane.check()?;
        self.lane.take_back().map(|(unread, _)| unread).ok_or(Error::WouldBlock)
    }

    /// Returns an iterator that removes and returns, in the order in which they were sent, the
    /// messages that a dead or closed receiver did not acknowledge: one at a time, so that they
    /// need not fit into memory a second time.
    ///
    /// A message leaves the lane when the iterator returns it. If the iterator is dropped before it
    /// has returned `None`, no message is lost: the others stay in the lane, where
    /// [`Sender::take_unread`] or another iterator finds them, or the next owner of the address
    /// receives them ([`OnDeath`](crate::mailbox::OnDeath)). As with [`Sender::take_unread`], a
    /// receiver may have acted on the first message.
    ///
    /// # Errors
    /// - [`Error::WouldBlock`] while the receiver is alive.
    /// - [`Error::Forked`] in a forked child.
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{Mailbox, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Sender::connect(&path)?;
    /// for message in [b"one", b"two", b"six"] {
    ///     sender.send(message)?;
    /// }
    /// mailbox.close();
    ///
    /// assert_eq!(sender.take_unread_iter()?.next().as_deref(), Some(&b"one"[..]));
    /// assert_eq!(sender.take_unread()?, [b"two", b"six"]);
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn take_unread_iter(&mut self) -> Result<UnreadIter<'_>> {
        self.lane.check()?;
        if self.lane.has_final_position() {
            Ok(UnreadIter(&mut self.lane))
        } else {
            Err(Error::WouldBlock)
        }
    }

    /// Removes and returns the messages that a dead or closed receiver did not acknowledge, like
    /// [`Sender::take_unread`], in two parts: those that a receiver may have processed, and those
    /// that none did.
    ///
    /// A mailbox acknowledges one message at a time, so at most the first is in doubt, and none if
    /// the mailbox was closed after it had acknowledged all that it received. A
    /// [`HoldingMailbox`](crate::mailbox::HoldingMailbox) leaves in doubt all that it received from
    /// the first message on that it had not completed. A relay reports before each message leaves
    /// this host that the message may have left.
    ///
    /// # Errors
    /// - [`Error::WouldBlock`] while the receiver is alive.
    /// - [`Error::Forked`] in a forked child.
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{Mailbox, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Sender::connect(&path)?;
    /// for message in [b"one", b"two", b"six"] {
    ///     sender.send(message)?;
    /// }
    /// assert_eq!(&*mailbox.recv()?, b"one");
    /// mailbox.requeue();
    /// mailbox.close();
    ///
    /// let unread = sender.take_unread_parts()?;
    /// assert_eq!(unread.in_doubt, [b"one"]);
    /// assert_eq!(unread.unsent, [b"two", b"six"]);
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn take_unread_parts(&mut self) -> Result<Unread> {
        self.lane.check()?;
        let (mut in_doubt, count) = self.lane.take_back().ok_or(Error::WouldBlock)?;
        let unsent = in_doubt.split_off(count.min(in_doubt.len()));
        Ok(Unread { in_doubt, unsent })
    }
}

/// Messages in doubt, and the end of the remote owner.
impl OutboundLane {
    /// Returns the position before which a message's record must begin so that a receiver may have
    /// processed the message.
    pub(super) fn doubt_limit(&self) -> u64 {
        self.succession.doubt().0.max(self.last_doubt_limit())
    }

    /// Does the work of `doubt_limit` for the last receiver alone.
    pub(super) fn last_doubt_limit(&self) -> u64 {
        let Some(last) = self.connection.last() else { return 0 };
        // 0 of a mailbox that holds one message at a time.
        let sent = last.sent().min(self.writer.tail());
        if last.is_relay || !last.has_turn() || self.writer.is_first_taken_back() {
            return sent;
        }
        // Such a mailbox has at most the first message that was unread when it ended.
        let first = self.writer.first_unread().filter(|&first| first < self.succession.ended_at);
        first.map_or(sent, |first| sent.max(first + 1))
    }

    /// Returns the error with which a relay has ended the lane for good.
    pub(super) fn latched_end(&self) -> Option<Error> {
        let joined = self.connection.last()?;
        Some(joined.remote_end()?.error(joined.peer, self.address()))
    }

    /// Records what kind of receiver has accepted the lane, if one has.
    pub(super) fn note_receiver(&mut self) {
        if let Some(joined) = self.connection.open() {
            self.succession.accepted_by(joined.is_relay);
            self.writer.set_stamps(joined.wants_stamps());
            self.growth.keep_for_successor(self.succession.waits());
        }
    }
}

//! The progress of a lane at its sender: positions, messages in doubt, and the relay's reports.
//!
//! The calls are methods of [`Sender`]; [`Unread`] separates the messages that a receiver may have
//! processed from the others. Neighbours: [`super::sender`] contains the calls that send,
//! [`super::relay`] the receiver that reads ahead of its acknowledgements.

use super::outbound::OutboundLane;
use super::sender::Sender;
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

impl Sender {
    /// Returns the process that owns the mailbox. Unlike [`Sender::peer`], it is known before that
    /// process has accepted the connection, unless the lane was opened over a socket.
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
    /// # fn main() -> tontine::Result<()> {
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
    /// # Ok(())
    /// # }
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
    /// # fn main() -> tontine::Result<()> {
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
    /// # Ok(())
    /// # }
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

    /// Removes and returns the messages that a dead or closed receiver did not acknowledge, like
    /// [`Sender::take_unread`], in two parts: those that a receiver may have processed, and those
    /// that none did.
    ///
    /// A mailbox acknowledges one message at a time, so at most the first is in doubt, and none if
    /// no mailbox accepted the lane. A relay reports before each message leaves this host that the
    /// message may have left.
    ///
    /// # Errors
    /// - [`Error::WouldBlock`] while the receiver is alive.
    /// - [`Error::Forked`] in a forked child.
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{Mailbox, Sender};
    ///
    /// # fn main() -> tontine::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Sender::connect(&path)?;
    /// for message in [b"one", b"two", b"six"] {
    ///     sender.send(message)?;
    /// }
    /// assert_eq!(&*mailbox.recv()?, b"one");
    /// mailbox.close(); // acknowledges "one"
    ///
    /// let unread = sender.take_unread_parts()?;
    /// assert_eq!(unread.in_doubt, [b"two"]);
    /// assert_eq!(unread.unsent, [b"six"]);
    /// # Ok(())
    /// # }
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
        let last = self.connection.last().map_or(0, |last| match last.is_relay {
            true => last.sent().min(self.writer.tail()),
            false => self.writer.first_unread().map_or(0, |first| first + 1),
        });
        self.succession.doubt_limit.max(last)
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
            self.growth.keep_for_successor(self.succession.waits());
        }
    }
}

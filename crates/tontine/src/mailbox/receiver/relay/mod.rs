//! A receiver that passes records on to another host: [`Relay`].
//!
//! A [`Relay`] wraps a [`Mailbox`], of which it uses the listener, the lanes and the descriptor. It
//! reads each lane ahead of the acknowledged position, and acknowledges up to a position when its
//! program says so. Neighbours: [`read_ahead`] holds the read position of each lane,
//! [`RemoteEnd`] defines the ends that it reports to senders. `docs/internals/recovery.md`
//! lists the steps. Nothing here sends anything to another host.

mod read_ahead;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

pub use read_ahead::AheadRecord;

use self::read_ahead::{AheadStop, ReadAhead};
use super::Mailbox;
use super::inbound::InboundLane;
use super::message::SenderId;
use crate::error::{Error, Peer, Result};
use crate::lane::page::{MAX_LOG2, ring};
use crate::lane::reader::ProtocolError;
use crate::lane::record::HEADER;
use crate::mailbox::address::Address;
use crate::mailbox::options::{Options, Receives};
use crate::mailbox::settings::{OnDeath, Settings};
use crate::mailbox::wire::RemoteEnd;

/// A receiver that passes records on, reading them ahead of their acknowledgement.
///
/// A relay stands in for a mailbox on another host: local programs connect to it with a
/// [`Sender`](crate::mailbox::Sender) as to any mailbox. It copies records out of their lanes
/// ([`Relay::read_ahead`]), passes them on by its own means, and acknowledges them
/// ([`Relay::ack_to`]) when the remote owner has acknowledged them.
///
/// Positions count the bytes of a lane since its beginning, over all its chunks, including headers
/// and padding. They belong to the lane: if the relay's process ends, its senders hand their lanes
/// over to the next relay at the address, whatever their [`OnDeath`], and the next relay continues
/// with the same positions. It finds the same [`RelayLane::lane`].
///
/// A relay has no background thread, and no call blocks. A program calls, in a loop:
/// [`Relay::service`]; [`Relay::ready`], and [`Relay::read_ahead`] for each lane found; then
/// [`Relay::arm`] and a wait on the descriptor. Call `service` at least several times per second,
/// also without events: idle lanes return memory only there.
///
/// In a forked child, a relay has no lanes, and calls that can fail return [`Error::Forked`].
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tontine::mailbox::{Options, Sender};
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let mut relay = Options::new().bind_relay(&path)?;
/// let mut sender = Sender::connect(&path)?; // usually in another process
/// sender.send(b"one")?;
/// sender.send(b"two")?;
///
/// relay.service()?;
/// let mut ready = Vec::new();
/// relay.ready(&mut ready);
/// let (lane, mut bytes, mut end) = (ready[0], Vec::new(), 0);
/// relay.read_ahead(lane, |record| {
///     record.append_to(.., &mut bytes);
///     end = record.end();
///     true
/// })?;
/// assert_eq!(bytes, b"onetwo");
/// assert_ne!(sender.unread_bytes(), 0);
///
/// relay.mark_sent(lane, end); // before the bytes leave this host
/// relay.ack_to(lane, end)?; // once the remote owner has acknowledged them
/// sender.wait_acked(Some(Duration::ZERO))?;
/// # Ok::<(), tontine::Error>(())
/// ```
pub struct Relay {
    mailbox: Mailbox,
    /// The read positions of the lanes, by slot.
    ahead: Vec<Option<ReadAhead>>,
}

/// The state of one lane of a [`Relay`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayLane {
    /// The identifier of the lane at this relay.
    pub sender: SenderId,
    /// The random identifier that the sender gave the lane, the same at each relay that receives
    /// the lane. A hostile sender may choose the identifier of another lane.
    pub lane: u128,
    /// The behaviour that the sender wants when the remote owner ends.
    pub on_death: OnDeath,
    /// The sender's process.
    pub peer: Peer,
    /// The position up to which the lane is acknowledged.
    pub acked: u64,
    /// The read position.
    pub read: u64,
    /// Maximum length in bytes of a record in the lane.
    pub max_message_len: usize,
    /// `true` once the sender has ended: it sends nothing more.
    pub ended: bool,
    /// `true` if the sender has ended and the read position is after its last record.
    pub drained: bool,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("lanes", &self.mailbox.lanes.len()).finish_non_exhaustive()
    }
}

impl<E: Receives> Options<E> {
    /// Opens a relay at `address` with these settings.
    ///
    /// # Errors
    /// The errors of [`Options::bind`], in particular [`Error::AddrInUse`], and
    /// [`Error::InvalidOption`] for settings that a relay would ignore: [`Options::order`] with
    /// [`Order::Causal`](crate::mailbox::Order::Causal), and [`Options::report_no_senders`].
    pub fn bind_relay(&self, address: impl Into<Address>) -> Result<Relay> {
        let options = Settings { relays: true, ..self.settings.clone() };
        Ok(Relay { mailbox: Mailbox::open(Some(address.into()), options)?, ahead: Vec::new() })
    }
}

/// The lanes.
impl Relay {
    /// Accepts senders that connect, processes control messages and hang-ups, and requests memory
    /// back from idle lanes, without blocking.
    ///
    /// # Errors
    /// [`Error::Forked`] and [`Error::System`] like [`Mailbox::recv`].
    pub fn service(&mut self) -> Result<()> {
        self.mailbox.check()?;
        self.mailbox.disarm();
        self.mailbox.service(Some(Duration::ZERO))
    }

    /// Returns the state of all lanes.
    pub fn lanes(&mut self) -> Vec<RelayLane> {
        self.ids().into_iter().filter_map(|sender| self.lane(sender)).collect()
    }

    /// Returns the state of a lane, or `None` if it was removed.
    pub fn lane(&mut self, sender: SenderId) -> Option<RelayLane> {
        let cap = self.mailbox.options.lane_cap;
        let found = self.on(sender, |ahead, lane| ahead.look(lane))?;
        let (ahead, lane) = self.pair(sender)?;
        let largest = 1 << cap.min(1 << MAX_LOG2).ilog2();
        Some(RelayLane {
            sender,
            lane: ahead.identity.lane,
            on_death: ahead.identity.on_death,
            peer: lane.peer,
            acked: lane.reader.position(),
            read: ahead.read,
            max_message_len: ring(largest) - HEADER,
            ended: lane.ended,
            drained: is_drained(found, lane),
        })
    }

    /// Returns how often a lane was added or removed. [`Relay::service`] and [`Relay::arm`] add
    /// lanes.
    pub fn lane_changes(&self) -> u64 {
        2 * self.mailbox.departures() + self.mailbox.lanes.len() as u64
    }

    /// Appends the lanes that have a record at their read position, or have ended and are read to
    /// the end, to `into`. Leaves out lanes that are [held](Relay::hold).
    ///
    /// Misses no record that a connected sender sent before the call, up to a lack of descriptors
    /// or memory. Senders that are connecting are accepted by [`Relay::service`]. A lane that has
    /// ended is found by each call until it is held or removed.
    pub fn ready(&mut self, into: &mut Vec<SenderId>) {
        for sender in self.ids() {
            if self.is_ready(sender) {
                into.push(sender);
            }
        }
    }

    /// Sets whether a lane is *held*: the program wants none of its records at present.
    ///
    /// [`Relay::ready`] does not return a held lane, and [`Relay::arm`] ignores it.
    pub fn hold(&mut self, sender: SenderId, held: bool) {
        if let Some((ahead, _)) = self.pair(sender) {
            ahead.is_held = held;
        }
    }

    /// Removes a lane.
    ///
    /// A lane of a sender that has ended stays until it is removed, with everything that is not
    /// acknowledged. If the sender lives and the lane was not [ended](Relay::end), the sender hands
    /// the lane over again, to this relay.
    pub fn remove(&mut self, sender: SenderId) {
        if self.pair(sender).is_some() {
            self.mailbox.lanes.remove(sender.slot);
            self.ahead[sender.slot as usize] = None;
        }
    }

    /// Removes and returns the errors, since the last call, of lanes that had to be closed and of
    /// peers that were refused, like [`Mailbox::take_errors`].
    #[must_use = "errors that were taken are not returned again"]
    pub fn take_errors(&mut self) -> Vec<Error> {
        self.mailbox.take_errors()
    }

    /// Prepares for waiting on the descriptor: senders then notify this relay.
    ///
    /// Returns `true` if there is nothing to do: wait until the descriptor is readable. Returns
    /// `false` if a lane that is not held is [ready](Relay::ready), or if a lane was added or
    /// removed: call [`Relay::service`] and [`Relay::ready`], then arm again. Like
    /// [`Mailbox::arm`], it also returns `false` while the system keeps senders from notifying.
    ///
    /// # Errors
    /// [`Error::Forked`] and [`Error::System`] like [`Mailbox::recv`].
    ///
    /// # Examples
    /// ```
    /// use rustix::event::{PollFd, PollFlags, poll};
    /// use tontine::mailbox::{Options, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut relay = Options::new().bind_relay(&path)?;
    /// # let mut sender = Sender::connect(&path)?;
    /// # sender.send(b"hello")?;
    /// let mut read = 0;
    /// while read == 0 {
    ///     if relay.arm()? {
    ///         let mut fds = [PollFd::new(&relay, PollFlags::IN)]; // and your own
    ///         poll(&mut fds, None).unwrap();
    ///     }
    ///     relay.service()?;
    ///     let mut ready = Vec::new();
    ///     relay.ready(&mut ready);
    ///     for lane in ready {
    ///         read += relay.read_ahead(lane, |record| record.len() == 5)?;
    ///     }
    /// }
    /// # assert_eq!(read, 1);
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn arm(&mut self) -> Result<bool> {
        self.mailbox.check()?;
        self.mailbox.disarm();
        let lanes = self.lane_changes();
        if self.mailbox.door.is_announced() {
            // A sender that has rung for this number does not ring again, and a caller that is
            // notified of each event only once may have been notified.
            self.mailbox.service(Some(Duration::ZERO))?;
        }
        if !self.mailbox.announce_sleep() {
            // A ring could be lost, so the caller must check repeatedly.
            return Ok(false);
        }
        self.mailbox.armed = true;
        if self.ids().into_iter().any(|sender| self.is_ready(sender))
            || self.lane_changes() != lanes
        {
            self.mailbox.disarm();
            return Ok(false);
        }
        self.mailbox.wait_for_what_lanes_lack();
        Ok(true)
    }
}

/// The records of one lane. Calls with the identifier of a lane that was removed do nothing.
impl Relay {
    /// Passes the records at the read position to `f`, in order, without acknowledging them, and
    /// advances past each for which `f` returns `true`. Returns their number.
    ///
    /// Stops when `f` returns `false`, when there is no further record, or after a bounded number
    /// of records.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child. If the sender breaks the protocol, its lane is removed,
    /// and [`Relay::take_errors`] reports it.
    ///
    /// # Panics
    /// Panics if `f` does. The read position then stays before that record.
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{Options, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut relay = Options::new().bind_relay(&path)?;
    /// let mut sender = Sender::connect(&path)?;
    /// for message in [&b"one"[..], b"two", b"three"] {
    ///     sender.send(message)?;
    /// }
    /// relay.service()?;
    /// let lane = relay.lanes()[0].sender;
    /// let mut frame = Vec::new();
    /// let read = relay.read_ahead(lane, |record| {
    ///     let fits = frame.len() + record.len() <= 8;
    ///     if fits {
    ///         record.append_to(.., &mut frame);
    ///     }
    ///     fits
    /// })?;
    /// assert_eq!((read, &frame[..]), (2, &b"onetwo"[..]));
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn read_ahead(
        &mut self,
        sender: SenderId,
        f: impl FnMut(&AheadRecord<'_>) -> bool,
    ) -> Result<usize> {
        self.mailbox.check()?;
        let mut passed = 0;
        self.on(sender, |ahead, lane| ahead.read(lane, &mut passed, f));
        Ok(passed)
    }

    /// Moves the read position to any position between two records, from the acknowledged position
    /// to the furthest position that was read.
    ///
    /// # Errors
    /// [`Error::InvalidPosition`] at any other position, [`Error::Forked`] in a forked child.
    pub fn seek(&mut self, sender: SenderId, position: u64) -> Result<()> {
        self.mailbox.check()?;
        self.on(sender, |ahead, lane| ahead.seek(lane, position)).unwrap_or(Ok(()))
    }

    /// Announces to the sender that everything before `position` may have left this host. Never
    /// lowers the position.
    ///
    /// Call it before the first byte leaves. If the sender takes its messages back,
    /// [`Sender::take_unread_parts`](crate::mailbox::Sender::take_unread_parts) tells these
    /// messages from the others.
    pub fn mark_sent(&mut self, sender: SenderId, position: u64) {
        if let Some((ahead, lane)) = self.pair(sender) {
            ahead.mark_sent(lane, position);
        }
    }

    /// Acknowledges everything before `position`, which is the end of a record that was read, and
    /// moves the read position there if it is before. Never lowers the acknowledged position.
    ///
    /// Frees the sender's memory, and notifies a sender that waits. Does nothing once the lane was
    /// [ended](Relay::end).
    ///
    /// # Errors
    /// [`Error::InvalidPosition`] if the position is not between two records, or was never read;
    /// [`Error::Forked`] in a forked child.
    pub fn ack_to(&mut self, sender: SenderId, position: u64) -> Result<()> {
        self.mailbox.check()?;
        self.on(sender, |ahead, lane| ahead.ack_to(lane, position)).unwrap_or(Ok(()))
    }

    /// Ends a lane for good, as `end` describes, and wakes the sender: its calls return the
    /// corresponding error, and it takes back what is not acknowledged. The first end stays.
    ///
    /// Acknowledge first what the remote owner had acknowledged. Then [remove](Relay::remove) the
    /// lane.
    pub fn end(&mut self, sender: SenderId, end: RemoteEnd) {
        if let Some((ahead, lane)) = self.pair(sender) {
            let (bit, errno) = end.encode();
            ahead.is_over = true;
            lane.control.end_remotely(bit, errno);
            lane.wake_sender();
        }
    }

    /// Announces to the sender whether the remote host has stopped answering
    /// ([`Sender::is_suspected`](crate::mailbox::Sender::is_suspected)).
    pub fn set_suspected(&mut self, sender: SenderId, suspected: bool) {
        if let Some((_, lane)) = self.pair(sender) {
            lane.control.set_suspected(suspected);
        }
    }
}

impl Relay {
    /// Returns the identifiers of all lanes.
    fn ids(&mut self) -> Vec<SenderId> {
        if self.mailbox.check().is_err() {
            return Vec::new();
        }
        self.mailbox.lanes.all().map(|lane| lane.id).collect()
    }

    /// Returns a lane with its read position.
    fn pair(&mut self, sender: SenderId) -> Option<(&mut ReadAhead, &mut InboundLane)> {
        self.mailbox.check().ok()?;
        let lane = self.mailbox.lanes.named(sender)?;
        let slot = sender.slot as usize;
        if self.ahead.len() <= slot {
            self.ahead.resize_with(slot + 1, || None);
        }
        let entry = &mut self.ahead[slot];
        if entry.as_ref().is_some_and(|ahead| ahead.id != sender) {
            // Another lane had this slot.
            *entry = None;
        }
        Some((entry.get_or_insert_with(|| ReadAhead::new(lane)), lane))
    }

    /// Applies `call` to a lane. Removes the lane if its sender broke the protocol.
    fn on<T>(
        &mut self,
        sender: SenderId,
        call: impl FnOnce(&mut ReadAhead, &mut InboundLane) -> Result<T, ProtocolError>,
    ) -> Option<T> {
        let (ahead, lane) = self.pair(sender)?;
        match call(ahead, lane) {
            Ok(done) => Some(done),
            Err(broken) => {
                self.ahead[sender.slot as usize] = None;
                self.mailbox.lanes.remove_broken(sender.slot, broken);
                None
            }
        }
    }

    fn is_ready(&mut self, sender: SenderId) -> bool {
        // A held lane is checked too, because it may return memory.
        let looked = self.on(sender, |ahead, lane| {
            let found = ahead.look(lane)?;
            let is_due = found != AheadStop::Nothing || is_drained(found, lane);
            Ok(is_due && !ahead.is_held)
        });
        looked == Some(true)
    }
}

/// Returns `true` if no record will follow the read position, at which `found` was found after the
/// lane had ended.
fn is_drained(found: AheadStop, lane: &InboundLane) -> bool {
    found == AheadStop::Nothing && lane.ended && !lane.is_short()
}

/// The descriptor is readable when the relay has something to do: a record has arrived, or a sender
/// is connecting or has ended. Call [`Relay::arm`] before each wait.
impl AsFd for Relay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mailbox.as_fd()
    }
}

//! The state of a sender's connection: [`Connection`].
//!
//! Each state is a type with the methods that are valid in it. A lane without an answer is a
//! [`PendingLane`]; an open lane holds its receiver as an [`AcceptedLane`]. A lane whose receiver
//! has ended either waits for the next owner of its address ([`AwaitingSuccessor`]) or has ended
//! too ([`EndedLane`]); both keep the control page of the [`DepartedReceiver`]. Callers pass the
//! socket to the methods that need it, so nothing is sent to a receiver that has ended.
//!
//! | state | event | next state | caller's call |
//! | --- | --- | --- | --- |
//! | none | `HELLO` sent | pending | `connect` returns |
//! | pending | `WELCOME` | open | continues |
//! | pending | `WELCOME`, no free descriptor or helper thread | unreadable | continues |
//! | pending | `WELCOME` of a user that is not allowed | ended | `Denied` |
//! | pending | path leads elsewhere, `HELLO` withdrawn | awaiting | continues |
//! | pending | hang-up | gone | `OwnerDied`, or `Closed` if the listener's process lives |
//! | pending | the listener's process ended | gone | `OwnerDied` |
//! | open | hang-up, process ended, socket closed at `CHUNK` | gone | `Closed`, `OwnerDied` |
//! | open | liveness word dead, `CLOSED` | gone | `Closed`, `OwnerDied` |
//! | open | a relay's remote end has ended | ended | as in `RemoteEnd` |
//! | pending, open | `REFUSED` | gone | `Denied`, `Refused` |
//! | pending, open | another version | ended | `VersionMismatch` |
//! | pending, open | a message that no receiver sends | ended | `Protocol` |
//! | pending, open | the socket cannot be read | ended | `System` |
//! | open | a chunk cannot be made or passed | open | `System` |
//! | open | an invalid position | ended | `Protocol` |
//! | awaiting | no owner at the address, or its queue is full | awaiting | continues |
//! | awaiting | a shortage in this process | awaiting | continues, then that error |
//! | awaiting | refused for now, before `HELLO` | awaiting | `Refused`, at each such attempt |
//! | awaiting | `HELLO` sent to the next owner | pending | continues |
//! | awaiting | an invalid position | ended | `Protocol` |
//! | awaiting | refused, or not reachable | ended | that error |
//! | ended | an invalid position | ended | `Protocol` |
//!
//! *Gone* means awaiting, and the call continues, if the lane's options outlive that end
//! ([`OnDeath`](crate::mailbox::OnDeath); a lane without an address outlives no end); otherwise it
//! means ended. A lane that a relay has accepted outlives the end of that relay, and of the next
//! receiver until it accepts the lane, unless the relay has latched an end of the remote owner,
//! which is checked first. A pending lane treats each hang-up as a death. From the first handover
//! on, a sender waits while a receiver is full (`ENOBUFS`). An *unreadable* lane is pending, and
//! checks again. A call that continues leaves its message in the lane. `Closed` is returned if the
//! page of the ended receiver shows `CLOSED`. A shortage becomes an error after the handshake
//! timeout. Every call on an ended lane returns the same error, except `take_unread` and a
//! `wait_acked` with nothing to wait for; for a message that is too long, `TooLarge` takes
//! precedence.
//!
//! Neighbours: [`super::outbound`] notices the events; [`super::succession`] connects.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::accepted_lane::{AcceptedLane, join};
use crate::error::{Error, Peer, Result};
use crate::lane::page::VERSION;
use crate::mailbox::address::SocketId;
use crate::mailbox::wire::refusal_of_this_user;
use crate::mailbox::wire::{self, ControlMessage, DecodeError};
use crate::sys::pidfd::has_table;
use crate::sys::quarantine;
use crate::sys::socket::{self, PeerSocket, ReceivedPacket};

/// Interval between checks of a path without an owner.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Interval between attempts after an owner had no space for the lane.
const BETWEEN_REFUSALS: Duration = Duration::from_millis(100);

/// A sender's connection to one receiver, in one of its states.
///
/// The state has its own byte, which `send` compares with a small number. If the compiler encoded
/// the state in another field, `send` would take two more instructions.
#[repr(u8)]
pub(super) enum Connection {
    /// `HELLO` was sent and is not answered yet.
    Pending(PendingLane),
    /// The receiver has accepted the lane.
    Open(AcceptedLane),
    /// The receiver has ended; messages stay in the lane for the next receiver.
    Awaiting(AwaitingSuccessor),
    /// The lane accepts no more messages.
    Ended(EndedLane),
}

/// A lane that no receiver has accepted yet.
pub(super) struct PendingLane {
    /// The pidfd of the process that listens at the other end.
    owner: Option<OwnedFd>,
    /// The process of `owner`; `WELCOME` carries the credentials of the process that accepts.
    listener: Peer,
    /// The file to which the path led just before the connection was made.
    leads_to: Option<SocketId>,
    /// Time when the path was last compared with that file.
    looked_elsewhere: Option<Instant>,
    /// The shortage of this process because of which `WELCOME` waits on the socket.
    lack: Option<Error>,
}

/// A lane whose receiver has ended, and whose address may get a new owner.
pub(super) struct AwaitingSuccessor {
    last: Option<DepartedReceiver>,
    reason: Error,
    /// Time of the last attempt to find a successor.
    looked: Option<Instant>,
    /// Time since which the attempts have failed because a resource is short.
    short_since: Option<Instant>,
}

/// A lane that has ended.
pub(super) struct EndedLane {
    last: Option<DepartedReceiver>,
    reason: Error,
}

/// A receiver that has ended: its page can be read, but nothing can be sent to it.
pub(super) struct DepartedReceiver(AcceptedLane);

/// A control message from the receiver.
pub(super) enum Incoming {
    /// No message.
    Nothing,
    /// `SPACE`.
    Space,
    /// A valid `WELCOME`.
    Welcome(AcceptedLane),
    /// The other end hung up.
    HungUp,
}

impl Connection {
    /// Returns the receiver of an open lane.
    #[inline(always)]
    pub(super) fn open(&self) -> Option<&AcceptedLane> {
        match self {
            Self::Open(joined) => Some(joined),
            _ => None,
        }
    }

    /// Returns the accepted lane like [`Connection::open`].
    #[inline(always)]
    pub(super) fn open_mut(&mut self) -> Option<&mut AcceptedLane> {
        match self {
            Self::Open(joined) => Some(joined),
            _ => None,
        }
    }

    /// Returns `true` unless the lane's receiver is known to have ended.
    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Pending(_) | Self::Open(_))
    }

    /// Returns `true` while the lane's `HELLO` has no answer, not even an unreadable one.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Pending(pending) if pending.lack.is_none())
    }

    /// Returns `true` if `WELCOME` waits for a free descriptor.
    pub(super) fn is_unreadable(&self) -> bool {
        self.lack().is_some()
    }

    /// Returns the shortage because of which `WELCOME` waits on the socket.
    pub(super) fn lack(&self) -> Option<&Error> {
        match self {
            Self::Pending(pending) => pending.lack.as_ref(),
            _ => None,
        }
    }

    /// Returns the receiver that has accepted the lane, or the last receiver that accepted it.
    pub(super) fn receiver(&self) -> Option<Peer> {
        self.last().map(|joined| joined.peer)
    }

    /// Returns the process at the other end, or [`Peer::UNKNOWN`].
    pub(super) fn peer(&self) -> Peer {
        match self {
            Self::Pending(pending) => pending.listener,
            _ => self.receiver().unwrap_or(Peer::UNKNOWN),
        }
    }

    /// Returns the exact read position of the receiver.
    pub(super) fn position(&self) -> Option<u64> {
        self.last().map(AcceptedLane::position)
    }

    /// Returns the position up to which the receiver last announced free space.
    pub(super) fn space(&self) -> Option<u64> {
        self.last().map(AcceptedLane::space)
    }

    /// Returns the receiver whose page is mapped: the one that has accepted the lane, even if it
    /// has ended since.
    pub(super) fn last(&self) -> Option<&AcceptedLane> {
        match self {
            Self::Pending(_) => None,
            Self::Open(joined) => Some(joined),
            Self::Awaiting(AwaitingSuccessor { last, .. })
            | Self::Ended(EndedLane { last, .. }) => last.as_ref().map(|last| &last.0),
        }
    }

    /// Receives one control message from the socket. Returns `true` if more may follow.
    ///
    /// # Errors
    /// The reason why the lane ends: the receiver has hung up, refuses the lane, uses another
    /// version, or breaks the protocol.
    pub(super) fn hear(
        &mut self,
        socket: &PeerSocket,
        admit: &dyn Fn(Peer) -> Result<()>,
    ) -> Result<bool> {
        let heard = match self {
            Self::Pending(pending) => pending.hear(socket, admit)?,
            Self::Open(joined) => hear_open(joined, socket)?,
            Self::Awaiting(_) | Self::Ended(_) => Incoming::Nothing,
        };
        match heard {
            Incoming::Nothing => Ok(false),
            Incoming::Space => Ok(true),
            Incoming::Welcome(joined) => {
                *self = Self::Open(joined);
                Ok(true)
            }
            Incoming::HungUp => Err(self.noticed_end()),
        }
    }

    /// Returns the error that describes an end just detected.
    pub(super) fn noticed_end(&self) -> Error {
        debug_assert!(self.is_live(), "the end of an ended lane was detected again");
        let died = || Error::OwnerDied { peer: self.peer() };
        self.open().map_or_else(died, AcceptedLane::noticed_end)
    }

    /// Ends the lane for `reason`, permanently or until there is a successor.
    pub(super) fn end(&mut self, reason: Error, is_waited_out: bool) {
        // This is a placeholder: the state is replaced before any call returns.
        let none = EndedLane { last: None, reason: Error::WouldBlock };
        *self = match mem::replace(self, Self::Ended(none)) {
            // The process lives: it closed its mailbox, called `exec`, or has no mailbox.
            Self::Pending(PendingLane { owner: Some(owner), listener: peer, .. })
                if !is_waited_out && reason == Error::OwnerDied { peer } && has_table(&owner) =>
            {
                Self::gone(None, Error::Closed { peer }, false)
            }
            Self::Pending(_) => Self::gone(None, reason, is_waited_out),
            Self::Open(joined) => Self::gone(Some(DepartedReceiver(joined)), reason, is_waited_out),
            Self::Awaiting(awaiting) if is_waited_out => {
                Self::Awaiting(AwaitingSuccessor { reason, ..awaiting })
            }
            Self::Awaiting(AwaitingSuccessor { last, .. })
            | Self::Ended(EndedLane { last, .. }) => Self::Ended(EndedLane { last, reason }),
        };
    }

    fn gone(last: Option<DepartedReceiver>, reason: Error, is_waited_out: bool) -> Self {
        if is_waited_out {
            // A receiver that has just refused the lane is tried again after an interval.
            let looked = matches!(reason, Error::Refused { .. }).then(Instant::now);
            Self::Awaiting(AwaitingSuccessor { last, reason, looked, short_since: None })
        } else {
            Self::Ended(EndedLane { last, reason })
        }
    }

    /// Returns the pidfd of the process at the other end.
    pub(super) fn process(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Pending(pending) => pending.owner.as_ref().map(AsFd::as_fd),
            Self::Open(joined) => joined.process.as_ref().map(AsFd::as_fd),
            Self::Awaiting(_) | Self::Ended(_) => None,
        }
    }
}

impl PendingLane {
    /// Returns a lane to the listener of an address.
    pub(super) fn new(owner: Option<OwnedFd>, listener: Peer, leads_to: Option<SocketId>) -> Self {
        Self { owner, listener, leads_to, looked_elsewhere: None, lack: None }
    }

    /// Receives one control message.
    ///
    /// # Errors
    /// The errors of [`Connection::hear`].
    pub(super) fn hear(
        &mut self,
        socket: &PeerSocket,
        admit: &dyn Fn(Peer) -> Result<()>,
    ) -> Result<Incoming> {
        self.lack = None;
        let mut bytes = [0; wire::LONGEST];
        match socket::receive(socket, &mut bytes)? {
            Some(received) if received.has_descriptors && !received.hung_up => {
                self.hear_welcome(socket, admit)
            }
            received => understand(received, &bytes, self.listener),
        }
    }

    /// Receives a message with descriptors. `WELCOME` is the only such message of an honest
    /// receiver.
    fn hear_welcome(
        &mut self,
        socket: &PeerSocket,
        admit: &dyn Fn(Peer) -> Result<()>,
    ) -> Result<Incoming> {
        if quarantine::is_full(socket::owner(socket)?.uid) {
            self.lack = Some(Error::system("a thread that receives WELCOME", Errno::AGAIN));
            return Ok(Incoming::Nothing);
        }
        let expected = |bytes: &[u8]| wire::expected(bytes, 0);
        let passed = match socket::receive_passed(socket, wire::LONGEST, true, expected) {
            Ok(Some(passed)) => passed,
            Ok(None) => return Ok(Incoming::Nothing),
            // The message stays in the queue until this process has the resources to receive it.
            Err(error) if error.is_shortage() => {
                self.lack = Some(error);
                return Ok(Incoming::Nothing);
            }
            Err(error) => return Err(error),
        };
        match wire::read_received(&passed.bytes, passed.oversize) {
            Ok(ControlMessage::Welcome(welcome)) => {
                join(welcome, passed, admit).map(Incoming::Welcome)
            }
            Err(DecodeError::Version(theirs)) => {
                Err(Error::VersionMismatch { ours: VERSION, theirs })
            }
            _ => Err(strange(self.listener)),
        }
    }

    /// Returns `true` if it is time to check whether another process owns the path, and no WELCOME
    /// waits in the socket.
    pub(super) fn is_look_elsewhere_due(&mut self, now: Instant) -> bool {
        let is_recent = |looked: Instant| now - looked < BETWEEN_LOOKS;
        let is_due = self.lack.is_none() && !self.looked_elsewhere.is_some_and(is_recent);
        if is_due {
            self.looked_elsewhere = Some(now);
        }
        is_due
    }

    /// Returns `true` if the path, which leads to `now`, led elsewhere when the connection was
    /// made.
    pub(super) fn was_replaced(&self, now: Option<SocketId>) -> bool {
        now.is_some() && now != self.leads_to
    }
}

impl AwaitingSuccessor {
    /// Returns `true` if it is time to look for a successor.
    pub(super) fn is_look_due(&mut self, now: Instant) -> bool {
        let is_refusal = matches!(self.reason, Error::Refused { .. });
        let between = if is_refusal { BETWEEN_REFUSALS } else { BETWEEN_LOOKS };
        let is_due = self.looked.is_none_or(|looked| now - looked >= between);
        if is_due {
            self.looked = Some(now);
        }
        is_due
    }

    /// Records whether this process is short of a resource. Returns how long it has been short.
    pub(super) fn note_shortage(&mut self, now: Instant, is_short: bool) -> Duration {
        if !is_short {
            self.short_since = None;
            return Duration::ZERO;
        }
        now - *self.short_since.get_or_insert(now)
    }

    /// Returns the receiver that has ended, if it had accepted the lane.
    pub(super) fn last(&self) -> Option<&DepartedReceiver> {
        self.last.as_ref()
    }
}

impl EndedLane {
    /// Returns the error that each call returns.
    pub(super) fn error(&self) -> Error {
        self.reason.clone()
    }
}

impl DepartedReceiver {
    /// Returns the receiver's cap, if it announced one.
    pub(super) fn max_message(&self) -> Option<u64> {
        self.0.max_message()
    }
}

/// Receives one control message from a receiver that has accepted the lane.
fn hear_open(joined: &AcceptedLane, socket: &PeerSocket) -> Result<Incoming> {
    let mut bytes = [0; wire::LONGEST];
    understand(socket::receive(socket, &mut bytes)?, &bytes, joined.peer)
}

fn understand(received: Option<ReceivedPacket>, bytes: &[u8], peer: Peer) -> Result<Incoming> {
    let Some(received) = received else { return Ok(Incoming::Nothing) };
    if received.hung_up {
        return Ok(Incoming::HungUp);
    }
    let note = wire::read_received(&bytes[..received.len], received.oversize);
    match (note, received.has_descriptors) {
        (Ok(ControlMessage::Space), false) => Ok(Incoming::Space),
        // The message does not name the users that the receiver allows, and these need not include
        // the receiver's own user.
        (Ok(ControlMessage::Refused(libc::EACCES)), false) if received.from.is_some() => {
            Err(refusal_of_this_user())
        }
        (Ok(ControlMessage::Refused(errno)), false) => Err(Error::Refused { errno }),
        (Err(DecodeError::Version(theirs)), _) => {
            Err(Error::VersionMismatch { ours: VERSION, theirs })
        }
        _ => Err(strange(peer)),
    }
}

fn strange(peer: Peer) -> Error {
    Error::Protocol {
        peer,
        what: "expected WELCOME, REFUSED or SPACE in turn, found another message",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full receiver refused a lane after its `HELLO`, and the sender retried without a pause.
    #[test]
    fn refusing_successor_is_retried_after_interval() {
        let awaiting = |reason| match Connection::gone(None, reason, true) {
            Connection::Awaiting(awaiting) => awaiting,
            _ => panic!("expected a lane that awaits a successor"),
        };
        let now = Instant::now();
        assert!(awaiting(Error::OwnerDied { peer: Peer::UNKNOWN }).is_look_due(now));
        let mut refused = awaiting(Error::Refused { errno: libc::ENOBUFS });
        assert!(!refused.is_look_due(now));
        assert!(refused.is_look_due(now + BETWEEN_REFUSALS + Duration::from_secs(1)));
    }
}

//! The sending end: [`Sender`].
//!
//! Its calls: each looks at the lane, waits if it must, and looks again. Neighbours:
//! [`super::outbound`] is the lane, [`super::patience`] waits.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use super::address::Address;
use super::connection::PendingLane;
use super::growth::SpaceRequest;
use super::options::Options;
use super::outbound::OutboundLane;
use super::patience::{Patience, SenderWait};
use super::reservation::Reservation;
use crate::error::{Error, Peer, Result};
use crate::sys::socket::{self, Socket};

/// One sender's lane to a mailbox.
///
/// It is used by one thread at a time; a lane of one's own is [`Sender::try_clone`].
pub struct Sender {
    lane: OutboundLane,
    wait: SenderWait,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("address", &self.lane.address())
            .field("unread_bytes", &self.lane.unread_bytes())
            .finish_non_exhaustive()
    }
}

impl Options {
    /// A lane to the mailbox at `address`: [`Sender::connect`] with these settings.
    ///
    /// # Errors
    /// As there.
    pub fn connect(&self, address: impl Into<Address>) -> Result<Sender> {
        Ok(Sender::new(OutboundLane::connect(address.into(), self.clone())?))
    }

    /// A lane over a connected socket: [`Sender::over`] with these settings.
    ///
    /// # Errors
    /// As there.
    pub fn over(&self, socket: OwnedFd) -> Result<Sender> {
        socket::check_connected(&socket)?;
        let socket = Socket::new(socket)?;
        socket::pass_credentials(&socket)?;
        let pending = PendingLane::over_socket();
        Ok(Sender::new(OutboundLane::begin(socket, pending, None, self.clone())?))
    }
}

impl Sender {
    /// Begins a lane to the mailbox at `address`.
    ///
    /// It returns as soon as the connection stands; the receiver takes it when it next receives.
    /// What is sent meanwhile waits in the lane. That the receiver refuses us shows at a later
    /// call.
    ///
    /// # Errors
    /// [`Error::NoMailbox`] where nobody listens there; [`Error::TimedOut`] where its owner accepts
    /// nobody within the handshake's deadline; [`Error::Denied`] where it belongs to a user who is
    /// not allowed; [`Error::InvalidAddress`] for what cannot be an address; [`Error::WouldBlock`]
    /// where the socket has no room for the first message; [`Error::CannotRegister`], as from
    /// [`Life::register`](crate::life::Life::register), which gives the process a life if it has
    /// none; [`Error::System`] where memory or descriptors are short.
    pub fn connect(address: impl Into<Address>) -> Result<Self> {
        Options::new().connect(address)
    }

    /// Begins a lane over a connected `SOCK_SEQPACKET` socket whose other end a mailbox
    /// [adopts](super::Mailbox::adopt).
    ///
    /// # Errors
    /// [`Error::InvalidSocket`] if it is of another kind, or not connected; else as
    /// [`Sender::connect`].
    pub fn over(socket: OwnedFd) -> Result<Self> {
        Options::new().over(socket)
    }

    fn new(lane: OutboundLane) -> Self {
        let wait = SenderWait::new(lane.options().waiting);
        Self { lane, wait }
    }

    /// A lane of its own to the same mailbox, for another thread.
    ///
    /// # Errors
    /// [`Error::NoMailbox`] for a lane over a socket that was passed in, which has no address; else
    /// as [`Sender::connect`].
    pub fn try_clone(&self) -> Result<Self> {
        self.lane.check()?;
        let none = || Error::NoMailbox { address: "a socket that was passed in".into() };
        self.lane.options().connect(self.lane.address().ok_or_else(none)?)
    }

    /// Sends a message; waits for room where there is none.
    ///
    /// To a living receiver that is awake this makes no system call.
    ///
    /// A signal does not end the wait: the handler runs, and the wait continues. To end it on a
    /// signal, call [`Sender::try_send`] and [`Sender::arm`], and wait on a signalfd or the reading
    /// end of a pipe next to [`Sender::descriptor`]. The same holds for [`Sender::send_timeout`]
    /// and [`Sender::wait_read`].
    ///
    /// It may return `Ok` before the receiver has admitted the sender: the message waits in the
    /// lane then, and that the receiver refuses us shows at a later call.
    ///
    /// # Errors
    /// [`Error::OwnerDied`] where the reader is dead, [`Error::Closed`] where it takes no more, and
    /// then nothing was sent; [`Error::TooLarge`]; [`Error::Forked`]; [`Error::Denied`],
    /// [`Error::VersionMismatch`] and [`Error::Protocol`] where the receiver refused the lane or
    /// broke it.
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        if self.lane.send_fast(message) {
            Ok(())
        } else {
            self.send_slowly(message, &Patience::Endless)
        }
    }

    /// Sends a message if there is room, or if the lane may grow.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where there is none; else as [`Sender::send`].
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<()> {
        if self.lane.send_fast(message) {
            Ok(())
        } else {
            self.send_slowly(message, &Patience::None)
        }
    }

    /// Sends a message; waits for room for at most `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] where there was none in time; else as [`Sender::send`].
    pub fn send_timeout(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        if self.lane.send_fast(message) {
            return Ok(());
        }
        self.send_slowly(message, &Patience::until(timeout))
    }

    /// Room for a message of `length` bytes, to be written in place; waits for it.
    ///
    /// # Errors
    /// As [`Sender::send`].
    #[inline]
    pub fn reserve(&mut self, length: usize) -> Result<Reservation<'_>> {
        if !self.lane.has_room(length) {
            self.make_room(length, &Patience::Endless)?;
        }
        Ok(Reservation::new(&mut self.lane, length))
    }

    /// As [`Sender::reserve`], without waiting.
    ///
    /// # Errors
    /// As [`Sender::try_send`].
    #[inline]
    pub fn try_reserve(&mut self, length: usize) -> Result<Reservation<'_>> {
        if !self.lane.has_room(length) {
            self.make_room(length, &Patience::None)?;
        }
        Ok(Reservation::new(&mut self.lane, length))
    }

    /// Takes back what a dead or closed reader did not acknowledge, in order; afterwards there is
    /// nothing unread.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] while the reader is alive: it may be reading them.
    pub fn unread(&mut self) -> Result<Vec<Vec<u8>>> {
        self.lane.check()?;
        self.lane.take_back().ok_or(Error::WouldBlock)
    }

    /// Bytes in the lane that the reader has not acknowledged, 8 a message and padding included.
    pub fn unread_bytes(&mut self) -> u64 {
        if self.lane.check().is_ok() {
            self.lane.listen();
            let _ = self.lane.refresh();
        }
        self.lane.unread_bytes()
    }

    /// Waits until everything is read and acknowledged, for at most `timeout` where there is one.
    /// Whether the reader ends afterwards does not matter. A signal does not end the wait, see
    /// [`Sender::send`].
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::OwnerDied`] or [`Error::Closed`] where the reader will not
    /// read it, unless the options say to wait for its successor.
    pub fn wait_read(&mut self, timeout: Option<Duration>) -> Result<()> {
        let patience = timeout.map_or(Patience::Endless, Patience::until);
        self.wait.until(&mut self.lane, &patience, |lane, thorough| {
            if !thorough {
                lane.refresh_room()?;
                return Ok(lane.is_read());
            }
            let ready = lane.ready();
            // A reader that ends when it has read everything has done what was waited for.
            if lane.check().is_ok() && lane.refresh().is_ok() && lane.is_read() {
                return Ok(true);
            }
            ready.map(|()| false)
        })
    }

    /// Does what there is to do between messages: takes word of room, gives a large chunk back that
    /// the lane no longer needs, looks for a successor. There is no thread that would do it: call
    /// it when the descriptor is readable, or now and then.
    ///
    /// # Errors
    /// As [`Sender::send`]; also where everything was read before the reader ended, since the
    /// descriptor is readable from then on, and for ever: wait for it no more. Whether anything is
    /// left tell [`Sender::unread`] and [`Sender::wait_read`].
    pub fn service(&mut self) -> Result<()> {
        self.lane.ready()?;
        self.lane.refresh()
    }

    /// Readable when [`Sender::service`] has something to do: the reader's end, or, once armed,
    /// room. Another one after each hand-over to a successor: register it anew when a call returned
    /// after the reader's end.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.lane.descriptor()
    }

    /// Who receives, once it has taken the connection.
    pub fn peer(&self) -> Option<Peer> {
        self.lane.receiver()
    }

    /// The longest message that the lane's cap allows: a little less than a quarter of it. A record
    /// takes half of its chunk at most, and beside a new chunk there is the one before it.
    ///
    /// The receiver's cap is known once it has taken the connection; where it is smaller than ours,
    /// the answer is smaller from then on.
    pub fn longest_message(&self) -> usize {
        self.lane.longest_message()
    }

    /// Prepares for waiting on the descriptor until there is room for a message of `length` bytes:
    /// from now on the receiver sends word. `true`: there is none, wait; `false`: call
    /// [`Sender::try_send`]. Arm again before each wait.
    ///
    /// The descriptor does not tell of a reader that called `exec` or was killed and left a forked
    /// child behind: wait for half a second at a time. Nor does it tell of a successor, while one
    /// is waited for.
    ///
    /// # Errors
    /// As [`Sender::try_send`], but for [`Error::WouldBlock`].
    pub fn arm(&mut self, length: usize) -> Result<bool> {
        self.wait.arm(&mut self.lane, length)
    }

    /// Reverts [`Sender::arm`].
    #[cfg(feature = "tokio")]
    pub(super) fn disarm(&mut self) {
        self.wait.disarm(&self.lane);
    }

    /// Returns the lane of an armed sender, to wait for what its descriptors tell.
    #[cfg(feature = "tokio")]
    pub(super) fn lane(&mut self) -> &mut OutboundLane {
        &mut self.lane
    }

    /// Whether its reader's end is waited out.
    pub(crate) fn waits_for_successor(&self) -> bool {
        self.lane.options().on_death.waits()
    }

    #[cold]
    #[inline(never)]
    fn send_slowly(&mut self, message: &[u8], patience: &Patience) -> Result<()> {
        self.make_room(message.len(), patience)?;
        self.lane.push(message);
        Ok(())
    }

    fn make_room(&mut self, length: usize, patience: &Patience) -> Result<()> {
        let lane = &mut self.lane;
        lane.check()?;
        self.wait.disarm(lane);
        // Before anybody adds to the number.
        lane.check_length(length)?;
        // A program may send to a dead receiver often, and nothing changes that answer.
        lane.check_ended()?;
        if lane.find_room_read_meanwhile(length) {
            return Ok(());
        }
        let mut request = SpaceRequest::new(length, matches!(patience, Patience::None));
        let found = self.wait.until(lane, patience, |lane, thorough| {
            if thorough {
                lane.ready()?;
            }
            lane.find_room(&mut request, thorough)
        });
        found.map_err(|error| match (error, patience) {
            (Error::TimedOut, Patience::None) => Error::WouldBlock,
            (error, _) => error,
        })
    }
}

//! The sending end: [`Sender`].
//!
//! Each call inspects the lane, waits if it must, and inspects it again. [`outbound`] contains the
//! lane, [`connection`] the state of its connection, [`wait_limit`] the waiting, [`reservation`]
//! the calls that reserve space, [`space`] the search for space. [`crate::mailbox::receiver`] is
//! the other side.

mod accepted_lane;
mod account;
#[cfg(feature = "tokio")]
mod asynchronous;
mod connection;
mod growth;
mod handover;
mod outbound;
mod owner_wait;
mod progress;
mod reservation;
mod space;
mod stream;
mod succession;
mod wait_limit;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

#[cfg(feature = "tokio")]
pub use asynchronous::AsyncSender;
pub use progress::{Unread, UnreadIter};
pub use reservation::Reservation;

use self::connection::PendingLane;
use self::growth::SpaceRequest;
use self::outbound::OutboundLane;
use self::wait_limit::{SenderWait, WaitLimit};
use crate::error::{Error, Peer, Result};
use crate::lane::page::CLOSED_AT;
use crate::mailbox::address::Address;
use crate::mailbox::options::{Options, Sends};
use crate::sys::socket::{self, PeerSocket};

/// The sending end of one lane to a [`Mailbox`](crate::mailbox::Mailbox).
///
/// A `Sender` is [`Send`], but neither [`Sync`] nor [`Clone`]: one thread at a time uses it, and
/// [`Sender::try_clone`] opens another lane to the same mailbox. It has no background thread: it
/// works only inside its methods.
///
/// *Unread* messages, those that the receiver has not acknowledged, stay in memory that this
/// process owns. If the receiver dies or closes the mailbox, [`Sender::take_unread`] returns them,
/// or the sender hands them to the next owner of the address
/// ([`OnDeath`](crate::mailbox::OnDeath)).
///
/// # End of the sender
/// A sender can exit immediately after it sends: if it is dropped, or its process exits, is killed
/// or calls `exec`, a live receiver still receives everything that the sender had sent, unless it
/// refuses the lane. To make sure that everything was received, call [`Sender::wait_acked`] first.
/// If the receiver died or closed the mailbox earlier, the unread messages are lost with the
/// sender, even if the sender waits for a successor: call [`Sender::take_unread`] first.
///
/// # Examples
/// ```
/// use tontine::mailbox::{Mailbox, Sender};
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let mut mailbox = Mailbox::bind(&path)?;
/// let mut sender = Sender::connect(&path)?; // usually in another process
/// sender.send(b"hello")?;
/// assert_eq!(&*mailbox.recv()?, b"hello");
///
/// drop(mailbox);
/// let error = sender.send(b"not read").unwrap_err();
/// assert!(matches!(error, tontine::Error::Closed { .. }));
/// # Ok::<(), tontine::Error>(())
/// ```
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

impl<E: Sends> Options<E> {
    /// Opens a lane to the mailbox at `address` with these settings.
    ///
    /// # Errors
    /// The errors of [`Sender::connect`], in particular [`Error::NoMailbox`] and
    /// [`Error::Denied`].
    pub fn connect(&self, address: impl Into<Address>) -> Result<Sender> {
        Ok(Sender::new(OutboundLane::connect(address.into(), self.settings.clone())?))
    }

    /// Opens a lane over a connected socket with these settings.
    ///
    /// # Errors
    /// The errors of [`Sender::from_socket`], in particular [`Error::InvalidSocket`].
    pub fn connect_socket(&self, socket: OwnedFd) -> Result<Sender> {
        socket::check_connected(&socket)?;
        let socket = PeerSocket::new(socket)?;
        socket::pass_credentials(&socket)?;
        // The process that made the socket pair need not hold the other end.
        let pending = PendingLane::new(None, Peer::UNKNOWN, None);
        Ok(Sender::new(OutboundLane::begin(socket, pending, None, self.settings.clone())?))
    }
}

impl Sender {
    /// Opens a lane to the mailbox at `address`, with default [`Options`].
    ///
    /// Returns as soon as the socket is connected; the receiver accepts the connection inside its
    /// next receiving call. Messages sent before that wait in the lane, which grows to 1 MiB:
    /// one message of up to 255 KiB, or many small ones, need no receiving call. If the receiver
    /// refuses the lane, a later call returns the error.
    ///
    /// # Errors
    /// - [`Error::NoMailbox`] if no process has a mailbox at `address`.
    /// - [`Error::TimedOut`] if the owner's backlog stays full for the handshake timeout (5 s).
    /// - [`Error::Denied`] if the owner runs as a user that is not allowed.
    /// - [`Error::InvalidAddress`] if no mailbox can have this address.
    /// - [`Error::WouldBlock`] if the socket has no space for the first control message.
    /// - [`Error::CannotRegister`] if the process has no [`Life`](crate::life::Life) and the kernel
    ///   would not mark the end of the thread that would hold it.
    /// - [`Error::FileTooLarge`] if the first chunk exceeds the process's file size limit.
    /// - [`Error::System`] or [`Error::SystemAt`] if memory or descriptors are short.
    ///
    /// A sender that may start before its receiver waits for it:
    /// [`Options::wait_for_owner`].
    ///
    /// # Examples
    /// ```
    /// use tontine::{Error, mailbox::{Mailbox, Sender}};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// assert!(matches!(Sender::connect(&path), Err(Error::NoMailbox { .. })));
    /// let mailbox = Mailbox::bind(&path)?;
    /// let sender = Sender::connect(&path)?;
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn connect(address: impl Into<Address>) -> Result<Self> {
        Options::new().connect(address)
    }

    /// Opens a lane over a connected `SOCK_SEQPACKET` socket of `AF_UNIX`, whose other end a
    /// mailbox [adopts](crate::mailbox::Mailbox::adopt).
    ///
    /// # Errors
    /// - [`Error::InvalidSocket`] if the socket has another type or family, or is not connected.
    /// - [`Error::NoMailbox`] if the other end is closed, [`Error::WouldBlock`] if the socket has
    ///   no space for the first control message.
    /// - [`Error::CannotRegister`], [`Error::FileTooLarge`] and [`Error::System`] like
    ///   [`Sender::connect`].
    ///
    /// # Examples
    /// ```
    /// use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    /// use tontine::mailbox::{Mailbox, Sender};
    ///
    /// let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    /// let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    ///
    /// let mut mailbox = Mailbox::unbound()?;
    /// mailbox.adopt(ours)?;
    /// let mut sender = Sender::from_socket(theirs)?; // after a fork, in the child
    /// sender.send(b"no address needed")?;
    /// assert_eq!(&*mailbox.recv()?, b"no address needed");
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn from_socket(socket: OwnedFd) -> Result<Self> {
        Options::new().connect_socket(socket)
    }

    fn new(lane: OutboundLane) -> Self {
        let wait = SenderWait::new(lane.options());
        Self { lane, wait }
    }

    /// Opens another lane to the same mailbox with the same options, for another thread.
    ///
    /// # Errors
    /// - [`Error::NoMailbox`] if this lane was opened over a socket and has no address.
    /// - [`Error::Forked`] in a forked child.
    /// - Otherwise the errors of [`Sender::connect`]: [`Error::NoMailbox`], for example, while the
    ///   address has no owner.
    pub fn try_clone(&self) -> Result<Self> {
        self.lane.check()?;
        let none = || Error::NoMailbox { address: "a socket that was passed in".into() };
        let address = self.lane.address().ok_or_else(none)?;
        Ok(Sender::new(OutboundLane::connect(address.clone(), self.lane.options().clone())?))
    }

    /// Sends a message; blocks while the lane has no free space for it.
    ///
    /// If the receiver is alive and awake, `send` makes no system call. `Ok` means that the message
    /// is in shared memory, not that the receiver has read it: [`Sender::wait_acked`] waits for
    /// that. Before the receiver has accepted the connection, the message waits in the lane; if the
    /// receiver then refuses the lane, a later call returns the error.
    ///
    /// If the receiver dies, the wait ends immediately, or within half a second if the receiver
    /// called `exec` or left a forked child behind. A hostile receiver can block this call
    /// indefinitely; [`Sender::send_timeout`] always returns within its timeout.
    ///
    /// A signal does not end the wait (the handler runs, and the wait continues), unless
    /// [`Options::interruptible`] is set. To avoid missing a signal, call [`Sender::try_send`] and
    /// [`Sender::arm`], and wait on a signalfd together with the sender's
    /// [descriptor](Sender#impl-AsFd-for-Sender). This also applies to [`Sender::send_timeout`] and
    /// [`Sender::wait_acked`].
    ///
    /// # Errors
    /// Nothing was sent if `send` fails.
    ///
    /// - [`Error::OwnerDied`] if the receiver has died, unless the options say to wait for its
    ///   successor.
    /// - [`Error::Closed`] if the receiver has closed the mailbox, unless the options say to wait
    ///   through restarts.
    /// - [`Error::Unreachable`] if the receiver is a relay that could not reach the remote host.
    /// - [`Error::TooLarge`] if the message is longer than [`Sender::max_message_len`].
    /// - [`Error::Interrupted`] if a signal handler ran and the sender is interruptible.
    /// - [`Error::Forked`] in a forked child.
    /// - [`Error::Denied`], [`Error::Refused`] or [`Error::VersionMismatch`] if the receiver
    ///   refused the lane, [`Error::Protocol`] if it broke the protocol.
    /// - [`Error::ChunksHeld`] if the lane is empty, and chunks that left it use up its cap.
    /// - [`Error::FileTooLarge`] if the lane must grow beyond the process's file size limit, and
    ///   [`Error::System`] if another resource is short.
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
    /// assert_eq!(&*mailbox.recv()?, b"one");
    /// assert_eq!(&*mailbox.recv()?, b"two");
    /// # Ok::<(), tontine::Error>(())
    /// ```
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        if self.lane.send_fast(message) {
            Ok(())
        } else {
            self.send_slowly(message, &WaitLimit::Endless)
        }
    }

    /// Sends a message if that takes no system call except one that rings. Returns `true` if it was
    /// sent.
    ///
    /// Public for the C binding, which makes other system calls with cancellation disabled.
    #[doc(hidden)]
    #[inline]
    pub fn send_at_once(&mut self, message: &[u8]) -> bool {
        self.lane.send_fast(message)
    }

    /// Sends a message if the lane has free space, or can grow, without blocking.
    ///
    /// # Errors
    /// - [`Error::WouldBlock`] if the lane has no free space now.
    /// - Otherwise the errors of [`Sender::send`], in particular [`Error::OwnerDied`],
    ///   [`Error::Closed`] and [`Error::TooLarge`].
    ///
    /// # Examples
    /// ```
    /// use tontine::{Error, mailbox::{Mailbox, Options}};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Options::new().lane_cap(4096).connect(&path)?;
    /// let mut sent = 0;
    /// while sender.try_send(&[0; 512]).is_ok() {
    ///     sent += 1;
    /// }
    /// assert!(sent > 0);
    /// assert_eq!(sender.try_send(&[0; 512]), Err(Error::WouldBlock));
    /// # Ok::<(), tontine::Error>(())
    /// ```
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<()> {
        if self.lane.send_fast(message) {
            Ok(())
        } else {
            self.send_slowly(message, &WaitLimit::None)
        }
    }

    /// Sends a message; blocks for at most `timeout` while the lane has no free space for it.
    ///
    /// # Errors
    /// - [`Error::TimedOut`] if the lane had no free space within `timeout`. Nothing was sent. A
    ///   shortage in this process may be the cause: [`Sender::peer`].
    /// - Otherwise the errors of [`Sender::send`], in particular [`Error::OwnerDied`],
    ///   [`Error::Closed`] and [`Error::TooLarge`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tontine::{Error, mailbox::{Mailbox, Options}};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?; // this receiver reads nothing
    /// let mut sender = Options::new().lane_cap(4096).connect(&path)?;
    /// let error = loop {
    ///     if let Err(error) = sender.send_timeout(&[0; 512], Duration::from_millis(10)) {
    ///         break error;
    ///     }
    /// };
    /// assert_eq!(error, Error::TimedOut);
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn send_timeout(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        if self.lane.send_fast(message) {
            return Ok(());
        }
        self.send_slowly(message, &WaitLimit::until(timeout))
    }

    /// Returns the number of bytes in the lane that the receiver has not acknowledged, padding and
    /// 8 bytes per message included.
    pub fn unread_bytes(&mut self) -> u64 {
        if self.lane.check().is_ok() {
            self.lane.listen();
            let _ = self.lane.refresh();
        }
        self.lane.unread_bytes()
    }

    /// Blocks until the receiver has acknowledged every message, for at most `timeout` if given.
    ///
    /// If the receiver ends after it has acknowledged everything, the result is still `Ok`. A
    /// signal does not end the wait; see [`Sender::send`].
    ///
    /// # Errors
    /// - [`Error::TimedOut`] if messages are still unacknowledged after `timeout`. A shortage in
    ///   this process may be the cause: [`Sender::peer`].
    /// - [`Error::OwnerDied`] or [`Error::Closed`] if messages remain that the receiver will not
    ///   read, unless the options say to wait for its successor.
    /// - [`Error::Forked`] in a forked child.
    /// - Otherwise the errors of [`Sender::send`] that end a lane: [`Error::Denied`],
    ///   [`Error::Refused`], [`Error::VersionMismatch`] and [`Error::Protocol`].
    ///
    /// # Examples
    /// ```
    /// use std::{thread, time::Duration};
    /// use tontine::mailbox::{Mailbox, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Sender::connect(&path)?;
    /// sender.send(b"hello")?;
    /// let receiver = thread::spawn(move || {
    ///     mailbox.recv().map(|message| println!("{} bytes", message.len()))?;
    ///     mailbox.ack();
    ///     Ok::<_, tontine::Error>(mailbox)
    /// });
    /// sender.wait_acked(Some(Duration::from_secs(10)))?;
    /// assert_eq!(sender.unread_bytes(), 0);
    /// # receiver.join().unwrap()?;
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn wait_acked(&mut self, timeout: Option<Duration>) -> Result<()> {
        let limit = timeout.map_or(WaitLimit::Endless, WaitLimit::until);
        self.wait.until(&mut self.lane, &limit, |lane, thorough| {
            if !thorough {
                lane.refresh_space()?;
                return Ok(lane.is_read());
            }
            let ready = lane.ready();
            // If the receiver acknowledged everything before it ended, the wait has succeeded.
            if lane.check().is_ok() && lane.refresh().is_ok() && lane.is_read() {
                return Ok(true);
            }
            ready.map(|()| false)
        })
    }

    /// Does the lane's pending work: reads the receiver's control messages, returns a large chunk
    /// that the lane no longer needs, and looks for a successor.
    ///
    /// No thread does this work in the background: call `service` when the descriptor is readable,
    /// or from time to time.
    ///
    /// # Errors
    /// - [`Error::OwnerDied`] or [`Error::Closed`] if the receiver has ended, even if it has read
    ///   everything: the descriptor then stays readable permanently, so stop waiting on it.
    ///   [`Sender::take_unread`] and [`Sender::wait_acked`] report whether messages remain.
    /// - Otherwise the errors of [`Sender::send`], except [`Error::TooLarge`].
    ///
    /// # Examples
    /// The receiver is stopped and restarted, and the sender hands over the unread messages:
    ///
    /// ```
    /// use tontine::mailbox::{Mailbox, OnDeath, Options};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Options::new().on_death(OnDeath::WaitThroughRestarts).connect(&path)?;
    /// sender.send(b"one")?;
    /// sender.send(b"two")?;
    /// assert_eq!(&*mailbox.recv()?, b"one");
    /// drop(mailbox);
    ///
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// sender.service()?;
    /// assert_eq!(&*mailbox.recv()?, b"two");
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn service(&mut self) -> Result<()> {
        self.lane.ready()?;
        self.lane.refresh()
    }

    /// Returns the receiver's process. Returns `None` before it has accepted the connection, and
    /// while this process cannot receive the answer, because it has no free descriptor or can start
    /// no thread (`RLIMIT_NPROC`, a cgroup's `pids.max`): calls that wait then time out.
    pub fn peer(&self) -> Option<Peer> {
        self.lane.receiver()
    }

    /// Returns the length in bytes of the longest message that the lane's cap allows: a little less
    /// than a quarter of the cap.
    ///
    /// A record takes at most half of its chunk, and the previous chunk counts against the cap
    /// while a new one is in use. The receiver's cap is known once it has accepted the connection;
    /// if that cap is smaller than this sender's, the result then decreases.
    pub fn max_message_len(&self) -> usize {
        self.lane.max_message_len()
    }

    /// Prepares for waiting on the descriptor until the lane has free space for a message of
    /// `length` bytes: the receiver then notifies this sender when it frees space.
    ///
    /// Returns `true` if there is no free space: wait until the descriptor is readable. Returns
    /// `false` if there may be free space: call [`Sender::try_send`]. Arm again before each wait.
    ///
    /// The descriptor does not report a receiver that called `exec`, or that was killed and left a
    /// forked child behind: wait for at most half a second at a time. Nor does it report a
    /// successor that the sender is waiting for.
    ///
    /// # Errors
    /// The errors of [`Sender::send`], in particular [`Error::OwnerDied`], [`Error::Closed`] and
    /// [`Error::TooLarge`].
    ///
    /// # Examples
    /// ```
    /// use rustix::event::{PollFd, PollFlags, Timespec, poll};
    /// use tontine::{Error, mailbox::{Mailbox, Options, Sender}};
    ///
    /// fn send(sender: &mut Sender, message: &[u8]) -> tontine::Result<()> {
    ///     loop {
    ///         match sender.try_send(message) {
    ///             Err(Error::WouldBlock) if sender.arm(message.len())? => {
    ///                 let half_a_second = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
    ///                 let mut fds = [PollFd::new(&*sender, PollFlags::IN)]; // and your own
    ///                 let _ = poll(&mut fds, Some(&half_a_second));
    ///             }
    ///             Err(Error::WouldBlock) => {}
    ///             result => return result,
    ///         }
    ///     }
    /// }
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// # let mut mailbox = Mailbox::bind(&path)?;
    /// # let mut sender = Options::new().lane_cap(4096).connect(&path)?;
    /// # let receiver = std::thread::spawn(move || {
    /// #     (0..100).try_for_each(|_| mailbox.recv().map(|_message| ())).map(|()| mailbox)
    /// # });
    /// for _ in 0..100 {
    ///     send(&mut sender, &[0; 512])?;
    /// }
    /// # receiver.join().unwrap()?;
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn arm(&mut self, length: usize) -> Result<bool> {
        self.wait.arm(&mut self.lane, length)
    }

    /// Reverts [`Sender::arm`].
    fn disarm(&mut self) {
        self.wait.disarm(&self.lane);
    }

    /// Returns the lane of an armed sender, whose descriptors the caller waits on.
    #[cfg(feature = "tokio")]
    fn lane(&mut self) -> &mut OutboundLane {
        &mut self.lane
    }

    /// Returns `true` if the sender waits for a successor when its receiver ends.
    pub(crate) fn waits_for_successor(&self) -> bool {
        self.lane.options().on_death.waits()
    }

    #[cold]
    #[inline(never)]
    fn send_slowly(&mut self, message: &[u8], limit: &WaitLimit) -> Result<()> {
        if !self.lane.send_stamped(message) {
            self.make_space(message.len(), limit)?;
            self.lane.push(message);
        }
        Ok(())
    }

    fn make_space(&mut self, length: usize, limit: &WaitLimit) -> Result<()> {
        let lane = &mut self.lane;
        lane.check()?;
        self.wait.disarm(lane);
        // The length is checked first, because it is arbitrary: adding to it could overflow.
        lane.check_length(length)?;
        // The end is checked early: the error is final, and a program may send to a dead receiver
        // often.
        lane.check_ended()?;
        if lane.find_space_read_meanwhile(length) {
            lane.outgrow(length);
            return Ok(());
        }
        let mut request = SpaceRequest::new(length, matches!(limit, WaitLimit::None));
        let found = self.wait.until(lane, limit, |lane, thorough| {
            if thorough {
                lane.ready()?;
            }
            lane.find_space(&mut request, thorough)
        });
        if found.is_ok() {
            lane.outgrow(length);
        }
        found.map_err(|error| match (error, limit) {
            (Error::TimedOut, WaitLimit::None) => Error::WouldBlock,
            (error, _) => error,
        })
    }
}

/// The receiver still reads what was sent, and does not report a death
/// ([`Mailbox::take_deaths`](crate::mailbox::Mailbox::take_deaths)).
impl Drop for Sender {
    fn drop(&mut self) {
        if self.lane.check().is_ok() {
            // SYNC sender-closed: pairs with the load in `InboundLane::died`.
            self.lane.store_in_chunks(CLOSED_AT, true);
        }
    }
}

/// The descriptor is readable when [`Sender::service`] has something to do: when the receiver has
/// ended and, once [armed](Sender::arm), when the lane has free space again. See [`Sender::arm`]
/// for an example.
///
/// Each handover to a successor replaces the descriptor: register it again after each call that
/// follows the receiver's end.
impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lane.as_fd()
    }
}

//! The receiving end: [`Mailbox`].
//!
//! [`lanes`] contains the lanes, [`inbound`] one of them, [`listener`] the connections, [`waiting`]
//! the waiting. [`crate::mailbox::sender`] is the other side.

#![allow(unsafe_code, reason = "functions whose callers guarantee what other processes do")]

mod activation;
#[cfg(feature = "tokio")]
mod asynchronous;
mod batch;
mod bound_path;
mod fast_path;
mod handshake;
mod holding;
mod inbound;
mod lanes;
mod listener;
mod message;
mod order;
mod poll_interval;
#[cfg(feature = "relay")]
mod relay;
mod service;
mod set;
mod waiting;
mod waker;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

pub use activation::{ActivatedSocket, activated_sockets};
#[cfg(feature = "tokio")]
pub use asynchronous::AsyncMailbox;
pub use holding::{HeldMessage, HoldingMailbox};
pub use message::{InPlace, Message, SenderId};
#[cfg(feature = "relay")]
pub use relay::{AheadRecord, Relay, RelayLane};
pub use set::MailboxSet;
pub use waker::Waker;

use self::lanes::{Lanes, TakenMessage};
use self::listener::Listener;
use self::order::CausalOrder;
use crate::error::{Error, Result};
use crate::life::{Life, MailboxSlot};
use crate::mailbox::address::Address;
use crate::mailbox::options::{Options, Receives};
use crate::mailbox::settings::{Fences, Order, Settings};
use crate::mailbox::spin::SpinPolicy;
use crate::sys::fork::Guard;
use crate::sys::{membarrier, quarantine};

/// The receiving end: receives the messages of many senders, each over its own lane.
///
/// A `Mailbox` is [`Send`], but neither [`Sync`] nor [`Clone`]. It has no background thread: it
/// works only inside its methods. Each receiving call also accepts senders that connect, and
/// removes the lane of each sender that has ended once everything in it is read. A sender that
/// breaks the protocol loses only its own lane; [`Mailbox::take_errors`] reports it.
///
/// A message is *unread* until it is *acknowledged*, by the next receiving call or by
/// [`Mailbox::ack`]. If this process dies before that, the message is still in its sender's memory,
/// and the address is free for the next owner. For work on several messages at once,
/// [`Mailbox::into_holding`] converts it to a [`HoldingMailbox`].
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
///
/// let message = mailbox.recv()?;
/// assert_eq!(&*message, b"hello");
/// assert_eq!(message.peer().pid, Some(std::process::id()));
/// # Ok::<(), tontine::Error>(())
/// ```
pub struct Mailbox {
    guard: Guard,
    lanes: Lanes,
    /// The order of messages of different senders, if there is one.
    order: Option<CausalOrder>,
    /// The message returned last; the next receiving call acknowledges it.
    taken: Option<TakenMessage>,
    copied: Vec<u8>,
    /// Time since which a long copy buffer has been unused.
    copy_idle_since: Option<Instant>,
    /// Passes and turns since the last service of the connections.
    since_service: u32,
    armed: bool,
    door: Listener,
    desk: MailboxSlot,
    life: &'static Life,
    options: Settings,
    spin: SpinPolicy,
    can_interrupt: bool,
    /// A handle of the wakers, if there are any.
    waker: Option<Waker>,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("sender_count", &self.lanes.len()).finish_non_exhaustive()
    }
}

impl<E: Receives> Options<E> {
    /// Opens a mailbox at `address` with these settings.
    ///
    /// # Errors
    /// The errors of [`Mailbox::bind`], in particular [`Error::AddrInUse`], and
    /// [`Error::InvalidOption`] if a setting is invalid for a mailbox.
    pub fn bind(&self, address: impl Into<Address>) -> Result<Mailbox> {
        let address = address.into();
        let open = || Mailbox::open(Some(address.clone()), self.settings.clone());
        self.settings.with_descriptors(open)
    }

    /// Opens a mailbox without an address, with these settings.
    ///
    /// # Errors
    /// The errors of [`Mailbox::unbound`], and [`Error::InvalidOption`] if a setting is invalid for
    /// a mailbox.
    pub fn unbound(&self) -> Result<Mailbox> {
        self.settings.with_descriptors(|| Mailbox::open(None, self.settings.clone()))
    }
}

impl Mailbox {
    /// Opens a mailbox at `address` with default [`Options`], and takes over the address if its
    /// last owner is dead.
    ///
    /// If the process has no [`Life`], `bind` registers one, like [`Life::register`].
    ///
    /// # Errors
    /// - [`Error::AddrInUse`] if the address has a live owner.
    /// - [`Error::InvalidAddress`] if the path is too long, or leads to a file that is not a
    ///   socket.
    /// - [`Error::CannotRegister`] if the process has no life and the kernel would not mark the end
    ///   of the thread that would hold it.
    /// - [`Error::Full`] if the process already has 1,024 mailboxes.
    /// - [`Error::SystemAt`] if the folder cannot be used, [`Error::System`] if memory or
    ///   descriptors are short.
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::Mailbox;
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mailbox = Mailbox::bind(&path)?;
    /// let error = Mailbox::bind(&path).unwrap_err(); // an address has one owner
    /// assert!(matches!(error, tontine::Error::AddrInUse { .. }));
    ///
    /// drop(mailbox);
    /// let mailbox = Mailbox::bind(&path)?;
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn bind(address: impl Into<Address>) -> Result<Self> {
        Options::new().bind(address)
    }

    /// Opens a mailbox without an address. It receives over sockets that [`Mailbox::adopt`] adds.
    ///
    /// # Errors
    /// [`Error::CannotRegister`], [`Error::Full`] and [`Error::System`] like [`Mailbox::bind`].
    pub fn unbound() -> Result<Self> {
        Options::new().unbound()
    }

    fn open(address: Option<Address>, options: Settings) -> Result<Self> {
        options.check()?;
        let life = Life::register()?;
        quarantine::prepare()?;
        // Take the slot before opening the listener: opening publishes the name as its last step.
        let desk = life.desk()?;
        let address = address.map(Address::into_absolute).transpose()?;
        let door = Listener::open(address.as_ref(), options.mode)?;
        let can_interrupt = options.fences == Fences::Asymmetric && membarrier::register();
        Ok(Self {
            guard: Guard::here()?,
            lanes: Lanes::default(),
            order: (options.order == Order::Causal).then(CausalOrder::default),
            taken: None,
            copied: Vec::new(),
            copy_idle_since: None,
            since_service: 0,
            armed: false,
            door,
            desk,
            life,
            spin: SpinPolicy::new(options.wait_strategy),
            options,
            can_interrupt,
            waker: None,
        })
    }

    /// Adds a connected `SOCK_SEQPACKET` socket of `AF_UNIX`, whose other end a sender passes to
    /// [`Sender::from_socket`](crate::mailbox::Sender::from_socket).
    ///
    /// The socket is one end of a pair made before a fork, or was passed by another process. Its
    /// other end may be silent indefinitely: the handshake timeout does not apply.
    ///
    /// # Errors
    /// The socket is closed if `adopt` fails.
    ///
    /// - [`Error::InvalidSocket`] if the socket has another type or family, or is not connected.
    /// - [`Error::System`] if the descriptor is not a socket, or cannot be watched.
    /// - [`Error::Forked`] in a forked child.
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
    /// sender.send(b"hello")?;
    /// assert_eq!(&*mailbox.recv()?, b"hello");
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn adopt(&mut self, socket: OwnedFd) -> Result<()> {
        self.check()?;
        self.door.adopt(socket)
    }

    /// Blocks until a message arrives and returns a copy of it; acknowledges the previous message.
    ///
    /// A signal does not end the wait (the handler runs, and the wait continues), unless
    /// [`Options::interruptible`] is set. To avoid missing a signal, call [`Mailbox::try_recv`] and
    /// wait on a signalfd together with the mailbox's [descriptor](Mailbox#impl-AsFd-for-Mailbox).
    ///
    /// # Errors
    /// - [`Error::Forked`] in a forked child.
    /// - [`Error::Interrupted`] if a signal handler ran and the mailbox is interruptible.
    /// - [`Error::NoSenders`] if every sender has ended and the mailbox
    ///   [reports that](crate::mailbox::Options::report_no_senders).
    /// - [`Error::Woken`] if another thread has [woken](Mailbox::waker) the call.
    /// - [`Error::System`] if the kernel refuses to wait.
    ///
    /// The death or misbehaviour of a sender is not an error of `recv`: see
    /// [`Mailbox::take_errors`].
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{Mailbox, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// # let mut mailbox = Mailbox::bind(&path)?;
    /// # let mut sender = Sender::connect(&path)?;
    /// # sender.send(b"work")?;
    /// # sender.send(b"stop")?;
    /// loop {
    ///     let message = mailbox.recv()?;
    ///     if &*message == b"stop" {
    ///         break;
    ///     }
    ///     println!("{} bytes from {}", message.len(), message.peer());
    /// }
    /// # Ok::<(), tontine::Error>(())
    /// ```
    #[inline]
    pub fn recv(&mut self) -> Result<Message<'_>> {
        if let Some(from) = self.recv_fast(self.looks()) {
            return Ok(self.message(from));
        }
        self.recv_slowly(None)
    }

    /// Returns the next message, if any, without blocking; acknowledges the previous message.
    ///
    /// Finds each message that a connected sender sent before the call. Senders that are connecting
    /// are accepted by a call that enters the kernel: each call while no sender is connected;
    /// otherwise one of the 64 calls after 5 ms have passed, and the first of them if the program
    /// calls rarely. [`Mailbox::recv_timeout`] with a timeout of zero always enters the kernel.
    ///
    /// # Errors
    /// - [`Error::WouldBlock`] if there is no message.
    /// - [`Error::Forked`], [`Error::NoSenders`] and [`Error::System`] like [`Mailbox::recv`].
    ///
    /// # Examples
    /// ```
    /// use tontine::{Error, mailbox::{Mailbox, Sender}};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// assert_eq!(mailbox.try_recv().unwrap_err(), Error::WouldBlock);
    ///
    /// let mut sender = Sender::connect(&path)?;
    /// sender.send(b"hello")?;
    /// assert_eq!(&*mailbox.try_recv()?, b"hello");
    /// # Ok::<(), tontine::Error>(())
    /// ```
    #[inline]
    pub fn try_recv(&mut self) -> Result<Message<'_>> {
        if self.is_vain() {
            return Err(Error::WouldBlock);
        }
        if let Some(from) = self.recv_fast(0) {
            return Ok(self.message(from));
        }
        match self.next_or_service()? {
            Some(taken) => Ok(self.hand_out(taken)),
            None => Err(self.no_message()),
        }
    }

    /// Blocks for at most `timeout` until a message arrives, and returns it; acknowledges the
    /// previous message. A signal does not end this wait either.
    ///
    /// # Errors
    /// - [`Error::TimedOut`] if no message arrived within `timeout`.
    /// - Otherwise the errors of [`Mailbox::recv`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tontine::{Error, mailbox::Mailbox};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let error = mailbox.recv_timeout(Duration::from_millis(10)).unwrap_err();
    /// assert_eq!(error, Error::TimedOut);
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message<'_>> {
        if let Some(from) = self.recv_fast(0) {
            return Ok(self.message(from));
        }
        self.recv_slowly(Instant::now().checked_add(timeout))
    }

    /// Blocks until a message arrives and returns a view of it in the sender's memory, without a
    /// copy; acknowledges the previous message.
    ///
    /// # Safety
    /// The caller guarantees:
    ///
    /// 1. While the returned [`InPlace`] exists, the sending process does not write to the
    ///    message's bytes. A sender that uses this library never writes to a message after sending
    ///    it, but a hostile one can, and the bytes of a Rust slice must not change while the slice
    ///    exists.
    /// 2. Point 1 holds for every process that can send to this mailbox, since the next message may
    ///    come from any of them: every process that the mailbox's [`Options`] allow to connect, and
    ///    the other ends of [adopted](Mailbox::adopt) sockets.
    ///
    /// The library checks everything else that a sender writes (lengths and positions), as in
    /// [`Mailbox::recv`].
    ///
    /// # Errors
    /// The errors of [`Mailbox::recv`].
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{Mailbox, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Sender::connect(&path)?;
    /// sender.send(&[1; 1000])?;
    ///
    /// // SAFETY: only this program's own senders know the path, and they use this library.
    /// let message = unsafe { mailbox.recv_in_place()? };
    /// assert_eq!(message.iter().map(|byte| u32::from(*byte)).sum::<u32>(), 1000);
    /// # Ok::<(), tontine::Error>(())
    /// ```
    #[inline]
    pub unsafe fn recv_in_place(&mut self) -> Result<InPlace<'_>> {
        let taken = match self.take_fast(self.looks()) {
            Some(taken) => taken,
            None => self.wait(None)?,
        };
        Ok(self.show(taken))
    }

    /// Returns a view like [`Mailbox::recv_in_place`] if there is a message, without blocking.
    ///
    /// # Safety
    /// The caller guarantees points 1 and 2 of [`Mailbox::recv_in_place`].
    ///
    /// # Errors
    /// - [`Error::WouldBlock`] if there is no message.
    /// - [`Error::Forked`], [`Error::NoSenders`] and [`Error::System`] like [`Mailbox::recv`].
    #[inline]
    pub unsafe fn try_recv_in_place(&mut self) -> Result<InPlace<'_>> {
        let taken = match self.take_fast(0) {
            Some(taken) => taken,
            None => self.next_or_service()?.ok_or_else(|| self.no_message())?,
        };
        Ok(self.show(taken))
    }

    /// Acknowledges the message last received: if this process dies, a successor does not receive
    /// it again. The next receiving call also acknowledges it.
    ///
    /// `ack` immediately notifies a sender that waits for free space or for acknowledgements. An
    /// acknowledgement by the next receiving call reaches the sender later: when more of them have
    /// accumulated, or when there is nothing else to read. So call `ack` before long work.
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
    /// let job = mailbox.recv()?.to_vec();
    /// assert_ne!(sender.unread_bytes(), 0);
    ///
    /// mailbox.ack(); // now, not at the next `recv`
    /// assert_eq!(sender.unread_bytes(), 0);
    /// println!("working on {} bytes", job.len());
    /// # Ok::<(), tontine::Error>(())
    /// ```
    #[inline]
    pub fn ack(&mut self) {
        if self.guard.is_forked() {
            return;
        }
        if let Some(taken) = self.taken.take()
            && let Some(lane) = self.lanes.at(taken.slot)
        {
            lane.ack(taken.length);
            lane.notify_if_waiting();
        }
    }

    /// Acknowledges a message, unless this is a child that `f` forked.
    fn acknowledge_now(&mut self, taken: Option<TakenMessage>) {
        if !self.guard.is_forked() {
            self.taken = taken;
            self.acknowledge_own();
        }
    }

    /// Does the work of [`Mailbox::ack`] in the process that made the mailbox, whose memory is not
    /// mapped in a forked child.
    #[inline(always)]
    fn acknowledge_own(&mut self) {
        if let Some(taken) = self.taken.take()
            && let Some(lane) = self.lanes.at(taken.slot)
        {
            lane.ack(taken.length);
        }
    }

    /// Marks the message last received as unread: the next receiving call finds it again, perhaps
    /// after messages of other senders. [`Message::redelivered`] then counts this mailbox too.
    ///
    /// Use it if the program could not do what the message asked for. If the mailbox is dropped
    /// after `requeue`, the message stays unread in its sender's memory. Without `requeue`,
    /// dropping the mailbox acknowledges the message, unless the thread is panicking.
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{Mailbox, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Sender::connect(&path)?;
    /// sender.send(b"job")?;
    /// assert_eq!(&*mailbox.recv()?, b"job");
    ///
    /// mailbox.requeue(); // the disk was full, say
    /// assert_eq!(&*mailbox.recv()?, b"job");
    /// # Ok::<(), tontine::Error>(())
    /// ```
    #[inline]
    pub fn requeue(&mut self) {
        if let Some(taken) = self.taken.take() {
            self.lanes.requeue(taken);
        }
    }

    /// Marks the message last received as unread, like `requeue`, without counting this mailbox:
    /// the program has not got the message.
    ///
    /// Public for the bindings, whose programs may have no memory for a message.
    #[doc(hidden)]
    pub fn requeue_unseen(&mut self) {
        if self.taken.take().is_some() {
            self.lanes.end_turn();
        }
    }

    /// Closes the mailbox, like dropping it, and frees its address.
    ///
    /// Senders keep the unread messages, and their calls return [`Error::Closed`]. A sender that
    /// the mailbox had not accepted yet receives [`Error::OwnerDied`] if this process has ended, or
    /// if the sender was made from a socket or does not see this process in `/proc`. A sender with
    /// [`OnDeath::WaitThroughRestarts`](crate::mailbox::OnDeath::WaitThroughRestarts) receives no
    /// error: it continues to send into its lane, and hands the lane to the next owner of the
    /// address.
    ///
    /// The message last received is acknowledged, unless it was [requeued](Mailbox::requeue) or a
    /// panic drops the mailbox. See [`Sender::take_unread`](crate::mailbox::Sender::take_unread)
    /// for an example.
    pub fn close(self) {}

    #[inline(always)]
    fn check(&self) -> Result<()> {
        if self.guard.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if self.guard.is_forked() {
            return;
        }
        // The message stays unacknowledged: the panic interrupted the program's work on it.
        if std::thread::panicking() {
            self.requeue();
        }
        self.acknowledge_own();
        for lane in self.lanes.all() {
            lane.end_turn();
            lane.close();
        }
        self.door.close();
    }
}

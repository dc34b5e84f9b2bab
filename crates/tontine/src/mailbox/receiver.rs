//! The receiving end: [`Mailbox`].

#![allow(unsafe_code, reason = "functions whose callers guarantee what other processes do")]

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::address::Address;
use super::inbound::LaneScan;
use super::lanes::{Lanes, TakenMessage};
use super::listener::Listener;
use super::message::{InPlace, Message, SenderId};
use super::options::{Fences, Options};
use super::spin::SpinPolicy;
use crate::error::{Error, Result};
use crate::life::{Life, MailboxSlot};
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
/// and the address is free for the next owner.
///
/// # Examples
/// ```
/// use tontine::mailbox::{Mailbox, Sender};
///
/// # fn main() -> tontine::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let mut mailbox = Mailbox::bind(&path)?;
/// let mut sender = Sender::connect(&path)?; // usually in another process
/// sender.send(b"hello")?;
///
/// let message = mailbox.recv()?;
/// assert_eq!(&*message, b"hello");
/// assert_eq!(message.peer().pid, Some(std::process::id()));
/// # Ok(())
/// # }
/// ```
pub struct Mailbox {
    pub(super) guard: Guard,
    pub(super) lanes: Lanes,
    /// The message returned last; the next receiving call acknowledges it.
    pub(super) taken: Option<TakenMessage>,
    pub(super) copied: Vec<u8>,
    /// Time since which a long copy buffer has been unused.
    pub(super) copy_idle_since: Option<Instant>,
    /// Passes and turns since the last service of the connections.
    pub(super) since_service: u32,
    pub(super) armed: bool,
    pub(super) door: Listener,
    pub(super) desk: MailboxSlot,
    pub(super) life: &'static Life,
    pub(super) options: Options,
    pub(super) spin: SpinPolicy,
    pub(super) can_interrupt: bool,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("sender_count", &self.lanes.len()).finish_non_exhaustive()
    }
}

impl Options {
    /// Opens a mailbox at `address` with these settings.
    ///
    /// # Errors
    /// The errors of [`Mailbox::bind`], in particular [`Error::AddrInUse`], and
    /// [`Error::InvalidOption`] if a setting is invalid for a mailbox.
    pub fn bind(&self, address: impl Into<Address>) -> Result<Mailbox> {
        let address = address.into();
        self.with_descriptors(|| Mailbox::open(Some(address.clone()), self.clone()))
    }

    /// Opens a mailbox without an address, with these settings.
    ///
    /// # Errors
    /// The errors of [`Mailbox::unbound`], and [`Error::InvalidOption`] if a setting is invalid for
    /// a mailbox.
    pub fn unbound(&self) -> Result<Mailbox> {
        self.with_descriptors(|| Mailbox::open(None, self.clone()))
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
    /// # fn main() -> tontine::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mailbox = Mailbox::bind(&path)?;
    /// let error = Mailbox::bind(&path).unwrap_err(); // an address has one owner
    /// assert!(matches!(error, tontine::Error::AddrInUse { .. }));
    ///
    /// drop(mailbox);
    /// let mailbox = Mailbox::bind(&path)?;
    /// # Ok(())
    /// # }
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

    pub(super) fn open(address: Option<Address>, options: Options) -> Result<Self> {
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
        })
    }

    /// Adds a connected `SOCK_SEQPACKET` socket of `AF_UNIX`, whose other end a sender passes to
    /// [`Sender::from_socket`](super::Sender::from_socket).
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
    /// # fn main() -> tontine::Result<()> {
    /// let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    /// let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    ///
    /// let mut mailbox = Mailbox::unbound()?;
    /// mailbox.adopt(ours)?;
    /// let mut sender = Sender::from_socket(theirs)?; // after a fork, in the child
    /// sender.send(b"hello")?;
    /// assert_eq!(&*mailbox.recv()?, b"hello");
    /// # Ok(())
    /// # }
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
    /// - [`Error::System`] if the kernel refuses to wait.
    ///
    /// The death or misbehaviour of a sender is not an error of `recv`: see
    /// [`Mailbox::take_errors`].
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{Mailbox, Sender};
    ///
    /// # fn main() -> tontine::Result<()> {
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
    /// # Ok(())
    /// # }
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
    /// - [`Error::Forked`] and [`Error::System`] like [`Mailbox::recv`].
    ///
    /// # Examples
    /// ```
    /// use tontine::{Error, mailbox::{Mailbox, Sender}};
    ///
    /// # fn main() -> tontine::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// assert_eq!(mailbox.try_recv().unwrap_err(), Error::WouldBlock);
    ///
    /// let mut sender = Sender::connect(&path)?;
    /// sender.send(b"hello")?;
    /// assert_eq!(&*mailbox.try_recv()?, b"hello");
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn try_recv(&mut self) -> Result<Message<'_>> {
        if self.is_vain() {
            return Err(Error::WouldBlock);
        }
        if let Some(from) = self.recv_fast(0) {
            return Ok(self.message(from));
        }
        let taken = self.next_or_service()?.ok_or(Error::WouldBlock)?;
        Ok(self.hand_out(taken))
    }

    /// Blocks for at most `timeout` until a message arrives, and returns it; acknowledges the
    /// previous message. A signal does not end this wait either.
    ///
    /// # Errors
    /// - [`Error::TimedOut`] if no message arrived within `timeout`.
    /// - [`Error::Forked`] and [`Error::System`] like [`Mailbox::recv`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tontine::{Error, mailbox::Mailbox};
    ///
    /// # fn main() -> tontine::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let error = mailbox.recv_timeout(Duration::from_millis(10)).unwrap_err();
    /// assert_eq!(error, Error::TimedOut);
    /// # Ok(())
    /// # }
    /// ```
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message<'_>> {
        if let Some(from) = self.recv_fast(0) {
            return Ok(self.message(from));
        }
        self.recv_slowly(Instant::now().checked_add(timeout))
    }

    /// Blocks for the first message, then passes up to `max` queued messages to `f`, and
    /// acknowledges each when `f` returns. Returns the number of messages.
    ///
    /// If `max` is 0, returns 0 immediately.
    ///
    /// # Errors
    /// [`Error::Forked`] and [`Error::System`] like [`Mailbox::recv`], but only before the first
    /// message is passed to `f`. The next call returns an error that occurs later.
    ///
    /// # Panics
    /// Panics if `f` does. The message that was passed to `f` stays unacknowledged and is received
    /// again; the messages before it are acknowledged.
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
    /// for number in 0..10_u8 {
    ///     sender.send(&[number])?;
    /// }
    /// let (mut sum, mut received) = (0, 0);
    /// while received < 10 {
    ///     received += mailbox.recv_batch(4, |message| sum += u32::from(message[0]))?;
    /// }
    /// assert_eq!(sum, 45);
    /// # Ok(())
    /// # }
    /// ```
    pub fn recv_batch(&mut self, max: usize, mut f: impl FnMut(&Message<'_>)) -> Result<usize> {
        if max == 0 {
            return Ok(0);
        }
        let first = match self.recv_fast(self.looks()) {
            Some(from) => from,
            None => self.recv_slowly(None).map(|message| (message.sender, message.peer))?,
        };
        // The message is taken out first: if `f` panics, the next call must not acknowledge it.
        let taken = self.taken.take();
        f(&self.message(first));
        self.acknowledge_now(taken);
        let mut count = 1;
        while count < max && !self.guard.is_forked() {
            if let Some((lane, turn)) = self.lanes.whole_turn(max - count) {
                count += lane.drain(turn, &mut self.copied, self.guard, &mut f);
            }
            if count < max {
                let Ok(Some(taken)) = self.next() else { break };
                self.taken = None;
                f(&self.hand_out(taken));
                self.acknowledge_now(Some(taken));
                count += 1;
            }
        }
        Ok(count)
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
    /// [`Error::Forked`] and [`Error::System`] like [`Mailbox::recv`].
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
    /// sender.send(&[1; 1000])?;
    ///
    /// // SAFETY: only this program's own senders know the path, and they use this library.
    /// let message = unsafe { mailbox.recv_in_place()? };
    /// assert_eq!(message.iter().map(|byte| u32::from(*byte)).sum::<u32>(), 1000);
    /// # Ok(())
    /// # }
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
    /// - [`Error::Forked`] and [`Error::System`] like [`Mailbox::recv`].
    #[inline]
    pub unsafe fn try_recv_in_place(&mut self) -> Result<InPlace<'_>> {
        let taken = match self.take_fast(0) {
            Some(taken) => taken,
            None => self.next_or_service()?.ok_or(Error::WouldBlock)?,
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
    /// # fn main() -> tontine::Result<()> {
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
    /// # Ok(())
    /// # }
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
            lane.tell_if_waiting();
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
    pub(super) fn acknowledge_own(&mut self) {
        if let Some(taken) = self.taken.take()
            && let Some(lane) = self.lanes.at(taken.slot)
        {
            lane.ack(taken.length);
        }
    }

    /// Marks the message last received as unread: the next receiving call finds it again, perhaps
    /// after messages of other senders.
    ///
    /// Use it if the program could not do what the message asked for. If the mailbox is dropped
    /// after `requeue`, the message stays unread in its sender's memory. Without `requeue`,
    /// dropping the mailbox acknowledges the message, unless the thread is panicking.
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
    /// sender.send(b"job")?;
    /// assert_eq!(&*mailbox.recv()?, b"job");
    ///
    /// mailbox.requeue(); // the disk was full, say
    /// assert_eq!(&*mailbox.recv()?, b"job");
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn requeue(&mut self) {
        self.taken = None;
    }

    /// Returns the number of connected senders.
    ///
    /// A sender is counted from the receiving call that accepts it until it has ended and
    /// everything that it sent is read.
    pub fn sender_count(&self) -> usize {
        self.lanes.len()
    }

    /// Returns the number of lanes that have ended since the mailbox was opened.
    pub(crate) fn departures(&self) -> u64 {
        self.lanes.departures
    }

    /// Returns `true` if every lane is read to its end: no lane has a message, and no lane is stuck
    /// because this process lacks a resource.
    pub(crate) fn is_read_out(&mut self) -> bool {
        self.look_everywhere() == LaneScan::Nothing && !self.lanes.all().any(|lane| lane.is_short())
    }

    /// Removes and returns the errors, since the last call, of lanes that had to be closed and of
    /// peers that were refused: at most the newest 64, oldest first.
    ///
    /// # Examples
    /// ```
    /// # let mut mailbox = tontine::mailbox::Mailbox::unbound()?;
    /// for error in mailbox.take_errors() {
    ///     eprintln!("{error}"); // names the process
    /// }
    /// # Ok::<(), tontine::Error>(())
    /// ```
    #[must_use = "errors that were taken are not returned again"]
    pub fn take_errors(&mut self) -> Vec<Error> {
        self.lanes.take_faults()
    }

    /// Returns `true` while the process at the other end of a lane lives (one load), or `None` if
    /// the lane is gone.
    pub fn is_alive(&mut self, sender: SenderId) -> Option<bool> {
        self.lanes.named(sender).map(|lane| lane.watch.is_alive())
    }

    /// Closes the mailbox, like dropping it, and frees its address.
    ///
    /// Senders keep the unread messages, and their calls return [`Error::Closed`]. A sender that
    /// the mailbox had not accepted yet receives [`Error::OwnerDied`] if this process has ended, or
    /// if the sender was made from a socket or does not see this process in `/proc`. A sender with
    /// [`OnDeath::WaitThroughRestarts`](super::OnDeath::WaitThroughRestarts) receives no error: it
    /// continues to send into its lane, and hands the lane to the next owner of the address.
    ///
    /// The message last received is acknowledged, unless it was [requeued](Mailbox::requeue) or a
    /// panic drops the mailbox. See [`Sender::take_unread`](super::Sender::take_unread) for an
    /// example.
    pub fn close(self) {}

    #[inline(always)]
    pub(super) fn check(&self) -> Result<()> {
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
            lane.close();
        }
        self.door.close();
    }
}

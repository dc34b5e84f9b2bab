//! Settings of a mailbox or a sender: [`Options`], [`MailboxOptions`] and [`SenderOptions`].
//!
//! Neighbours: [`super::settings`] holds the values. [`super::receiver`] and [`super::sender`]
//! contain the functions that open an end.

use std::marker::PhantomData;
use std::time::Duration;

use super::settings::{Allowed, Fences, ListenerCheck, OnDeath, Order, Settings, WaitStrategy};

/// Settings of a [`Mailbox`](super::Mailbox) or a [`Sender`](super::Sender); each end has its own.
///
/// A setting of one end makes the options that end's: [`MailboxOptions`], which
/// [`bind`](Options::bind), [`unbound`](Options::unbound) and [`listen`](Options::listen) open, or
/// [`SenderOptions`], which [`connect`](Options::connect) and
/// [`connect_socket`](Options::connect_socket) open. Options that
/// have only settings of both ends open either.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tontine::mailbox::{Fences, OnDeath, Options, WaitStrategy};
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let both = Options::new()
///     .lane_cap(1 << 20) // bytes
///     .allow_uid(1000) // and the own user
///     .handshake_timeout(Duration::from_secs(1));
///
/// let mut mailbox = both
///     .clone()
///     .mailbox_cap(16 << 20)
///     .max_lanes(16)
///     .shrink_after(Duration::from_secs(10))
///     .mode(0o660)
///     .wait_strategy(WaitStrategy::Sleep)
///     .bind(&path)?;
///
/// let mut sender = both
///     .on_death(OnDeath::WaitForSuccessor)
///     .first_chunk(1 << 16)
///     .fences(Fences::Symmetric)
///     .connect(&path)?;
/// sender.send(b"hello")?;
/// assert_eq!(&*mailbox.recv()?, b"hello");
/// # Ok::<(), tontine::Error>(())
/// ```
///
/// A setting that the end would ignore does not compile:
///
/// ```compile_fail,E0599
/// # use tontine::mailbox::Options;
/// Options::new().max_lanes(4).connect("/run/jobs")?; // a sender has one lane
/// # Ok::<(), tontine::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "options take effect in `bind`, `unbound`, `listen`, `connect` or `connect_socket`"]
pub struct Options<E = AnyEnd> {
    pub(super) settings: Settings,
    end: PhantomData<fn() -> E>,
}

/// Settings of a [`Mailbox`](super::Mailbox): [`Options`] with at least one that only a mailbox
/// has.
pub type MailboxOptions = Options<ReceivingEnd>;

/// Settings of a [`Sender`](super::Sender): [`Options`] with at least one that only a sender has.
pub type SenderOptions = Options<SendingEnd>;

/// Either end, in the type of [`Options`] that have only settings of both.
#[derive(Debug, Clone, Copy)]
pub enum AnyEnd {}

/// The receiver's end, in the type of [`MailboxOptions`].
#[derive(Debug, Clone, Copy)]
pub enum ReceivingEnd {}

/// The sender's end, in the type of [`SenderOptions`].
#[derive(Debug, Clone, Copy)]
pub enum SendingEnd {}

/// An end that [`Options`] may open as a mailbox: [`AnyEnd`] or [`ReceivingEnd`].
pub trait Receives: sealed::Sealed {}
impl Receives for AnyEnd {}
impl Receives for ReceivingEnd {}

/// An end that [`Options`] may open as a sender: [`AnyEnd`] or [`SendingEnd`].
pub trait Sends: sealed::Sealed {}
impl Sends for AnyEnd {}
impl Sends for SendingEnd {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::AnyEnd {}
    impl Sealed for super::ReceivingEnd {}
    impl Sealed for super::SendingEnd {}
}

impl From<Options> for MailboxOptions {
    fn from(options: Options) -> Self {
        Self::of(options.settings)
    }
}

impl From<Options> for SenderOptions {
    fn from(options: Options) -> Self {
        Self::of(options.settings)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Returns the default settings.
    ///
    /// A lane begins with 4 KiB and grows to 64 MiB; a mailbox grows to 1 GiB and 1,024 lanes. Both
    /// ends poll while that pays, then sleep, and accept peers of the same user only.
    pub fn new() -> Self {
        Self::of(Settings::default())
    }
}

/// Settings of both ends.
impl<E> Options<E> {
    fn of(settings: Settings) -> Self {
        Self { settings, end: PhantomData }
    }

    /// Sets the *lane cap*: the maximum number of bytes in the chunks of one lane (default 64 MiB;
    /// at least 4,096).
    ///
    /// A chunk is a piece of the lane's memory. The smaller of the two ends' caps applies. The
    /// longest message is a little less than a quarter of the largest power of two within the cap.
    /// Chunks that the sender no longer uses count against the cap until the receiver releases
    /// them.
    ///
    /// A receiver lets a lane grow to 1 MiB before it accepts the lane, whatever its own cap is,
    /// because the sender does not know the cap yet.
    pub fn lane_cap(mut self, bytes: u64) -> Self {
        self.settings.lane_cap = bytes.max(4096);
        self
    }

    /// Sets how this end waits (default [`WaitStrategy::Adaptive`]).
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.settings.wait_strategy = strategy;
        self
    }

    /// Sets whether a signal handler ends a blocking call (default `false`: the handler runs, and
    /// the wait continues).
    ///
    /// If `true`, a receive, a send that waits for space, and
    /// [`wait_acked`](super::Sender::wait_acked) return [`Error::Interrupted`] when a handler has
    /// run while the call slept in the kernel, with or without `SA_RESTART`. A handler that runs at
    /// another time, for example while the call polls, does not end the call. To avoid missing a
    /// signal, block it, and wait on a signalfd ([`SignalFd`](crate::signal::SignalFd)) together
    /// with the descriptor of the end.
    ///
    /// [`Error::Interrupted`]: crate::Error::Interrupted
    pub fn interruptible(mut self, interruptible: bool) -> Self {
        self.settings.interruptible = interruptible;
        self
    }

    /// Sets which end executes the memory fences (default [`Fences::Asymmetric`]).
    pub fn fences(mut self, fences: Fences) -> Self {
        self.settings.fences = fences;
        self
    }

    /// Accepts peers of this user too.
    ///
    /// By default only peers with the process's effective user id are accepted. That id is read
    /// when the options are made: a later `setuid` changes nothing. The overflow uid (65534 unless
    /// `/proc/sys/kernel/overflowuid` differs) counts as the process's own only if its user
    /// namespace maps all users, because the kernel reports every other user by this uid. Allow it
    /// by this method to accept them.
    pub fn allow_uid(mut self, uid: u32) -> Self {
        if let Allowed::Users { others, .. } = &mut self.settings.allowed {
            others.push(uid);
        }
        self
    }

    /// Accepts peers of any user, including users whose ids are not mapped in this namespace.
    pub fn allow_any_uid(mut self) -> Self {
        self.settings.allowed = Allowed::Anyone;
        self
    }

    /// Sets whether a lack of descriptors raises the process's soft limit of descriptors
    /// (`RLIMIT_NOFILE`; default `true`).
    ///
    /// The limit is doubled as often as a call lacks a descriptor, up to the hard limit. The kernel
    /// also bounds the descriptors that one user has in flight by the soft limit of the process
    /// that sends (ETOOMANYREFS). Programs that this process starts afterwards inherit the raised
    /// limit, unless it is lowered in the child before `exec`; one that uses `select` then cannot
    /// watch its descriptors above 1,023.
    pub fn raise_descriptor_limit(mut self, raises: bool) -> Self {
        self.settings.raises_limit = raises;
        self
    }

    /// Sets how long a peer may take from connecting to its first control message (default 5 s).
    ///
    /// It is also the maximum time that a connecting sender waits while the receiver has no
    /// descriptor or memory to accept it; the receiver then refuses the sender, which may retry.
    /// For a sender, it limits how long `connect` waits while the owner's backlog is full.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.settings.handshake_timeout = timeout;
        self
    }
}

/// Settings of a mailbox.
impl<E: Receives> Options<E> {
    /// Sets the *mailbox cap*: the maximum number of bytes in the chunks of all lanes of a mailbox
    /// together (default 1 GiB; at least 4,096).
    ///
    /// The lanes have up to twice as much if some are empty and their senders, which make no call,
    /// do not return memory that others need. Messages that were sent before the mailbox accepted
    /// the lane may exceed the cap too, up to 1 MiB more than twice the cap.
    pub fn mailbox_cap(mut self, bytes: u64) -> MailboxOptions {
        self.settings.mailbox_cap = bytes.max(4096);
        Options::of(self.settings)
    }

    /// Sets the maximum number of senders that a mailbox accepts at the same time (default 1,024;
    /// at least 1).
    ///
    /// Each sender takes three descriptors at each end. `bind` returns [`Error::InvalidOption`] for
    /// 0.
    ///
    /// [`Error::InvalidOption`]: crate::Error::InvalidOption
    pub fn max_lanes(mut self, lanes: usize) -> MailboxOptions {
        self.settings.max_lanes = lanes;
        Options::of(self.settings)
    }

    /// Sets the order in which a mailbox receives messages of different senders (default
    /// [`Order::BySender`]).
    ///
    /// `bind` returns [`Error::NoSharedClock`] for [`Order::Causal`] if the kernel's clock source
    /// is not the processor's counter.
    ///
    /// [`Error::NoSharedClock`]: crate::Error::NoSharedClock
    pub fn order(mut self, order: Order) -> MailboxOptions {
        self.settings.order = order;
        Options::of(self.settings)
    }

    /// Sets whether receiving calls of a mailbox report that it has no senders (default `false`:
    /// they wait for the next sender).
    ///
    /// If `true`, a call that would wait returns [`Error::NoSenders`] once every sender that had
    /// connected has ended and all that they sent was received, like a channel of
    /// [`std::sync::mpsc`]. No call returns it before a first sender was accepted, nor while a
    /// process is connecting or an [adopted](super::Mailbox::adopt) socket may become a lane. The
    /// mailbox stays open: after the next sender has connected, calls receive its messages.
    ///
    /// [`Error::NoSenders`]: crate::Error::NoSenders
    ///
    /// # Examples
    /// ```
    /// use tontine::{Error, mailbox::{Options, Sender}};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Options::new().report_no_senders(true).bind(&path)?;
    /// let mut sender = Sender::connect(&path)?;
    /// sender.send(b"the last one")?;
    /// drop(sender);
    ///
    /// assert_eq!(&*mailbox.recv()?, b"the last one");
    /// assert_eq!(mailbox.recv().unwrap_err(), Error::NoSenders);
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn report_no_senders(mut self, reports: bool) -> MailboxOptions {
        self.settings.reports_no_senders = reports;
        Options::of(self.settings)
    }

    /// Accepts senders of this group too, whatever their user: it was their effective group, or one
    /// of their supplementary groups, when they connected.
    ///
    /// A sender in another PID namespace is accepted by its effective group only. Senders check the
    /// mailbox's user, so they allow it ([`Options::allow_uid`]); and a mode of `0o660` and the
    /// folder's group let them connect. The overflow gid (65534) stands for every group that the
    /// user namespace does not map.
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{Options, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Options::new().mode(0o660).allow_gid(1000).bind(&path)?;
    /// # Sender::connect(&path)?.send(b"hello")?;
    /// let message = mailbox.recv()?; // of the own user, or of any member of group 1000
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn allow_gid(mut self, gid: u32) -> MailboxOptions {
        self.settings.allowed_groups.push(gid);
        Options::of(self.settings)
    }

    /// Sets the permissions of a mailbox's socket in the file system (default `0o600`).
    ///
    /// `bind` returns [`Error::InvalidOption`] for more than `0o777`.
    ///
    /// [`Error::InvalidOption`]: crate::Error::InvalidOption
    pub fn mode(mut self, mode: u32) -> MailboxOptions {
        self.settings.mode = mode;
        Options::of(self.settings)
    }

    /// Sets how long a lane must stay empty before its sender is told to return its large
    /// chunk to the kernel (default 50 ms).
    ///
    /// The time doubles each time that the lane grows again after it has returned memory, up to 64
    /// times this time, unless other lanes request memory.
    pub fn shrink_after(mut self, idle: Duration) -> MailboxOptions {
        self.settings.shrink_after = idle;
        Options::of(self.settings)
    }
}

/// Settings of a sender.
impl<E: Sends> Options<E> {
    /// Sets the number of bytes in a sender's first chunk (default 4,096), rounded up to a power of
    /// two, at most 1 GiB.
    ///
    /// A lane that has been empty for a while returns to this size. A receiver whose caps are
    /// smaller refuses the lane.
    pub fn first_chunk(mut self, bytes: u64) -> SenderOptions {
        self.settings.first_chunk = bytes.clamp(4096, 1 << 30).next_power_of_two();
        Options::of(self.settings)
    }

    /// Sets the maximum number of bytes in the chunks of a lane in which messages of 64 KiB and
    /// more wait (default: the lane cap).
    ///
    /// A sender that is faster than its receiver then waits for free space, which is in memory that
    /// both ends have used before, rather than continue in a larger chunk. The lane grows further
    /// for a message that does not fit into its chunk, and for shorter messages.
    pub fn large_backlog(mut self, bytes: u64) -> SenderOptions {
        self.settings.large_backlog = bytes;
        Options::of(self.settings)
    }

    /// Sets for how long `connect` waits while the address has no owner (default: it does not
    /// wait).
    ///
    /// A sender can then start before its receiver. While the path's folder exists, the kernel
    /// reports a new owner, and `connect` sleeps; otherwise, and for an abstract name, it tries
    /// again every 10 ms. It returns [`Error::NoMailbox`] once the timeout has expired, and any
    /// other error at once.
    ///
    /// [`Error::NoMailbox`]: crate::Error::NoMailbox
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tontine::mailbox::{Mailbox, Options};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// # let address = path.clone();
    /// let sender = std::thread::spawn(move || {
    ///     Options::new().wait_for_owner(Duration::from_secs(60)).connect(&address)?.send(b"hello")
    /// });
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// assert_eq!(&*mailbox.recv()?, b"hello");
    /// # sender.join().expect("no panic")?;
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn wait_for_owner(mut self, timeout: Duration) -> SenderOptions {
        self.settings.wait_for_owner = Some(timeout);
        Options::of(self.settings)
    }

    /// Sets what a sender does if its receiver has died or closed (default [`OnDeath::Fail`]).
    pub fn on_death(mut self, on_death: OnDeath) -> SenderOptions {
        self.settings.on_death = on_death;
        Options::of(self.settings)
    }

    /// Sets the requirement on the process that listens, for a lane that no receiver has accepted
    /// (default [`ListenerCheck::Required`]). Public for the Python binding.
    #[doc(hidden)]
    pub fn check_listener(mut self, check: ListenerCheck) -> SenderOptions {
        self.settings.check_listener = check;
        Options::of(self.settings)
    }
}

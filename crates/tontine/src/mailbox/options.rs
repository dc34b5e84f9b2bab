//! Settings of a mailbox or a sender: [`Options`].
//!
//! Neighbours: [`super::receiver`] and [`super::sender`] contain the functions that open an end.

use std::time::Duration;

use crate::error::{Error, Peer, Result};
use crate::sys::{limits, user};

/// Settings of a [`Mailbox`](super::Mailbox) or a [`Sender`](super::Sender); each end has its own.
///
/// An end ignores the settings that it does not use. [`Options::bind`], [`Options::unbound`],
/// [`Options::connect`] and [`Options::connect_socket`] open an end with them.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tontine::mailbox::{Fences, OnDeath, Options, WaitStrategy};
///
/// # fn main() -> tontine::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let mut mailbox = Options::new()
///     .lane_cap(1 << 20) // bytes
///     .mailbox_cap(16 << 20)
///     .max_lanes(16)
///     .mode(0o660)
///     .allow_uid(1000) // and the own user
///     .wait_strategy(WaitStrategy::Sleep)
///     .bind(&path)?;
///
/// let mut sender = Options::new()
///     .on_death(OnDeath::WaitForSuccessor)
///     .first_chunk(1 << 16)
///     .shrink_after(Duration::from_secs(10))
///     .fences(Fences::Symmetric)
///     .handshake_timeout(Duration::from_secs(1))
///     .connect(&path)?;
/// sender.send(b"hello")?;
/// assert_eq!(&*mailbox.recv()?, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "options take effect in `bind`, `unbound`, `connect` or `connect_socket`"]
pub struct Options {
    pub(crate) lane_cap: u64,
    pub(crate) mailbox_cap: u64,
    pub(crate) max_lanes: usize,
    pub(crate) first_chunk: u64,
    pub(crate) wait_strategy: WaitStrategy,
    pub(crate) interruptible: bool,
    pub(crate) fences: Fences,
    pub(crate) on_death: OnDeath,
    pub(crate) mode: u32,
    pub(crate) allowed: Allowed,
    /// Whether the soft limit of descriptors may be raised.
    pub(crate) raises_limit: bool,
    pub(crate) handshake_timeout: Duration,
    pub(crate) shrink_after: Duration,
    /// `true` for a [`Relay`](super::Relay).
    pub(super) relays: bool,
}

/// The strategy by which an end waits: a receiver for messages, a sender for free space.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tontine::mailbox::{Options, WaitStrategy};
///
/// let options = Options::new();
/// # let _ =
/// options.wait_strategy(WaitStrategy::SpinThenSleep(Duration::from_micros(50)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Polls until the wait is over: lowest latency, but occupies a whole processor.
    Spin,
    /// Sleeps in the kernel immediately.
    Sleep,
    /// Polls for this long, then sleeps in the kernel.
    SpinThenSleep(Duration),
    /// Polls for up to 100 µs while that pays, then sleeps in the kernel: the default.
    ///
    /// While polls take more processor time than they save, the end polls in few of its waits, at
    /// least one of 128. A poll that ends a wait saves about 20 µs.
    Adaptive,
}

/// Memory fences that keep a wake-up from being lost when one end of a lane goes to sleep.
///
/// The sending end stores its message, then checks whether the other end sleeps. The end that is
/// about to sleep announces its sleep, then checks for messages once more. At least one end must
/// see the other's store, so each needs a fence between its two steps, or one end must execute the
/// fence for both. See [`Options`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fences {
    /// No fence in `send`. An end that goes to sleep interrupts the other processors with
    /// `membarrier(2)`, which takes 7 to 10 µs. If the kernel does not support `membarrier` or the
    /// peer does not use it, the lane is symmetric.
    Asymmetric,
    /// A full fence in each `send`, about 5 ns. Going to sleep has no extra cost.
    Symmetric,
}

/// Behaviour of a sender whose receiver has died or closed its mailbox.
///
/// A sender that waits for a successor works as follows until it finds one:
///
/// - There is no time limit. Messages are still appended to the lane, which grows up to its cap. If
///   the lane is full, [`Sender::send`](super::Sender::send) blocks,
///   [`try_send`](super::Sender::try_send) returns [`Error::WouldBlock`], and
///   [`send_timeout`](super::Sender::send_timeout) returns [`Error::TimedOut`];
///   [`wait_acked`](super::Sender::wait_acked) blocks while messages are unread.
/// - The sender has no thread, so it looks for the next owner only inside the calls that send or
///   wait and in [`Sender::service`](super::Sender::service), at most every 5 ms (every 100 ms if
///   the last owner refused the lane). A program that has nothing to send calls `service` from time
///   to time.
/// - [`Sender::take_unread`](super::Sender::take_unread) removes and returns the messages that no
///   receiver has acknowledged. If the sender is dropped or its process ends, these messages are
///   lost.
/// - If an owner is short of space, memory or descriptors, the sender tries again later. If the
///   owner refuses the lane for another reason, the wait ends: this call and all later ones return
///   the error ([`Error::Denied`], [`Error::Refused`], [`Error::VersionMismatch`]). If this process
///   is short of memory or descriptors for longer than the handshake timeout, calls return
///   [`Error::System`], and the wait continues.
///
/// If the receiver is a [`Relay`](super::Relay), its end is not the owner's: once it has accepted
/// the lane, the sender waits for the next relay in this way, whatever its setting. The setting
/// applies to the remote owner, and it is up to the relay's program to honour it.
///
/// The first connection does not wait: if there is no owner,
/// [`Sender::connect`](super::Sender::connect) returns [`Error::NoMailbox`]. A sender over a socket
/// ([`Options::connect_socket`]) has no address, hence no successor, and behaves as with
/// [`Fail`](OnDeath::Fail).
///
/// # Examples
/// ```
/// use tontine::mailbox::{Mailbox, OnDeath, Options};
///
/// # fn main() -> tontine::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let mailbox = Mailbox::bind(&path)?;
/// let mut sender = Options::new().on_death(OnDeath::WaitThroughRestarts).connect(&path)?;
/// sender.send(b"first")?;
/// drop(mailbox); // the service stops before it has received anything
///
/// let mut mailbox = Mailbox::bind(&path)?; // and starts again
/// sender.send(b"second")?;
/// assert_eq!(&*mailbox.recv()?, b"first");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDeath {
    /// Calls return [`Error::OwnerDied`] if the receiver has died and [`Error::Closed`] if it has
    /// closed its mailbox. [`Sender::take_unread`](super::Sender::take_unread) returns the messages
    /// that were not acknowledged.
    Fail,
    /// If the receiver has died, the sender keeps the messages that were not acknowledged and hands
    /// them to the next owner of the address. If the receiver has closed its mailbox, it has ended
    /// on purpose: calls return [`Error::Closed`], as with `Fail`. A sender that the receiver had
    /// not yet accepted cannot always distinguish the two, and waits in either case.
    WaitForSuccessor,
    /// Like `WaitForSuccessor`, but the sender also waits for the next owner if the receiver has
    /// closed its mailbox. Use it for a receiver that a service manager stops and restarts.
    WaitThroughRestarts,
}

impl OnDeath {
    /// Returns `true` if the sender waits for a successor after some kind of end.
    pub(super) fn waits(self) -> bool {
        self != Self::Fail
    }

    /// Returns the number that a chunk shows.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Fail => 0,
            Self::WaitForSuccessor => 1,
            Self::WaitThroughRestarts => 2,
        }
    }

    /// Decodes the number in a peer's chunk. An unknown number means `Fail`.
    pub(super) fn from_number(number: u32) -> Self {
        match number {
            1 => Self::WaitForSuccessor,
            2 => Self::WaitThroughRestarts,
            _ => Self::Fail,
        }
    }

    /// Returns `true` if the sender waits for a successor after this end.
    pub(super) fn outlives(self, end: &Error) -> bool {
        match end {
            Error::OwnerDied { .. } => self.waits(),
            Error::Closed { .. } => self == Self::WaitThroughRestarts,
            refused => refused.is_refusal_for_now() && self.waits(),
        }
    }
}

/// Users whose processes are accepted as peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Allowed {
    Users {
        /// The effective user of this process when the options were made.
        own: u32,
        /// `true` if this uid stood for several users then.
        is_ambiguous: bool,
        others: Vec<u32>,
    },
    Anyone,
}

impl Allowed {
    /// Allows the effective user of this process alone.
    fn of_this_process() -> Self {
        let own = rustix::process::geteuid().as_raw();
        Self::Users { own, is_ambiguous: user::is_ambiguous(own), others: Vec::new() }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lane_cap: 64 << 20,
            mailbox_cap: 1 << 30,
            max_lanes: 1024,
            first_chunk: 4096,
            wait_strategy: WaitStrategy::Adaptive,
            interruptible: false,
            fences: Fences::Asymmetric,
            on_death: OnDeath::Fail,
            mode: 0o600,
            allowed: Allowed::of_this_process(),
            raises_limit: true,
            handshake_timeout: Duration::from_secs(5),
            shrink_after: Duration::from_millis(50),
            relays: false,
        }
    }
}

impl Options {
    /// Returns the default settings.
    ///
    /// A lane begins with 4 KiB and grows to 64 MiB; a mailbox grows to 1 GiB and 1,024 lanes. Both
    /// ends poll while that pays, then sleep, and accept peers of the same user only.
    pub fn new() -> Self {
        Self::default()
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
        self.lane_cap = bytes.max(4096);
        self
    }

    /// Sets the *mailbox cap*: the maximum number of bytes in the chunks of all lanes of a mailbox
    /// together (default 1 GiB; at least 4,096).
    ///
    /// The lanes have up to twice as much if some are empty and their senders, which make no call,
    /// do not return memory that others need. Messages that were sent before the mailbox accepted
    /// the lane may exceed the cap too, up to 1 MiB more than twice the cap.
    pub fn mailbox_cap(mut self, bytes: u64) -> Self {
        self.mailbox_cap = bytes.max(4096);
        self
    }

    /// Sets the maximum number of senders that a mailbox accepts at the same time (default 1,024;
    /// at least 1).
    ///
    /// Each sender takes three descriptors at each end. `bind` returns [`Error::InvalidOption`] for
    /// 0.
    pub fn max_lanes(mut self, lanes: usize) -> Self {
        self.max_lanes = lanes;
        self
    }

    /// Sets the number of bytes in a sender's first chunk (default 4,096), rounded up to a power of
    /// two, at most 1 GiB.
    ///
    /// A lane that has been empty for a while returns to this size. A receiver whose caps are
    /// smaller refuses the lane.
    pub fn first_chunk(mut self, bytes: u64) -> Self {
        self.first_chunk = bytes.clamp(4096, 1 << 30).next_power_of_two();
        self
    }

    /// Sets how this end waits (default [`WaitStrategy::Adaptive`]).
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.wait_strategy = strategy;
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
    pub fn interruptible(mut self, interruptible: bool) -> Self {
        self.interruptible = interruptible;
        self
    }

    /// Sets which end executes the memory fences (default [`Fences::Asymmetric`]).
    pub fn fences(mut self, fences: Fences) -> Self {
        self.fences = fences;
        self
    }

    /// Sets what a sender does if its receiver has died or closed (default [`OnDeath::Fail`]).
    pub fn on_death(mut self, on_death: OnDeath) -> Self {
        self.on_death = on_death;
        self
    }

    /// Sets the permissions of a mailbox's socket in the file system (default `0o600`).
    ///
    /// `bind` returns [`Error::InvalidOption`] for more than `0o777`.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
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
        if let Allowed::Users { others, .. } = &mut self.allowed {
            others.push(uid);
        }
        self
    }

    /// Accepts peers of any user, including users whose ids are not mapped in this namespace.
    pub fn allow_any_uid(mut self) -> Self {
        self.allowed = Allowed::Anyone;
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
        self.raises_limit = raises;
        self
    }

    /// Sets how long a peer may take from connecting to its first control message (default 5 s).
    ///
    /// It is also the maximum time that a connecting sender waits while the receiver has no
    /// descriptor or memory to accept it; the receiver then refuses the sender, which may retry.
    /// For a sender, it limits how long `connect` waits while the owner's backlog is full.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Sets how long a lane must stay empty before the sender returns its large chunk to the kernel
    /// (default 50 ms).
    ///
    /// The time doubles each time that the lane grows again after it has returned memory, up to 64
    /// times this time, unless other lanes request memory.
    pub fn shrink_after(mut self, idle: Duration) -> Self {
        self.shrink_after = idle;
        self
    }

    /// Checks the settings that a mailbox uses.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if one is invalid.
    pub(super) fn check(&self) -> Result<()> {
        let bad = |option, value, reason| Err(Error::InvalidOption { option, value, reason });
        if self.max_lanes == 0 {
            return bad("max_lanes", 0, "a mailbox must accept at least one sender; set 1 or more");
        }
        if self.mode & !0o777 != 0 {
            let reason = "a socket's mode has permission bits only; set at most 0o777";
            return bad("mode", self.mode, reason);
        }
        Ok(())
    }

    /// Runs `call` again for as long as it lacks descriptors and their limit can be raised.
    ///
    /// # Errors
    /// The last error of `call`.
    pub(super) fn with_descriptors<T>(&self, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match call() {
                Err(error) if self.relieves(&error) => {}
                done => return done,
            }
        }
    }

    /// Raises the limit of descriptors if that is why a call failed. Returns `true` if it was
    /// raised, so that the call may now succeed.
    pub(super) fn relieves(&self, error: &Error) -> bool {
        self.raises_limit
            && error.is_shortage()
            && [libc::EMFILE, libc::ETOOMANYREFS].contains(&error.errno())
            && limits::raise_descriptors()
    }

    /// Checks whether the peer's user is allowed.
    ///
    /// # Errors
    /// [`Error::Denied`], with the allowed users, if it is not.
    pub(super) fn admit(&self, peer: Peer) -> Result<()> {
        let Allowed::Users { own, is_ambiguous, others } = &self.allowed else { return Ok(()) };
        let is_own = peer.uid == *own && !is_ambiguous;
        if is_own || others.contains(&peer.uid) {
            return Ok(());
        }
        let allowed = std::iter::once(own).chain(others).copied().collect();
        Err(Error::Denied { peer, allowed })
    }
}

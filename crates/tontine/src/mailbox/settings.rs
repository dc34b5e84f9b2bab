//! The values of all settings, as both ends read them: [`Settings`].
//!
//! Neighbours: [`super::options`] has the builders of each end.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::error::{Error, Peer, Result};
use crate::sync::clock;
use crate::sys::socket::{self, SenderCredentials};
use crate::sys::{limits, user};

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
/// fence for both. See [`Options`](super::Options) for an example.
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

/// Requirement on the process that listens, for a lane that no receiver has accepted.
///
/// Public for the Python binding, whose queues are sockets that several processes hold.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerCheck {
    /// The process must live, and its end ends the lane.
    Required,
    /// The end of the process ends the lane, unless it has ended before.
    Watched,
    /// The end of the process changes nothing: another one may receive.
    Ignored,
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
/// If the receiver is a `Relay`, its end is not the owner's: once it has accepted
/// the lane, the sender waits for the next relay in this way, whatever its setting. The setting
/// applies to the remote owner, and it is up to the relay's program to honour it.
///
/// The first connection does not wait: if there is no owner,
/// [`Sender::connect`](super::Sender::connect) returns [`Error::NoMailbox`]. A sender over a socket
/// ([`connect_socket`](super::Options::connect_socket)) has no address, hence no successor, and
/// behaves as with [`Fail`](OnDeath::Fail).
///
/// # Examples
/// ```
/// use tontine::mailbox::{Mailbox, OnDeath, Options};
///
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
/// # Ok::<(), tontine::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDeath {
    /// Calls return [`Error::OwnerDied`] if the receiver has died and [`Error::Closed`] if it has
    /// closed its mailbox. [`Sender::take_unread`](super::Sender::take_unread) returns the messages
    /// that were not acknowledged.
    Fail = 0,
    /// If the receiver has died, the sender keeps the messages that were not acknowledged and hands
    /// them to the next owner of the address. If the receiver has closed its mailbox, it has ended
    /// on purpose: calls return [`Error::Closed`], as with `Fail`. A sender that the receiver had
    /// not yet accepted cannot always distinguish the two, and waits in either case.
    WaitForSuccessor = 1,
    /// Like `WaitForSuccessor`, but the sender also waits for the next owner if the receiver has
    /// closed its mailbox. Use it for a receiver that a service manager stops and restarts.
    WaitThroughRestarts = 2,
}

impl OnDeath {
    /// Returns `true` if the sender waits for a successor after some kind of end.
    pub(super) fn waits(self) -> bool {
        self != Self::Fail
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

/// The order in which a receiver receives messages of different senders.
///
/// The messages of one sender are always received in the order in which it sent them.
///
/// # Examples
/// ```
/// use tontine::mailbox::{Options, Order, Sender};
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let mut mailbox = Options::new().order(Order::Causal).bind(&path)?;
/// let mut workers = [Sender::connect(&path)?, Sender::connect(&path)?];
/// workers[1].send(b"result")?;
/// workers[0].send(b"done")?; // sent after the result
/// assert_eq!(&*mailbox.recv()?, b"result");
/// assert_eq!(&*mailbox.recv()?, b"done");
/// # Ok::<(), tontine::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// Each sender's own order only: the default. The receiver reads several messages of one sender
    /// before it continues with the next sender.
    BySender,
    /// If a message was sent after another, by a sender that could know this, it is received after
    /// it: as in a pipe, a socket or a queue under a lock.
    ///
    /// Each sender stamps its messages with the processor's counter, and before the receiver reads
    /// messages, it reads the counter and accepts all senders that connect: one system call for
    /// all messages that are there.
    ///
    /// The order does not hold
    /// - across the death of a receiver, for messages that the next owner of the address receives,
    ///   and for a message that was [requeued](super::Mailbox::requeue): each sender's own order;
    /// - between hosts: a gateway's messages are stamped when they arrive;
    /// - for a sender that the mailbox cannot accept yet, or whose next chunk it cannot receive
    ///   yet, because lanes, bytes, descriptors or memory are short;
    /// - while the counter jumps: when a virtual machine is moved or resumed, or the kernel drops
    ///   the counter as its clock source after `bind`.
    ///
    /// A sender that writes false stamps can only misplace its own messages.
    Causal,
}

/// The values of all settings. An end ignores those of the other end.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) lane_cap: u64,
    pub(super) mailbox_cap: u64,
    pub(super) max_lanes: usize,
    pub(super) first_chunk: u64,
    pub(super) large_backlog: u64,
    pub(super) wait_strategy: WaitStrategy,
    pub(super) interruptible: bool,
    pub(super) fences: Fences,
    pub(super) on_death: OnDeath,
    pub(super) check_listener: ListenerCheck,
    pub(super) order: Order,
    pub(super) wait_for_owner: Option<Duration>,
    pub(super) reports_no_senders: bool,
    pub(super) mode: u32,
    pub(super) allowed: Allowed,
    /// Groups whose processes a mailbox accepts as senders, in addition to users.
    pub(super) allowed_groups: Vec<u32>,
    /// Whether the soft limit of descriptors may be raised.
    pub(super) raises_limit: bool,
    pub(super) handshake_timeout: Duration,
    pub(super) shrink_after: Duration,
    /// `true` for a `Relay`.
    pub(super) relays: bool,
}

/// Users whose processes are accepted as peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Allowed {
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

impl Default for Settings {
    fn default() -> Self {
        Self {
            lane_cap: 64 << 20,
            mailbox_cap: 1 << 30,
            max_lanes: 1024,
            first_chunk: 4096,
            large_backlog: u64::MAX,
            wait_strategy: WaitStrategy::Adaptive,
            interruptible: false,
            fences: Fences::Asymmetric,
            on_death: OnDeath::Fail,
            check_listener: ListenerCheck::Required,
            order: Order::BySender,
            wait_for_owner: None,
            reports_no_senders: false,
            mode: 0o600,
            allowed: Allowed::of_this_process(),
            allowed_groups: Vec::new(),
            raises_limit: true,
            handshake_timeout: Duration::from_secs(5),
            shrink_after: Duration::from_millis(50),
            relays: false,
        }
    }
}

impl Settings {
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
        if self.relays && self.order == Order::Causal {
            let reason = "a relay reads each lane by itself, not in Order::Causal; set \
                          Order::BySender";
            return bad("order", Order::Causal as u32, reason);
        }
        if self.relays && self.reports_no_senders {
            let reason = "a relay has no call that would report it; set false, and look at \
                          Relay::lanes";
            return bad("report_no_senders", 1, reason);
        }
        if self.order == Order::Causal {
            clock::check().map_err(|found| Error::NoSharedClock { found })?;
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
        let allowed_groups = self.allowed_groups.as_slice().into();
        Err(Error::Denied { peer, allowed, allowed_groups })
    }

    /// Checks whether the process that connected a socket may send: by its user, or by its
    /// effective or supplementary groups when it connected.
    ///
    /// # Errors
    /// [`Error::Denied`], or [`Error::System`] if the kernel does not tell the groups.
    pub(super) fn admit_connected(&self, socket: impl AsFd) -> Result<()> {
        let from = socket::owner(&socket)?;
        let Err(denied) = self.admit(from.peer()) else { return Ok(()) };
        if self.allowed_groups.is_empty() {
            return Err(denied);
        }
        let groups = socket::owner_groups(socket)?;
        let is_allowed = |gid| self.allowed_groups.contains(gid);
        if is_allowed(&from.gid) || groups.iter().any(is_allowed) { Ok(()) } else { Err(denied) }
    }

    /// Checks whether the process that sent a message over a socket may send. The kernel tells the
    /// user and the group of a message, but supplementary groups only of the process that
    /// connected.
    ///
    /// # Errors
    /// The errors of [`Settings::admit_connected`].
    pub(super) fn admit_message(&self, from: SenderCredentials, socket: impl AsFd) -> Result<()> {
        let Err(denied) = self.admit(from.peer()) else { return Ok(()) };
        if self.allowed_groups.contains(&from.gid) {
            return Ok(());
        }
        // The number is 0 for every process of another PID namespace.
        let is_same = from.pid != 0 && from.pid == socket::owner(&socket)?.pid;
        if is_same { self.admit_connected(socket) } else { Err(denied) }
    }
}

//! The receiver that has accepted a lane: [`AcceptedLane`].
//!
//! [`join`] checks the content of `WELCOME` once. Neighbours: [`super::connection`] defines the
//! other states of a connection.

use std::os::fd::OwnedFd;

use crate::error::{Error, Peer, Result};
use crate::lane::control::Controlled;
use crate::lane::page::{CLOSED, GIVE_BACK, REMOTE_ENDS, STAMPS};
use crate::life::Watch;
use crate::mailbox::wire::RemoteEnd;
use crate::mailbox::wire::{self, ControlMessage, FenceMode, Welcome};
use crate::sync::{Ordering, fence};
use crate::sys::socket::{self, PassedMessage, PeerSocket, SendResult};
use crate::sys::{doorbell, membarrier, pidfd};

/// Everything that a sender holds for the receiver that accepted its lane.
pub(super) struct AcceptedLane {
    watch: Watch,
    desk: u32,
    control: Controlled,
    doorbell: PeerSocket,
    /// The number of the receiver's wait for which this sender last rang.
    rung: u64,
    symmetric: bool,
    /// `true` if the sender has returned memory, and the receiver has not confirmed the return yet.
    returned: bool,
    /// `true` if the receiver is a relay, whose own end is not the end of the lane.
    pub(super) is_relay: bool,
    pub(super) process: Option<OwnedFd>,
    pub(super) peer: Peer,
}

impl AcceptedLane {
    /// Returns `true` if a message may be sent without further checks: the receiver lives, accepts
    /// messages, and requests no memory back.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.watch.is_alive() && self.control.state() & !STAMPS == 0
    }

    /// Returns `true` if a message may be sent like this, and without a stamp.
    #[inline(always)]
    pub(super) fn is_open_unstamped(&self) -> bool {
        self.watch.is_alive() && self.control.state() == 0
    }

    /// Returns `true` if the receiver wants each message stamped.
    pub(super) fn wants_stamps(&self) -> bool {
        self.control.state() & STAMPS != 0
    }

    /// Returns `true` if the receiver has died or has closed its mailbox, or a relay's remote end
    /// has ended.
    pub(super) fn is_gone(&self) -> bool {
        let ends = if self.is_relay { CLOSED | REMOTE_ENDS } else { CLOSED };
        !self.watch.is_alive() || self.control.state() & ends != 0
    }

    /// Returns how the remote end of a relayed lane has ended.
    pub(super) fn remote_end(&self) -> Option<RemoteEnd> {
        // The state is loaded after the check that found the relay dead: a relay stores it before.
        fence(Ordering::Acquire);
        let state = if self.is_relay { self.control.state() } else { 0 };
        let end = RemoteEnd::decode(state, 0)?;
        // SYNC closed: pairs with `Control::end_remotely`.
        fence(Ordering::Acquire);
        let refused = matches!(end, RemoteEnd::Refused { .. });
        Some(if refused { RemoteEnd::Refused { errno: self.control.errno() } } else { end })
    }

    /// Returns `true` if the remote host does not answer a relay.
    pub(super) fn is_suspected(&self) -> bool {
        self.control.is_suspected()
    }

    /// Returns the position before which everything may have left this host through a relay.
    pub(super) fn sent(&self) -> u64 {
        self.control.sent()
    }

    /// Returns `true` if the receiver's program may have had the first unread message.
    pub(super) fn has_turn(&self) -> bool {
        // The word is loaded after the check that found the receiver's end: it stores the word
        // before.
        fence(Ordering::Acquire);
        self.control.has_turn()
    }

    fn is_closed(&self) -> bool {
        self.control.state() & CLOSED != 0
    }

    /// Returns the error for an end that was detected: `Closed` if the receiver had closed the lane
    /// before it ended.
    pub(super) fn noticed_end(&self) -> Error {
        let peer = self.peer;
        if !self.is_closed() {
            return Error::OwnerDied { peer };
        }
        // SYNC closed: pairs with `Control::close`; any position loaded after this fence is final.
        fence(Ordering::Acquire);
        Error::Closed { peer }
    }

    /// Returns `true` if the receiver requests the large chunk back.
    pub(super) fn wants_memory_back(&self) -> bool {
        self.control.state() & GIVE_BACK != 0
    }

    pub(super) fn position(&self) -> u64 {
        self.control.position()
    }

    pub(super) fn space(&self) -> u64 {
        self.control.space()
    }

    /// Returns the bytes of chunks that the sender may have. Returns `None` after the sender has
    /// returned memory and before the receiver confirms that, while the page still shows the old
    /// number.
    pub(super) fn granted(&mut self) -> Option<u64> {
        self.returned &= self.control.requests_back();
        (!self.returned).then(|| self.control.granted())
    }

    /// Returns the bytes of chunks that the sender may have if the receiver requests memory back
    /// and the sender has not answered the request.
    pub(super) fn unanswered_request(&mut self) -> Option<u64> {
        self.control.unanswered_request(&mut self.returned)
    }

    pub(super) fn max_message(&self) -> Option<u64> {
        self.control.most()
    }

    /// Rings the doorbell if the receiver sleeps. Called after a message's header was stored.
    #[inline(always)]
    pub(super) fn ring_if_asleep(&mut self) {
        self.light_fence();
        let wait = self.current_wait();
        if wait != 0 {
            self.ring(wait);
        }
    }

    /// Returns `true` if the receiver sleeps or is about to sleep.
    #[inline(always)]
    pub(super) fn is_asleep(&self) -> bool {
        self.current_wait() != 0
    }

    /// Returns the number of the receiver's wait, or 0 if it is awake.
    #[inline(always)]
    fn current_wait(&self) -> u64 {
        // `sleeping` never returns `None`: `join` has checked that the page has this mailbox slot.
        self.watch.sleeping(self.desk).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Executes the fence between the store of a header and the load of the receiver's `sleeping`.
    // SYNC doorbell: pairs with the barrier in `Mailbox::announce_sleep`; which has the proof.
    #[inline(always)]
    pub(super) fn light_fence(&self) {
        if self.symmetric {
            separate_fully();
        }
        membarrier::light();
    }

    /// Executes the fence for both ends before this end sleeps. Returns `false` if the kernel no
    /// longer allows the barrier, so that a wake-up could be lost.
    // SYNC space-waiting: pairs with `membarrier::light` or the fence in
    // `InboundLane::notify_space`.
    pub(super) fn heavy_fence(&self) -> bool {
        fence(Ordering::SeqCst);
        self.symmetric || membarrier::heavy()
    }

    /// Requests a total grant of this many bytes for chunks.
    ///
    /// # Errors
    /// The error of `sendmsg`.
    pub(super) fn want(&self, socket: &PeerSocket, bytes: u64) -> Result<SendResult> {
        socket::send(socket, &wire::write(ControlMessage::Want(bytes)), &[])
    }

    /// Reports the requested return of memory. If the socket's queue is full, the next call
    /// retries.
    pub(super) fn say_returned(&mut self, socket: &PeerSocket) {
        let said = socket::send(socket, &wire::write(ControlMessage::Returned), &[]);
        self.returned = matches!(said, Ok(SendResult::Yes));
    }

    /// Rings once per wait. A sender that does not ring has either an event in the receiver's set
    /// that was not taken, or a receiver that has returned from its wait and checks every lane
    /// under a new number before it sleeps again.
    #[cold]
    #[inline(never)]
    fn ring(&mut self, wait: u64) {
        if wait != self.rung && doorbell::ring(&self.doorbell) {
            self.rung = wait;
        }
    }
}

// SYNC doorbell: the sender's half of the pair, in symmetric mode.
#[cold]
#[inline(never)]
fn separate_fully() {
    fence(Ordering::SeqCst);
}

/// Checks a `WELCOME` and the descriptors that it carries.
///
/// # Errors
/// [`Error::Denied`], [`Error::Protocol`] or [`Error::VersionMismatch`].
pub(super) fn join(
    welcome: Welcome,
    passed: PassedMessage,
    admit: &dyn Fn(Peer) -> Result<()>,
) -> Result<AcceptedLane> {
    let from = passed.from.ok_or(Error::Protocol {
        peer: Peer::UNKNOWN,
        what: "WELCOME carries no credentials of the process that sent it",
    })?;
    let peer = from.peer();
    admit(peer)?;
    let wrong = |what| Error::Protocol { peer, what };
    if passed.count != 3 {
        return Err(wrong("WELCOME does not carry exactly three descriptors"));
    }
    let mut memory = passed.memory.map_err(|unfit| unfit.into_error(peer))?;
    let (Some(control), Some(page)) = (memory.pop(), memory.pop()) else {
        return Err(wrong("WELCOME does not carry a process page and a control page"));
    };
    let not_a_doorbell =
        "WELCOME carries a doorbell that is not an end of a SOCK_SEQPACKET pair of its sender";
    let doorbell = passed.doorbell.ok_or_else(|| wrong(not_a_doorbell))?;
    let watch = Watch::of_peer(page, peer)?;
    if watch.sleeping(welcome.desk).is_none() {
        return Err(wrong("WELCOME names a slot outside 0 to 1023"));
    }
    let control = Controlled::new(control).map_err(wrong)?;
    let is_relay = control.is_relay();
    let process = passed.pidfd.or_else(|| pidfd::open(peer.pid?).ok());
    let symmetric = welcome.fences == FenceMode::Symmetric;
    Ok(AcceptedLane {
        watch,
        desk: welcome.desk,
        control,
        doorbell,
        rung: 0,
        symmetric,
        returned: false,
        is_relay,
        process,
        peer,
    })
}

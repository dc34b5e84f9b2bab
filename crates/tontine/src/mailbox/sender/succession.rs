//! The beginning of a lane, and its handover to the next owner of the address:
//! [`Introduction`], [`SuccessorSearch`].
//!
//! The sender owns its chunks, and a dead receiver's page still shows the last position; `HELLO`
//! passes both to a successor. `docs/internals/recovery.md` lists the steps, and the effect of a
//! death between any two of them. Neighbours: [`super::outbound`] decides when to hand over;
//! [`super::connection`] defines the states.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::connection::PendingLane;
use super::growth::Growth;
use crate::error::{Error, Peer, Result};
use crate::lane::LaneWriter;
use crate::lane::mapped::half_of_own;
use crate::lane::page::{DOUBT_AT, HANDOVER_AT, OWNERS_AT};
use crate::lane::region::LaneMemory;
use crate::life::Life;
use crate::mailbox::address::{Address, AddressKind};
use crate::mailbox::settings::{Fences, ListenerCheck, OnDeath, Settings};
use crate::mailbox::wire::{self, ControlMessage, FenceMode, Hello, MOST_CHUNKS};
use crate::sync::Ordering;
use crate::sys::region::OwnRegion;
use crate::sys::socket::{self, PeerSocket, SendResult};
use crate::sys::{membarrier, pidfd};

/// Connects to the owner of `address`.
///
/// # Errors
/// [`Error::NoMailbox`] if no process has a mailbox there; [`Error::TimedOut`] if the owner accepts
/// no connection within `wait`; [`Error::Denied`] if it runs as a user that is not allowed.
pub(super) fn connect(
    address: &Address,
    options: &Settings,
    wait: Duration,
) -> Result<(PeerSocket, PendingLane)> {
    // Read the path before connecting: if it changes in between, a check is superfluous rather than
    // missing.
    let leads_to = address.leads_to();
    let socket = PeerSocket::new(socket::seqpacket()?)?;
    // Request credentials before an answer can arrive, because the kernel attaches them only if the
    // socket has already requested them.
    socket::pass_credentials(&socket)?;
    let deadline = Instant::now().checked_add(wait);
    let connected = match &address.0 {
        AddressKind::Path(path) => socket::connect_path(&socket, path, deadline),
        AddressKind::Abstract(name) => socket::connect_abstract(&socket, name, deadline),
    };
    match connected {
        Ok(()) => {
            let listener = check_owner(&socket, options)?;
            let owner = match options.check_listener {
                ListenerCheck::Ignored => None,
                // A dead owner's listener still accepts connections if another process, such as a
                // forked child, keeps it open.
                check => match socket::owner_pidfd(&socket) {
                    Ok(owner) if !owner.as_ref().is_some_and(pidfd::has_ended) => owner,
                    Err(error) if error.is_shortage() => return Err(error),
                    _ if check == ListenerCheck::Watched => None,
                    _ => return Err(Error::NoMailbox { address: address.to_string() }),
                },
            };
            Ok((socket, PendingLane::new(owner, listener, leads_to)))
        }
        Err(error) if [libc::ECONNREFUSED, libc::ENOENT].contains(&error.errno()) => {
            Err(Error::NoMailbox { address: address.to_string() })
        }
        Err(error) => Err(error),
    }
}

/// Checks that the listener's owner runs as an allowed user. This check is first, because messages
/// are written to the first chunk before the owner has answered.
fn check_owner(socket: &PeerSocket, options: &Settings) -> Result<Peer> {
    let peer = socket::owner(socket)?.peer();
    options.admit(peer).map(|()| peer)
}

/// A lane's search for the successive owners of its address.
#[derive(Clone)]
pub(super) struct SuccessorSearch {
    /// `None` for a lane over a socket that was passed in.
    address: Option<Address>,
    on_death: OnDeath,
    /// Number of the lane's valid `HELLO`; 0 is the first.
    handover: u32,
    /// `true` if the last receiver that accepted the lane is a relay.
    is_relayed: bool,
    /// Earlier receivers may have processed messages whose records begin before this position.
    doubt_limit: u64,
    /// Number of these receivers.
    owners: u32,
    /// The lane's position after the last record when the end of the last receiver was noticed.
    pub(super) ended_at: u64,
}

impl SuccessorSearch {
    pub(super) fn new(address: Option<Address>, on_death: OnDeath) -> Self {
        let (handover, doubt_limit, owners, ended_at) = (0, 0, 0, 0);
        Self { address, on_death, handover, is_relayed: false, doubt_limit, owners, ended_at }
    }

    pub(super) fn address(&self) -> Option<&Address> {
        self.address.as_ref()
    }

    /// Records whether the receiver that has accepted the lane is a relay.
    pub(super) fn accepted_by(&mut self, is_relay: bool) {
        self.is_relayed = is_relay && self.address.is_some();
    }

    /// Returns `true` if the lane waits for a successor after some kind of end. The end of a relay
    /// is not the owner's, so a lane that a relay has accepted waits in any case.
    pub(super) fn waits(&self) -> bool {
        self.is_relayed || self.on_death.waits()
    }

    /// Returns `true` if the lane waits for a successor after `reason`: a successor may appear, or
    /// an owner without free space may free some.
    pub(super) fn is_waited_out(&self, reason: &Error) -> bool {
        let is_full = matches!(reason, Error::Refused { errno: libc::ENOBUFS });
        let is_full_for_now = is_full && self.handover != 0 && self.waits();
        let on_death = if self.is_relayed { OnDeath::WaitThroughRestarts } else { self.on_death };
        on_death.outlives(reason) || is_full_for_now
    }

    /// Returns the search with the number of the next `HELLO`.
    pub(super) fn next_handover(&self) -> Self {
        Self { handover: self.handover.wrapping_add(1).max(1), ..self.clone() }
    }

    /// Returns the position before which a record must begin so that an earlier receiver may have
    /// processed its message, and the number of these receivers.
    pub(super) fn doubt(&self) -> (u64, u32) {
        (self.doubt_limit, self.owners)
    }

    /// Adds the last receiver, which may have processed the records before `limit`, of which the
    /// first begins at `first`. One number suffices for all records: it is too high for some of
    /// them after a relay, and never too low.
    pub(super) fn with_doubt(mut self, limit: u64, first: Option<u64>) -> Self {
        if first.is_some_and(|first| first < limit) {
            let is_again = first.is_some_and(|first| first < self.doubt_limit);
            self.owners = if is_again { self.owners.saturating_add(1) } else { 1 };
            self.doubt_limit = self.doubt_limit.max(limit);
        }
        self
    }

    /// Stores the number of the valid `HELLO`, and what earlier receivers may have processed, in
    /// every chunk that a receiver may receive.
    pub(super) fn announce(&self, writer: &LaneWriter<OwnRegion>) {
        for link in writer.chain() {
            // Relaxed suffices: the fence in `OutboundLane::withdraw` orders the store before the
            // receiver's check in `Mailbox::begin`; in a handover the socket does.
            half_of_own(&link.region, HANDOVER_AT).store(self.handover, Ordering::Relaxed);
            half_of_own(&link.region, OWNERS_AT).store(self.owners, Ordering::Relaxed);
            link.region.word(DOUBT_AT).store(self.doubt_limit, Ordering::Relaxed);
        }
    }
}

/// The lane that a sender offers to a receiver.
pub(super) struct Introduction<'a> {
    pub(super) writer: &'a LaneWriter<OwnRegion>,
    pub(super) growth: &'a Growth,
    pub(super) life: &'static Life,
    pub(super) options: &'a Settings,
}

impl Introduction<'_> {
    /// Sends HELLO, with the process page and every chunk.
    ///
    /// # Errors
    /// [`Error::NoMailbox`] or the receiver's refusal if the other end has hung up,
    /// [`Error::WouldBlock`] if its queue is full, or the error of a system call.
    pub(super) fn send_hello(
        &self,
        succession: &SuccessorSearch,
        socket: &PeerSocket,
        pending: &mut PendingLane,
    ) -> Result<()> {
        let mut chunks = [0; MOST_CHUNKS];
        for (place, link) in chunks.iter_mut().zip(self.writer.chain()) {
            *place = link.log2 as u8;
        }
        let hello = Hello {
            fences: self.fences(),
            handover: succession.handover,
            cap: self.options.lane_cap,
            position: self.writer.position(),
            base: self.writer.base(),
            returns_to: self.growth.first_log2() as u16,
            chunks,
        };
        let mut passed: Vec<BorrowedFd<'_>> = vec![self.life.as_fd()];
        passed.extend(self.growth.descriptors());
        match socket::send(socket, &wire::write(ControlMessage::Hello(hello)), &passed)? {
            SendResult::Yes => Ok(()),
            SendResult::Full => Err(Error::WouldBlock),
            // If the receiver refuses this process's user, it has sent the reason.
            SendResult::Gone => match pending.hear(socket, &|peer| self.options.admit(peer)) {
                Err(refusal) => Err(refusal),
                Ok(_) => {
                    let address = succession.address();
                    let address =
                        address.map_or("the other end of the socket".into(), Address::to_string);
                    Err(Error::NoMailbox { address })
                }
            },
        }
    }

    /// Returns the fence mode that this process supports and requests.
    fn fences(&self) -> FenceMode {
        let asymmetric = self.options.fences == Fences::Asymmetric && membarrier::register();
        if asymmetric { FenceMode::Asymmetric } else { FenceMode::Symmetric }
    }
}

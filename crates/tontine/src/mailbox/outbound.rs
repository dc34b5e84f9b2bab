//! A sender's connection to one receiver: [`Connection`], and [`Joined`] once it is welcome.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::wire::{self, FenceMode, Note, Unreadable, Welcome};
use crate::error::{Error, Peer, Result};
use crate::lane::control::Controlled;
use crate::lane::page::{CLOSED, VERSION};
use crate::life::Watch;
use crate::sync::{Ordering, fence};
use crate::sys::socket::{self, Received, Sent, Socket};
use crate::sys::{bell, limits, membarrier, pidfd};

/// What a welcome sender holds of its receiver.
pub(super) struct Joined {
    watch: Watch,
    desk: u32,
    control: Controlled,
    doorbell: Socket,
    symmetric: bool,
    /// We gave back what we were asked for, and have not seen that the receiver noted it.
    returned: bool,
    pub(super) process: Option<OwnedFd>,
    pub(super) peer: Peer,
}

/// A connection, with or without a welcome.
pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) joined: Option<Joined>,
    /// The process that listens where we connected to, of which we know no more until its welcome.
    owner: Option<OwnedFd>,
    /// Who that is.
    listener: Peer,
}

/// What came over the socket.
pub(super) enum Heard {
    /// Nothing more.
    Nothing,
    /// Something for which this process has too many descriptors open.
    Unreadable,
    /// A welcome, or word of room.
    Something,
    /// The other end is gone.
    HungUp,
}

impl Joined {
    /// Whether a message may be sent without a closer look: the receiver lives, takes messages, and
    /// wants nothing back.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.watch.is_alive() && self.control.state() == 0
    }

    #[inline(always)]
    pub(super) fn is_alive(&self) -> bool {
        self.watch.is_alive()
    }

    pub(super) fn state(&self) -> u32 {
        self.control.state()
    }

    pub(super) fn position(&self) -> u64 {
        self.control.position()
    }

    pub(super) fn room(&self) -> u64 {
        self.control.room()
    }

    /// Bytes of chunks that we may have; `None` while that is about to become less: we gave back
    /// what we were asked for, and until the receiver has noted it the old number stands there.
    pub(super) fn granted(&mut self) -> Option<u64> {
        self.returned &= self.control.asks_back();
        (!self.returned).then(|| self.control.granted())
    }

    pub(super) fn most(&self) -> Option<u64> {
        self.control.most()
    }

    /// Rings if the receiver sleeps; after a header store.
    #[inline(always)]
    pub(super) fn ring_if_asleep(&self) {
        self.separate();
        if self.is_asleep() {
            self.ring();
        }
    }

    /// Whether the receiver sleeps or is about to.
    #[inline(always)]
    pub(super) fn is_asleep(&self) -> bool {
        // There is such a desk: `join` looked.
        self.watch.sleeping(self.desk).is_some_and(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// What stands between our store and our load of the receiver's word.
    // SYNC doorbell: pairs with the barrier in `Mailbox::announce_sleep`; the proof stands there.
    #[inline(always)]
    pub(super) fn separate(&self) {
        if self.symmetric {
            separate_fully();
        }
        membarrier::light();
    }

    /// The other side's barrier: for when we are about to sleep. `false` where the kernel forbids
    /// by now what makes it sure that we are woken.
    // SYNC room-waiting: pairs with `membarrier::light` or the fence in `Inbound::tell_of_room`.
    pub(super) fn separate_heavily(&self) -> bool {
        fence(Ordering::SeqCst);
        self.symmetric || membarrier::heavy()
    }

    #[cold]
    #[inline(never)]
    fn ring(&self) {
        bell::ring(&self.doorbell);
    }
}

// SYNC doorbell: the symmetric mode's half of the pair described above.
#[cold]
#[inline(never)]
fn separate_fully() {
    fence(Ordering::SeqCst);
}

impl Connection {
    /// To a listener.
    pub(super) fn new(socket: Socket, owner: Option<OwnedFd>, listener: Peer) -> Self {
        Self { socket, joined: None, owner, listener }
    }

    /// Over a socket of which nobody knows who has the other end: whoever made a pair need not.
    pub(super) fn over(socket: Socket) -> Self {
        Self::new(socket, None, Peer::UNKNOWN)
    }

    /// Who is at the other end, as far as it is known.
    pub(super) fn peer(&self) -> Peer {
        self.joined.as_ref().map_or(self.listener, |joined| joined.peer)
    }

    /// What an end that was noticed was: one that had closed before it ended has closed.
    pub(super) fn end(&self) -> Error {
        let peer = self.peer();
        if self.joined.as_ref().is_none_or(|joined| joined.state() & CLOSED == 0) {
            return Error::OwnerDied { peer };
        }
        // SYNC closed: pairs with `Control::close`; the position that we see now is its last.
        fence(Ordering::Acquire);
        Error::Closed { peer }
    }

    /// Reads one message of the receiver's.
    ///
    /// # Errors
    /// It refuses us, speaks another version, or breaks the protocol.
    pub(super) fn hear(&mut self, admit: &dyn Fn(Peer) -> Result<()>) -> Result<Heard> {
        let mut bytes = [0; wire::LONGEST];
        let Some(received) = socket::receive(&self.socket, &mut bytes)? else {
            return Ok(Heard::Nothing);
        };
        if received.hung_up {
            return Ok(Heard::HungUp);
        }
        if received.truncated {
            // Its descriptors find no room in our table, and it stays where it is.
            let again = limits::raise_descriptors();
            return if again { self.hear(admit) } else { Ok(Heard::Unreadable) };
        }
        match wire::read_received(&received, &bytes) {
            Ok(Note::Welcome(welcome)) if self.joined.is_none() => {
                self.joined = Some(join(welcome, received, admit)?);
                self.owner = None;
                Ok(Heard::Something)
            }
            Ok(Note::Room) if received.fds.is_empty() => Ok(Heard::Something),
            Ok(Note::Refused(errno)) => Err(self.refused(errno, &received)),
            Err(Unreadable::Version(theirs)) => Err(Error::Version { ours: VERSION, theirs }),
            Ok(_) | Err(Unreadable::Malformed(_)) => {
                let what = "a message that a receiver does not send";
                Err(Error::Protocol { peer: self.peer(), what })
            }
        }
    }

    fn refused(&self, errno: i32, received: &Received) -> Error {
        match (errno, &received.from) {
            // It does not say which users it allows: not always its own.
            (libc::EACCES, Some(_)) => {
                let uid = rustix::process::geteuid().as_raw();
                let ours = Peer { pid: Some(std::process::id()), uid };
                Error::Denied { peer: ours, allowed: Vec::new() }
            }
            _ => Error::Refused { errno },
        }
    }

    /// Says that what the receiver asked for is given back. A full queue takes it the next time.
    pub(super) fn say_returned(&mut self) {
        if let Some(joined) = &mut self.joined {
            let said = socket::send(&self.socket, &wire::write(Note::Returned), &[]);
            joined.returned = matches!(said, Ok(Sent::Yes));
        }
    }

    /// What to wait on: the socket, and the end of the process.
    pub(super) fn waits(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        let process = self.joined.as_ref().map_or(&self.owner, |joined| &joined.process).as_ref();
        (self.socket.as_fd(), process.map(AsFd::as_fd))
    }
}

fn join(
    welcome: Welcome,
    received: Received,
    admit: &dyn Fn(Peer) -> Result<()>,
) -> Result<Joined> {
    let from = received
        .from
        .ok_or(Error::Protocol { peer: Peer::UNKNOWN, what: "a WELCOME without credentials" })?;
    let peer = Peer { pid: Some(from.pid).filter(|&pid| pid != 0), uid: from.uid };
    admit(peer)?;
    let wrong = |what| Error::Protocol { peer, what };
    let mut passed = received.fds;
    let [page, control, doorbell] = &passed[..] else {
        return Err(wrong("WELCOME with another number of descriptors than three"));
    };
    if !bell::is_button(doorbell) {
        return Err(wrong("WELCOME with a doorbell that is no pair of datagram sockets"));
    }
    let watch = Watch::of_peer(page, peer)?;
    if watch.sleeping(welcome.desk).is_none() {
        return Err(wrong("WELCOME with a desk that is none"));
    }
    let control = Controlled::map(control.as_fd()).map_err(wrong)?;
    let doorbell = passed.pop().ok_or_else(|| wrong("WELCOME without a doorbell"))?;
    let doorbell = Socket::new(doorbell)?;
    let process = received.pidfd.or_else(|| pidfd::open(peer.pid?).ok());
    let symmetric = welcome.fences == FenceMode::Symmetric;
    let (desk, returned) = (welcome.desk, false);
    Ok(Joined { watch, desk, control, doorbell, symmetric, returned, process, peer })
}

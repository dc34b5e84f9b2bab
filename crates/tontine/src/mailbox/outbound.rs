//! A sender's connection to one receiver: [`Connection`], and [`Joined`] once it is welcome.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::wire::{self, FenceMode, Note, Unreadable, Welcome};
use crate::error::{Error, Peer, Result};
use crate::lane::control::Controlled;
use crate::lane::page::VERSION;
use crate::life::Watch;
use crate::sync::{Ordering, fence};
use crate::sys::socket::{self, Received};
use crate::sys::{limits, membarrier, pidfd};

/// What a welcome sender holds of its receiver.
pub(super) struct Joined {
    watch: Watch,
    desk: u32,
    control: Controlled,
    doorbell: OwnedFd,
    symmetric: bool,
    pub(super) process: Option<OwnedFd>,
    pub(super) peer: Peer,
}

/// A connection, with or without a welcome.
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) joined: Option<Joined>,
}

/// What came over the socket.
pub(super) enum Heard {
    /// Nothing more.
    Nothing,
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

    pub(super) fn granted(&self) -> u64 {
        self.control.granted()
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
        // A counter that is full has rung already; one whose receiver is gone needs no ring.
        let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
    }
}

// SYNC doorbell: the symmetric mode's half of the pair described above.
#[cold]
#[inline(never)]
fn separate_fully() {
    fence(Ordering::SeqCst);
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, joined: None }
    }

    /// Who is at the other end, as far as it is known.
    pub(super) fn peer(&self) -> Peer {
        self.joined.as_ref().map_or(Peer { pid: None, uid: u32::MAX }, |joined| joined.peer)
    }

    /// Reads one message of the receiver's.
    ///
    /// # Errors
    /// It refuses us, speaks another version, or breaks the protocol.
    pub(super) fn hear(&mut self, admits: impl Fn(u32) -> bool) -> Result<Heard> {
        let mut bytes = [0; wire::LONGEST];
        let Some(received) = socket::receive(&self.socket, &mut bytes)? else {
            return Ok(Heard::Nothing);
        };
        if received.hung_up {
            return Ok(Heard::HungUp);
        }
        if received.truncated {
            // Its descriptors find no room in our table, and it stays where it is.
            limits::raise_descriptors();
            return Ok(Heard::Nothing);
        }
        let wrong = |what| Error::Protocol { peer: self.peer(), what };
        match wire::read(&bytes[..received.len]) {
            Ok(Note::Welcome(welcome)) if self.joined.is_none() => {
                self.joined = Some(join(welcome, received, admits)?);
                Ok(Heard::Something)
            }
            Ok(Note::Room) if received.fds.is_empty() => Ok(Heard::Something),
            Ok(Note::Refused(errno)) => Err(self.refused(errno)),
            Err(Unreadable::Version(theirs)) => Err(Error::Version { ours: VERSION, theirs }),
            Ok(_) | Err(Unreadable::Malformed(_)) => {
                let error = wrong("a message that a receiver does not send");
                socket::close_hostile(received.fds);
                Err(error)
            }
        }
    }

    fn refused(&self, errno: i32) -> Error {
        let peer = self.peer();
        match errno {
            libc::EACCES => Error::Denied { peer, allowed: peer.uid },
            _ => Error::Refused { errno },
        }
    }

    /// What to wait on: the socket, and the end of the process.
    pub(super) fn waits(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        let process = self.joined.as_ref().and_then(|joined| joined.process.as_ref());
        (self.socket.as_fd(), process.map(AsFd::as_fd))
    }
}

fn join(welcome: Welcome, received: Received, admits: impl Fn(u32) -> bool) -> Result<Joined> {
    let from = received.from.ok_or(Error::Protocol {
        peer: Peer { pid: None, uid: u32::MAX },
        what: "a WELCOME without credentials",
    })?;
    let peer = Peer { pid: Some(from.pid).filter(|&pid| pid != 0), uid: from.uid };
    if !admits(from.uid) {
        return Err(Error::Denied { peer, allowed: rustix::process::geteuid().as_raw() });
    }
    let wrong = |what| Error::Protocol { peer, what };
    let Ok([page, control, doorbell]) = <[OwnedFd; 3]>::try_from(received.fds) else {
        return Err(wrong("WELCOME with another number of descriptors than three"));
    };
    let watch = Watch::of_peer(&page, peer)?;
    if watch.sleeping(welcome.desk).is_none() {
        return Err(wrong("WELCOME with a desk that is none"));
    }
    let control = Controlled::map(control.as_fd()).map_err(wrong)?;
    let process = received.pidfd.or_else(|| pidfd::open(peer.pid?).ok());
    let symmetric = welcome.fences == FenceMode::Symmetric;
    Ok(Joined { watch, desk: welcome.desk, control, doorbell, symmetric, process, peer })
}

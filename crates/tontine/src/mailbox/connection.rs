//! A sender's connection to one receiver: [`Connection`], with a [`Joined`] once it is welcome.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::joined::{Joined, join};
use super::wire::{self, Note, Unreadable};
use crate::error::{Error, Peer, Result};
use crate::lane::page::{CLOSED, VERSION};
use crate::sync::{Ordering, fence};
use crate::sys::quarantine;
use crate::sys::socket::{self, Credentials, Sent, Socket};

/// A connection, with or without a welcome.
pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) joined: Option<Joined>,
    /// The receiver that was joined, once the lane has ended: a fast path that finds no `joined`
    /// sends nothing. Boxed, because an open lane does not use it.
    left: Option<Box<Joined>>,
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

impl Connection {
    /// To a listener.
    pub(super) fn new(socket: Socket, owner: Option<OwnedFd>, listener: Peer) -> Self {
        Self { socket, joined: None, left: None, owner, listener }
    }

    /// Over a socket of which nobody knows who has the other end: whoever made a pair need not.
    pub(super) fn over(socket: Socket) -> Self {
        Self::new(socket, None, Peer::UNKNOWN)
    }

    /// Who is at the other end, as far as it is known.
    pub(super) fn peer(&self) -> Peer {
        self.last().map_or(self.listener, |joined| joined.peer)
    }

    /// Returns the receiver that is joined, or the one that was when the lane ended.
    pub(super) fn last(&self) -> Option<&Joined> {
        self.joined.as_ref().or(self.left.as_deref())
    }

    /// Keeps the receiver for what its page still shows, and nothing more: no message is sent to
    /// it, and its doorbell is not rung.
    pub(super) fn leave(&mut self) {
        if let Some(joined) = self.joined.take() {
            self.left = Some(Box::new(joined));
        }
    }

    /// What an end that was noticed was: one that had closed before it ended has closed.
    pub(super) fn end(&self) -> Error {
        let peer = self.peer();
        if self.last().is_none_or(|joined| joined.state() & CLOSED == 0) {
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
        let from = received.from;
        if received.has_descriptors && self.joined.is_none() {
            return self.hear_welcome(admit);
        }
        let passed = usize::from(received.has_descriptors);
        match (wire::read_received(&bytes[..received.len], received.oversize), passed) {
            (Ok(Note::Room), 0) => Ok(Heard::Something),
            (Ok(Note::Refused(errno)), 0) => Err(self.refused(errno, from)),
            (Err(Unreadable::Version(theirs)), _) => Err(Error::Version { ours: VERSION, theirs }),
            _ => Err(self.strange()),
        }
    }

    /// Receives a message that carries descriptors: honest ones are a `WELCOME`.
    fn hear_welcome(&mut self, admit: &dyn Fn(Peer) -> Result<()>) -> Result<Heard> {
        if quarantine::is_full(socket::owner(&self.socket)?.uid) {
            return Ok(Heard::Unreadable);
        }
        let expected = |bytes: &[u8]| wire::expected(bytes, 0);
        let passed = match socket::receive_passed(&self.socket, wire::LONGEST, true, expected) {
            Ok(Some(passed)) => passed,
            Ok(None) => return Ok(Heard::Nothing),
            // It stays in the queue until this process has what it takes.
            Err(error) if error.is_shortage() => return Ok(Heard::Unreadable),
            Err(error) => return Err(error),
        };
        match wire::read_received(&passed.bytes, passed.oversize) {
            Ok(Note::Welcome(welcome)) => {
                self.joined = Some(join(welcome, passed, admit)?);
                self.owner = None;
                Ok(Heard::Something)
            }
            Err(Unreadable::Version(theirs)) => Err(Error::Version { ours: VERSION, theirs }),
            _ => Err(self.strange()),
        }
    }

    fn strange(&self) -> Error {
        let what = "a message that a receiver does not send";
        Error::Protocol { peer: self.peer(), what }
    }

    fn refused(&self, errno: i32, from: Option<Credentials>) -> Error {
        match (errno, from) {
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

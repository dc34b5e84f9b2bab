//! Beginning a lane, and handing it to the next owner of the address when a reader has died.
//!
//! The sender owns its chunks and still sees how far the dead reader had acknowledged; a successor
//! gets both with `HELLO`. The steps, and who may die between them: `docs/recovery.md`.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::address::{Address, Place};
use super::connection::Connection;
use super::growth::first_log2;
use super::options::Options;
use super::sender::Sender;
use super::wire::{self, Hello, MOST_CHUNKS, Note};
use crate::error::{Error, Peer, Result};
use crate::lane::mapped::half_of_own;
use crate::lane::page::HANDOVER_AT;
use crate::sync::{Ordering, fence};
use crate::sys::pidfd;
use crate::sys::socket::{self, Sent, Socket};

/// A path that nobody owns is tried this often at most.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// And an owner that had no room for us this often.
const BETWEEN_REFUSALS: Duration = Duration::from_millis(100);

/// A connection to whoever owns `address`.
///
/// # Errors
/// [`Error::NoMailbox`]; [`Error::TimedOut`] where its owner accepts nobody for so long;
/// [`Error::Denied`] where it belongs to a user that we do not want to tell anything.
pub(super) fn connect(address: &Address, options: &Options, wait: Duration) -> Result<Connection> {
    let socket = Socket::new(socket::seqpacket()?)?;
    // Before any answer can come: the kernel notes no sender for a socket that does not ask.
    socket::pass_credentials(&socket)?;
    let deadline = Instant::now().checked_add(wait);
    let connected = match &address.0 {
        Place::Path(path) => socket::connect_path(&socket, path, deadline),
        Place::Abstract(name) => socket::connect_abstract(&socket, name, deadline),
    };
    match connected {
        Ok(()) => {
            let listener = check_owner(&socket, options)?;
            let owner = socket::owner_pidfd(&socket);
            // A child that it forked keeps a dead owner's listener open.
            if owner.as_ref().is_some_and(pidfd::has_ended) {
                return Err(Error::NoMailbox { address: address.to_string() });
            }
            Ok(Connection::new(socket, owner, listener))
        }
        Err(error) if [libc::ECONNREFUSED, libc::ENOENT].contains(&error.errno()) => {
            Err(Error::NoMailbox { address: address.to_string() })
        }
        Err(error) => Err(error),
    }
}

/// Whether the listener's owner is somebody whom we want to send anything: messages go into the
/// first chunk before any word of the owner's.
fn check_owner(socket: &Socket, options: &Options) -> Result<Peer> {
    let peer = socket::owner(socket)?.peer();
    options.admit(peer).map(|()| peer)
}

impl Sender {
    /// Says who we are and passes every chunk.
    ///
    /// # Errors
    /// The other end is gone, or the system refuses.
    pub(super) fn say_hello(&mut self) -> Result<()> {
        let mut chunks = [0; MOST_CHUNKS];
        for (place, link) in chunks.iter_mut().zip(self.writer.chain()) {
            *place = link.log2 as u8;
        }
        let hello = Hello {
            fences: self.fences(),
            handover: self.handover,
            cap: self.options.lane_cap,
            position: self.writer.position(),
            base: self.writer.base(),
            returns_to: first_log2(&self.options) as u16,
            chunks,
        };
        let mut passed: Vec<BorrowedFd<'_>> = vec![self.life.descriptor()];
        passed.extend(self.chunks.descriptors());
        let note = wire::write(Note::Hello(hello));
        match socket::send(&self.connection.socket, &note, &passed)? {
            Sent::Yes => Ok(()),
            Sent::Full => Err(Error::WouldBlock),
            Sent::Gone => Err(self.refusal_or_nobody()),
        }
    }

    /// Returns the reason why the other end has hung up before our first message: it says so where
    /// it refuses our user.
    fn refusal_or_nobody(&mut self) -> Error {
        let options = &self.options;
        match self.connection.hear(&|peer| options.admit(peer)) {
            Err(refusal) => refusal,
            Ok(_) => {
                let address = self.address.as_ref();
                Error::NoMailbox {
                    address: address.map_or("that socket".into(), Address::to_string),
                }
            }
        }
    }

    /// Whether what ended the lane is no end of it: there may be a successor, or one that has no
    /// room for us at the moment may have it later. A lane without an address has none.
    pub(super) fn is_waited_out(&self, ended: &Error) -> bool {
        let policy = self.options.on_death;
        let is_full = matches!(ended, Error::Refused { errno: libc::ENOBUFS });
        let is_outlived = policy.outlives(ended) || is_full && self.handover != 0 && policy.waits();
        self.address.is_some() && is_outlived
    }

    /// Hands the lane to the next owner of the address, if there is one yet. If there is none, that
    /// is no error: messages wait in the lane.
    ///
    /// # Errors
    /// What keeps any successor from being reached: that ends the lane, and the mail can be taken
    /// back. Or what this process has been short of for longer than the handshake's deadline.
    pub(super) fn look_for_successor(&mut self) -> Result<()> {
        let now = Instant::now();
        let refused = matches!(self.ended, Some(Error::Refused { .. }));
        let between = if refused { BETWEEN_REFUSALS } else { BETWEEN_LOOKS };
        if self.looked.is_some_and(|looked| now - looked < between) {
            return Ok(());
        }
        self.looked = Some(now);
        match self.hand_over() {
            Ok(()) => {
                self.short_since = None;
                Ok(())
            }
            // Nobody is there yet, or died in the same moment, or has a full queue: what the dead
            // one left stands as it was.
            Err(Error::NoMailbox { .. } | Error::TimedOut | Error::WouldBlock) => {
                self.short_since = None;
                Ok(())
            }
            Err(error) if error.is_shortage() || error.errno() == libc::ENOBUFS => {
                let since = *self.short_since.get_or_insert(now);
                let deadline = self.options.handshake_deadline;
                if now - since < deadline { Ok(()) } else { Err(error) }
            }
            Err(error) => {
                self.end(error.clone());
                Err(error)
            }
        }
    }

    fn hand_over(&mut self) -> Result<()> {
        let Some(address) = &self.address else {
            return Err(self.ended.clone().unwrap_or(Error::WouldBlock));
        };
        // Before we connect: led elsewhere in between, we look once too often and not too rarely.
        let leads_to = address.leads_to();
        let connection = connect(address, &self.options, Duration::ZERO)?;
        // How far the dead one had come, before its page goes.
        self.refresh()?;
        let before = std::mem::replace(&mut self.connection, connection);
        let number = self.handover;
        self.say_handover(number.wrapping_add(1).max(1));
        if let Err(error) = self.say_hello() {
            self.say_handover(number);
            self.connection = before;
            return Err(error);
        }
        if let Some(joined) = before.last() {
            self.most_before = joined.most().unwrap_or(self.options.lane_cap);
        }
        self.chunks.forget_unknown();
        self.leads_to = leads_to;
        self.ended = None;
        self.looked = None;
        Ok(())
    }

    /// Where nobody has answered: whether somebody else owns the path by now. A listener that only
    /// a forked child of a dead owner holds accepts connections, and nobody reads them.
    ///
    /// As long as the path leads where it led there is nobody else to turn to, and a slow owner
    /// keeps our place in its queue.
    pub(super) fn look_for_another_owner(&mut self) {
        let now = Instant::now();
        if !self.options.on_death.waits()
            || self.unreadable
            || self.looked_elsewhere.is_some_and(|looked| now - looked < BETWEEN_LOOKS)
        {
            return;
        }
        self.looked_elsewhere = Some(now);
        let leads_to = self.address.as_ref().and_then(Address::leads_to);
        if leads_to.is_some() && leads_to != self.leads_to && self.withdraw() {
            self.end(Error::OwnerDied { peer: self.connection.peer() });
        }
    }

    /// Takes back a `HELLO` that nobody has answered. `false` where somebody had, or has ended.
    fn withdraw(&mut self) -> bool {
        let number = self.handover;
        self.say_handover(number.wrapping_add(1).max(1));
        // SYNC handover: pairs with the fence in `Mailbox::begin`, where it is explained.
        fence(Ordering::SeqCst);
        self.listen();
        if self.connection.joined.is_none() && self.ended.is_none() && !self.unreadable {
            return true;
        }
        // Whoever answered and saw that we withdrew hangs up, having read nothing.
        self.say_handover(number);
        false
    }

    /// Says, in every chunk that a receiver may get, which `HELLO` counts.
    fn say_handover(&mut self, number: u32) {
        self.handover = number;
        for link in self.writer.chain() {
            half_of_own(&link.region, HANDOVER_AT).store(number, Ordering::Relaxed);
        }
    }
}

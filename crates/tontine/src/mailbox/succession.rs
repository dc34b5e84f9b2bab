//! Beginning a lane, and handing it to the next owner of the address when a reader has died.
//!
//! The sender owns its chunks and still sees how far the dead reader had acknowledged; a successor
//! gets both with `HELLO`. The steps, and who may die between them: `docs/recovery.md`.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::address::{Address, Place};
use super::options::Options;
use super::outbound::Connection;
use super::sender::Sender;
use super::wire::{self, Hello, MOST_CHUNKS, Note};
use crate::error::{Error, Peer, Result};
use crate::sys::pidfd;
use crate::sys::socket::{self, Sent, Socket};

/// A path that nobody owns is tried this often at most.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// A connection to whoever owns `address`.
///
/// # Errors
/// [`Error::NoMailbox`]; [`Error::TimedOut`] where its owner accepts nobody for so long;
/// [`Error::Denied`] where it belongs to a user that we do not want to tell anything.
pub(super) fn connect(address: &Address, options: &Options, wait: Duration) -> Result<Connection> {
    let socket = Socket::new(socket::seqpacket()?)?;
    let deadline = Instant::now().checked_add(wait);
    let connected = match &address.0 {
        Place::Path(path) => socket::connect_path(&socket, path, deadline),
        Place::Abstract(name) => socket::connect_abstract(&socket, name, deadline),
    };
    match connected {
        Ok(()) => {
            check_owner(&socket, options)?;
            let owner = socket::owner_pidfd(&socket);
            // A child that it forked keeps a dead owner's listener open.
            if owner.as_ref().is_some_and(pidfd::has_ended) {
                return Err(Error::NoMailbox { address: address.to_string() });
            }
            Ok(Connection::new(socket, owner))
        }
        Err(error) if [libc::ECONNREFUSED, libc::ENOENT].contains(&error.errno()) => {
            Err(Error::NoMailbox { address: address.to_string() })
        }
        Err(error) => Err(error),
    }
}

/// Whether the listener's owner is somebody whom we want to send anything: messages go into the
/// first chunk before any word of the owner's.
fn check_owner(socket: &Socket, options: &Options) -> Result<()> {
    let owner = socket::owner(socket)?;
    let peer = Peer { pid: Some(owner.pid).filter(|&pid| pid != 0), uid: owner.uid };
    if options.admits(peer.uid) {
        return Ok(());
    }
    Err(Error::Denied { peer, allowed: rustix::process::geteuid().as_raw() })
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
            cap: self.options.lane_cap,
            position: self.writer.position(),
            base: self.writer.base(),
            chunks,
        };
        let mut passed: Vec<BorrowedFd<'_>> = vec![self.life.descriptor()];
        passed.extend(self.kept.iter().map(AsFd::as_fd));
        let note = wire::write(Note::Hello(hello));
        match socket::send(&self.connection.socket, &note, &passed)? {
            Sent::Yes => Ok(()),
            Sent::Full => Err(Error::WouldBlock),
            Sent::Gone => {
                let address =
                    self.address.as_ref().map_or("that socket".into(), Address::to_string);
                Err(Error::NoMailbox { address })
            }
        }
    }

    /// Hands the lane to the next owner of the address, if there is one yet. If there is none, that
    /// is no error: messages wait in the lane.
    ///
    /// # Errors
    /// What keeps any successor from being reached.
    pub(super) fn look_for_successor(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now - looked < BETWEEN_LOOKS) {
            return Ok(());
        }
        self.looked = Some(now);
        let Some(address) = &self.address else {
            return Err(self.ended.clone().unwrap_or(Error::WouldBlock));
        };
        let connection = match connect(address, &self.options, Duration::ZERO) {
            Ok(connection) => connection,
            Err(Error::NoMailbox { .. } | Error::TimedOut) => return Ok(()),
            Err(error) => return Err(error),
        };
        socket::pass_credentials(&connection.socket)?;
        // How far the dead one had come, before its page goes.
        self.refresh()?;
        let before = std::mem::replace(&mut self.connection, connection);
        match self.say_hello() {
            Ok(()) => {
                self.ended = None;
                self.looked = None;
                Ok(())
            }
            // It died too: what the first one left stands as it was.
            Err(_) => {
                self.connection = before;
                Ok(())
            }
        }
    }
}

//! The library's own mailboxes: the connection of two ends ([`posts`], [`Post::open`]), the
//! conversion of errors to [`MeasureError`], and the mechanisms (`ends`).
//!
//! The connections are created before a fork and the handles after it, because a handle belongs to
//! the process that created it. Every sender first sends an empty message; when it arrives, both
//! ends are connected.
//!
//! `recv` does not report a dead sender, so the ends check each other only while they connect. If
//! one end is killed later, the other waits until the invocation's deadline.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::SocketType;
use tontine::Error;
use tontine::life::Life;
use tontine::mailbox::{Mailbox, Options, Sender};
use tontine_host::error::{self, MeasureError, Result};
use tontine_host::peer::PeerHandle;

use crate::descriptor::unix_pair;

mod ends;
mod relay;

pub use ends::{DefaultOptions, MailboxMechanism, Sleep, Spin, Succession, ZeroCopy};
pub use relay::RelayMechanism;

/// Timeout for two ends to connect.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum wait of an end before it checks the other end.
const LOOK: Duration = Duration::from_millis(20);
/// Interval between two checks that the receiver has accepted a sender.
const PAUSE: Duration = Duration::from_micros(100);

/// The ends of the connections in one process, before it creates handles from them.
pub struct Post {
    out: Vec<OwnedFd>,
    back: Vec<OwnedFd>,
}

/// Both directions of communication with another process.
pub struct Correspondent {
    /// Sends to the other process.
    pub sender: Sender,
    /// Receives from the other process.
    pub mailbox: Mailbox,
    /// Connected but never used.
    _idle: Vec<Sender>,
}

/// Creates connections for `lanes` lanes in each direction, and returns the ends of both processes.
///
/// # Errors
/// Returns `Skipped` if the system has no such sockets, or not enough of them.
pub fn posts(lanes: usize) -> Result<(Post, Post)> {
    let mut here = Post { out: Vec::with_capacity(lanes), back: Vec::with_capacity(lanes) };
    let mut there = Post { out: Vec::with_capacity(lanes), back: Vec::with_capacity(lanes) };
    for _ in 0..lanes {
        let (ask, asked) = unix_pair(SocketType::SEQPACKET)?;
        let (answer, answered) = unix_pair(SocketType::SEQPACKET)?;
        here.out.push(ask);
        there.back.push(asked);
        there.out.push(answer);
        here.back.push(answered);
    }
    Ok((here, there))
}

impl Post {
    /// Creates a mailbox and one sender per connection, and connects to the other end.
    ///
    /// # Errors
    /// Returns `Skipped` if the system refuses what a mailbox needs, `Failed` if the other end does
    /// not appear.
    pub fn open(self, options: &Options, peers: &[PeerHandle<'_>]) -> Result<Correspondent> {
        life()?;
        let mut mailbox = options.unbound().map_err(refused)?;
        let mut senders = self
            .out
            .into_iter()
            .map(|socket| announced(options, socket))
            .collect::<Result<Vec<_>>>()?;
        // The number of pending connections is limited, so the connections are accepted one after
        // another.
        for socket in self.back {
            mailbox.adopt(socket).map_err(refused)?;
            until_announced(&mut mailbox, peers)?;
        }
        let peer = peers.first().copied().unwrap_or(PeerHandle::Parent);
        senders.iter_mut().try_for_each(|sender| until_welcome(sender, peer))?;
        let sender = (!senders.is_empty()).then(|| senders.remove(0));
        let sender =
            sender.ok_or_else(|| MeasureError::fail("expected a connection, found none"))?;
        Ok(Correspondent { sender, mailbox, _idle: senders })
    }
}

/// Creates a sender that has sent its empty message.
///
/// # Errors
/// Returns `Skipped` if the system refuses what it needs.
pub fn announced(options: &Options, socket: OwnedFd) -> Result<Sender> {
    life()?;
    let mut sender = options.connect_socket(socket).map_err(refused)?;
    sender.send(&[]).map_err(failed("send"))?;
    Ok(sender)
}

/// Receives the empty message of a sender that has just connected.
///
/// # Errors
/// Returns `Failed` if the message does not arrive, or if another message arrives.
pub fn until_announced(mailbox: &mut Mailbox, senders: &[PeerHandle<'_>]) -> Result<()> {
    let began = Instant::now();
    loop {
        match mailbox.recv_timeout(LOOK) {
            Ok(message) if message.is_empty() => {
                mailbox.ack();
                return Ok(());
            }
            Ok(_) => return Err(MeasureError::fail("expected the empty message, found another")),
            Err(Error::TimedOut) => senders.iter().try_for_each(PeerHandle::check)?,
            Err(error) => return Err(failed("recv")(error)),
        }
        if let Some(fault) = mailbox.take_errors().pop() {
            return Err(refused(fault));
        }
        if began.elapsed() > PATIENCE {
            return Err(MeasureError::fail("mailbox: the two ends did not find each other"));
        }
    }
}

/// Waits until the receiver has accepted the lane and read its empty message, so that no later
/// message arrives while another sender is still announcing itself.
///
/// # Errors
/// Returns `Failed` if the receiver does not do so.
pub fn until_welcome(sender: &mut Sender, receiver: PeerHandle<'_>) -> Result<()> {
    let began = Instant::now();
    while sender.peer().is_none() {
        sender.service().map_err(failed("mailbox handshake"))?;
        receiver.check()?;
        if began.elapsed() > PATIENCE {
            return Err(MeasureError::fail("mailbox: the receiver did not accept the lane"));
        }
        thread::sleep(PAUSE);
    }
    sender.wait_acked(Some(PATIENCE)).map_err(failed("mailbox handshake"))
}

/// Returns this process's life. It belongs to the main thread, as in an invocation and in every
/// forked child. If another thread calls this function, as in tests, an anchor thread holds the
/// life.
///
/// # Errors
/// Returns `Skipped` if the system refuses it.
pub fn life() -> Result<&'static Life> {
    Life::register().map_err(refused)
}

/// Converts a setup error. If the system lacks a requirement, the result is a skip.
pub fn refused(error: Error) -> MeasureError {
    if error::refused(&std::io::Error::from_raw_os_error(error.errno())) {
        MeasureError::skip(error.to_string())
    } else {
        MeasureError::fail(error.to_string())
    }
}

/// Converts an error of a call that is expected to succeed.
#[cold]
pub fn failed(call: &str) -> impl Fn(Error) -> MeasureError {
    move |error| MeasureError::fail(format!("{call}: {error}"))
}

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
use tontine::mailbox::{Mailbox, Options, Order, Sender, Sends};
use tontine_bench::error::{self, MeasureError, Result};
use tontine_bench::peer::PeerHandle;

use crate::descriptor::unix_pair;
use crate::end::{Duplex, Peers};

mod causal;
mod ends;
mod relay;

pub use causal::{CAUSAL, Causal};
pub use ends::{
    ByPath, DEFAULT_OPTIONS, DefaultOptions, LaneStream, MAILBOX, MailboxMechanism, SLEEP, SPIN,
    SUCCESSION, Spin, ZERO_COPY,
};
pub use relay::{RELAY, RelayByPath};

/// Timeout for two ends to connect.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum wait of an end before it checks the other end.
const LOOK: Duration = Duration::from_millis(20);
/// Interval between two checks that the receiver has accepted a sender.
const PAUSE: Duration = Duration::from_micros(100);

/// The ends of the connections in one process, before it creates handles from them.
pub struct Post {
    out: Vec<OwnedFd>,
    back: Vec<OwnedFd>,
}

/// Both directions of communication with another process, and senders that are connected but never
/// used.
pub type Correspondent = Duplex<Sender, Mailbox, Vec<Sender>>;

/// Creates connections for `lanes` lanes in each direction, and returns the ends of both processes.
pub fn posts(lanes: usize) -> Result<(Post, Post)> {
    let mut here = Post { out: Vec::with_capacity(lanes), back: Vec::with_capacity(lanes) };
    let mut there = Post { out: Vec::with_capacity(lanes), back: Vec::with_capacity(lanes) };
    for _ in 0..lanes {
        let (ask, to_answer) = unix_pair(SocketType::SEQPACKET)?;
        let (answer, answered) = unix_pair(SocketType::SEQPACKET)?;
        here.out.push(ask);
        there.back.push(to_answer);
        there.out.push(answer);
        here.back.push(answered);
    }
    Ok((here, there))
}

impl Post {
    /// Creates a mailbox and one sender per connection, and connects to the other end.
    pub fn open(self, options: &Options, peers: Peers<'_>) -> Result<Correspondent> {
        self.open_in_order(options, Order::BySender, peers)
    }

    /// Like [`Post::open`], with a mailbox that receives in this order.
    pub fn open_in_order(
        self,
        options: &Options,
        order: Order,
        peers: Peers<'_>,
    ) -> Result<Correspondent> {
        life()?;
        let receiving = options.clone().max_lanes(self.back.len().max(1)).order(order);
        let mut mailbox = receiving.unbound().map_err(refused)?;
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
        Ok(Correspondent { out: sender, back: mailbox, kept: senders })
    }
}

/// Creates a sender that has sent its empty message.
pub fn announced<E: Sends>(options: &Options<E>, socket: OwnedFd) -> Result<Sender> {
    life()?;
    let mut sender = options.connect_socket(socket).map_err(refused)?;
    sender.send(&[]).map_err(failed("send"))?;
    Ok(sender)
}

/// Receives the empty message of a sender that has just connected.
pub fn until_announced(mailbox: &mut Mailbox, senders: Peers<'_>) -> Result<()> {
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
        if began.elapsed() > TIMEOUT {
            return Err(MeasureError::fail("mailbox: the two ends did not find each other"));
        }
    }
}

/// Waits until the receiver has accepted the lane and read its empty message, so that no later
/// message arrives while another sender is still announcing itself.
pub fn until_welcome(sender: &mut Sender, receiver: PeerHandle<'_>) -> Result<()> {
    let began = Instant::now();
    while sender.peer().is_none() {
        sender.service().map_err(failed("mailbox handshake"))?;
        receiver.check()?;
        if began.elapsed() > TIMEOUT {
            return Err(MeasureError::fail("mailbox: the receiver did not accept the lane"));
        }
        thread::sleep(PAUSE);
    }
    sender.wait_acked(Some(TIMEOUT)).map_err(failed("mailbox handshake"))
}

/// Returns this process's life. It belongs to the main thread, as in an invocation and in every
/// forked child. If another thread calls this function, as in tests, an anchor thread holds the
/// life.
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

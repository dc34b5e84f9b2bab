//! Mailboxes as mechanisms: one whose receiver spins, one whose receiver sleeps, one with default
//! options, one in which a survivor notices a death, one without copies, and one whose lanes are
//! handed over to a successor.

#![allow(unsafe_code, reason = "reads in place what our own senders wrote")]

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SocketType;
use tontine::Error;
use tontine::mailbox::{
    Mailbox, MailboxOptions, OnDeath, Options, Order, Sender, SenderOptions, WaitStrategy,
};
use tontine_bench::error::{ErrorContext, MeasureError, Result};
use tontine_bench::peer::PeerHandle;

use super::{Correspondent, Post, announced, failed, life, posts, refused, until_welcome};
use crate::about::{AfterKill, Death, Explored, Listing, Mechanism, RowKind, Twin};
use crate::descriptor::unix_pair;
use crate::driver::{NamedDriver, PairDriver, PairHalves, StreamDriver, Traffic};
use crate::end::{Duplex, Inlet, Outlet, Patient, Peers, Transfer, TransferError, check};
use crate::location::Location;
use crate::operation::Operation;
use tontine_bench::about::Idling;

/// Size in bytes of a stream's lane for small messages.
const SMALL: usize = 64 << 10;
/// Minimum capacity of a stream's lane for large messages, in messages.
const DEPTH: usize = 4;
/// Maximum wait of the receiver for senders to connect, before it checks them.
const LOOK: Duration = Duration::from_millis(20);
/// Number of messages that fit into the first chunk of 4,096 bytes, in addition to the message that
/// the two ends exchange first. The chunk's ring has 3,968 bytes, a message with its header takes
/// 72, the first one with its stamp 80, and one header stays free.
pub(super) const FIRST_CHUNK: u32 = 53;

/// The effect of a kill, which is the same with every wait strategy of the owner.
pub(super) const KILLED: Death = Death::LeavesOne { row: "mailbox", survivor: AfterKill::Notified };

pub struct Spin;

/// `mailbox-default`: both ends have default options.
pub struct DefaultOptions;

pub struct MailboxMechanism;

pub const SPIN: Mechanism = Mechanism {
    idle: Idling::Spins,
    twin: Some(Twin::Sleeping("mailbox-sleep")),
    ..Mechanism::new(
        "mailbox-spin",
        KILLED,
        &[Listing::new(
            RowKind::RoundTrip,
            "a tontine mailbox at each end, 8 bytes per message, both processes spin",
        )],
    )
};

/// The round trip opens its ends itself, in order to try both ways of sharing the fences.
pub const SLEEP: Mechanism = Mechanism::new(
    "mailbox-sleep",
    KILLED,
    &[
        Listing::new(
            RowKind::RoundTrip,
            "a tontine mailbox at each end, 8 bytes per message, both sleep",
        ),
        Listing::new(
            RowKind::WakeUp,
            "a tontine mailbox, 8 bytes per message, whose receiver sleeps",
        ),
    ],
);

pub const DEFAULT_OPTIONS: Mechanism = Mechanism {
    idle: Idling::SpinsThenSleeps,
    ..Mechanism::new(
        "mailbox-default",
        KILLED,
        &[Listing::new(
            RowKind::RoundTrip,
            "a tontine mailbox at each end, 8 bytes per message, default options: both poll \
             while that pays",
        )],
    )
};

pub const MAILBOX: Mechanism = Mechanism {
    shared_up_to: usize::MAX,
    explored: Some(Explored {
        own: true,
        // The successor of a victim may be killed in the same operation.
        successions: &[(Operation::Bind, Operation::Bind), (Operation::Send, Operation::Send)],
        // `bind` has 80 classes, so a second `bind` after each would make thousands of pairs.
        long_successions: &[Operation::Bind],
        // A message is acknowledged by the next `recv`.
        delivers_again: true,
        ..Explored::new(
            "mailbox",
            "Tontine's mailbox",
            &[
                Operation::Bind,
                Operation::Connect,
                Operation::Send,
                Operation::SendWaking,
                Operation::Grow,
                Operation::Receive,
                Operation::ReceiveEmpty,
                Operation::Close,
            ],
            || FIRST_CHUNK,
        )
    }),
    ..Mechanism::new(
        "mailbox",
        KILLED,
        &[
            Listing::new(
                RowKind::Throughput,
                "a tontine mailbox, one lane per sender, copied in and out; processes",
            ),
            Listing::new(
                RowKind::Survival,
                "a tontine mailbox at each end, both sleep; unread messages are taken back",
            ),
        ],
    )
};

pub const ZERO_COPY: Mechanism = Mechanism {
    shared_up_to: usize::MAX,
    ..Mechanism::new(
        "mailbox-zero-copy",
        KILLED,
        &[Listing::new(
            RowKind::Throughput,
            "a tontine mailbox, filled and read in place; processes",
        )],
    )
};

pub const SUCCESSION: Mechanism = Mechanism {
    explored: Some(Explored {
        own: true,
        // The successor of a dead receiver may be killed in its first receive, which takes the
        // lane over, or earlier, while it binds the address.
        successions: &[
            (Operation::Receive, Operation::Receive),
            (Operation::ReceiveEmpty, Operation::Bind),
        ],
        long_successions: &[Operation::Bind],
        delivers_again: true,
        hands_over: true,
        ..Explored::new(
            "mailbox-succession",
            "Tontine's mailbox, its sender waiting for a dead receiver's successor",
            &[Operation::Receive, Operation::ReceiveEmpty],
            || FIRST_CHUNK,
        )
    }),
    ..Mechanism::new("mailbox-succession", KILLED, &[])
};

impl Outlet for Sender {
    #[inline(always)]
    fn send(&mut self, message: &[u8], _: Peers<'_>) -> Transfer<()> {
        match Sender::send(self, message) {
            Ok(()) => Ok(()),
            Err(Error::OwnerDied { .. }) => Err(TransferError::Gone),
            Err(error) => Err(failed("send")(error).into()),
        }
    }

    fn take_back(&mut self) -> Vec<Vec<u8>> {
        self.take_unread().unwrap_or_default()
    }

    fn look_for_successor(&mut self) -> Result<()> {
        self.service().map_err(failed("service"))
    }
}

impl Inlet for Mailbox {
    #[inline(always)]
    fn receive<R>(&mut self, _: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        match self.recv() {
            Ok(message) => Ok(look(&message)),
            Err(error) => Err(failed("recv")(error).into()),
        }
    }
}

impl Patient for Mailbox {
    fn receive_within<R>(
        &mut self,
        time: Duration,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Transfer<Option<R>> {
        match self.recv_timeout(time) {
            Ok(message) => Ok(Some(look(&message))),
            Err(Error::TimedOut) => Ok(None),
            Err(error) => Err(failed("recv")(error).into()),
        }
    }
}

pub(super) fn two_posts() -> Result<PairHalves<Post>> {
    posts(1).map(PairHalves::of)
}

impl PairDriver for Spin {
    type Half = Post;
    type End<const BYTES: usize> = Correspondent;

    fn pair(_: usize) -> Result<PairHalves<Post>> {
        two_posts()
    }

    fn open<const BYTES: usize>(post: Post, peers: Peers<'_>) -> Result<Correspondent> {
        post.open(&Options::new().wait_strategy(WaitStrategy::Spin), peers)
    }
}

impl PairDriver for DefaultOptions {
    type Half = Post;
    type End<const BYTES: usize> = Correspondent;

    fn pair(_: usize) -> Result<PairHalves<Post>> {
        two_posts()
    }

    fn open<const BYTES: usize>(post: Post, peers: Peers<'_>) -> Result<Correspondent> {
        post.open(&Options::new(), peers)
    }
}

/// A mailbox whose owner notices the death of the only sender. `recv` waits for the next message
/// and does not report a sender's death, so a process that expects a reply waits on the mailbox's
/// descriptor and checks that the lane still exists.
pub struct Noticing(Mailbox);

impl Inlet for Noticing {
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        loop {
            match self.0.try_recv() {
                Ok(message) => return Ok(look(&message)),
                Err(Error::WouldBlock) => {}
                Err(error) => return Err(failed("recv")(error).into()),
            }
            if self.0.sender_count() == 0 {
                return Err(TransferError::Gone);
            }
            if self.0.arm().map_err(failed("arm"))? {
                match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
                    Ok(_) => {}
                    Err(Errno::INTR) => check(peers)?,
                    Err(error) => return Err(error).during("poll").map_err(TransferError::from),
                }
            }
        }
    }
}

impl PairDriver for MailboxMechanism {
    type Half = Post;
    type End<const BYTES: usize> = Duplex<Sender, Noticing>;

    fn pair(_: usize) -> Result<PairHalves<Post>> {
        two_posts()
    }

    fn open<const BYTES: usize>(post: Post, peers: Peers<'_>) -> Result<Self::End<BYTES>> {
        let options = Options::new().wait_strategy(WaitStrategy::Sleep);
        let Correspondent { out, back, .. } = post.open(&options, peers)?;
        Ok(Duplex::new(out, Noticing(back)))
    }
}

/// A stream from many senders, each in its own process, to one receiver.
///
/// By default lanes grow from one page while messages wait, and here messages always wait. Each
/// timed lane therefore starts with the size to which it would grow. It takes many small messages
/// and fits into a cache; for large messages its capacity is [`DEPTH`].
///
/// Even without copies a sender fills the space that it reserves, like a program that creates a
/// message there. The receiver reads in place.
pub struct LaneStream<const COPY: bool, const CAUSAL: bool = false>;

/// Returns the size in bytes of each lane for messages of this length.
fn lane_bytes(bytes: usize) -> u64 {
    (bytes * 2 * DEPTH).next_power_of_two().max(SMALL) as u64
}

/// The connections of a stream before they are opened.
pub struct Connections {
    mailbox: MailboxOptions,
    sender: SenderOptions,
    pairs: RefCell<Vec<(Option<OwnedFd>, Option<OwnedFd>)>>,
}

impl<const COPY: bool, const CAUSAL: bool> StreamDriver for LaneStream<COPY, CAUSAL> {
    type Fixture = Connections;
    type Out = LaneOut<COPY>;
    type In = LaneIn<COPY>;

    fn set_up(Traffic { bytes, senders }: Traffic) -> Result<Connections> {
        let lane = lane_bytes(bytes);
        let both = Options::new().lane_cap(2 * lane);
        let sender = both.clone().first_chunk(lane);
        let order = if CAUSAL { Order::Causal } else { Order::BySender };
        let mailbox = both.mailbox_cap(4 * lane * senders as u64).max_lanes(senders).order(order);
        let pair = |_| unix_pair(SocketType::SEQPACKET).map(|(a, b)| (Some(a), Some(b)));
        let pairs = (0..senders).map(pair).collect::<Result<_>>()?;
        Ok(Connections { mailbox, sender, pairs: RefCell::new(pairs) })
    }

    fn outlet(fixture: &Connections, sender: usize) -> Result<Self::Out> {
        let socket = fixture.pairs.borrow_mut()[sender].1.take();
        fixture.pairs.borrow_mut().clear();
        let mut sender = announced(&fixture.sender, socket.ok_or_else(twice)?)?;
        until_welcome(&mut sender, PeerHandle::Parent)?;
        Ok(LaneOut(sender))
    }

    fn inlet(fixture: &Connections, _: Peers<'_>) -> Result<Self::In> {
        life()?;
        let mut mailbox = fixture.mailbox.unbound().map_err(refused)?;
        let mut missing = 0;
        for (read, _) in fixture.pairs.borrow_mut().drain(..) {
            mailbox.adopt(read.ok_or_else(twice)?).map_err(refused)?;
            missing += 1;
        }
        Ok(LaneIn { mailbox, missing })
    }

    fn note(traffic: Traffic) -> Option<String> {
        let kib = lane_bytes(traffic.bytes) >> 10;
        Some(format!("lanes of {kib} KiB from the start; default wait strategy"))
    }
}

fn twice() -> MeasureError {
    MeasureError::fail("a socket was taken twice")
}

/// A sender of a stream.
pub struct LaneOut<const COPY: bool>(Sender);

impl<const COPY: bool> Outlet for LaneOut<COPY> {
    #[inline(always)]
    fn send(&mut self, message: &[u8], _: Peers<'_>) -> Transfer<()> {
        if COPY {
            return Ok(self.0.send(message).map_err(failed("send"))?);
        }
        let mut slot = self.0.reserve(message.len()).map_err(failed("reserve"))?;
        slot.copy_from_slice(message);
        Ok(slot.commit().map_err(failed("commit"))?)
    }
}

/// The receiver of a stream.
pub struct LaneIn<const COPY: bool> {
    mailbox: Mailbox,
    /// Number of senders that have not announced themselves yet.
    missing: usize,
}

impl<const COPY: bool> LaneIn<COPY> {
    /// Waits for a message while some senders have not announced themselves.
    #[cold]
    fn meet<R>(&mut self, senders: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        loop {
            match self.mailbox.recv_timeout(LOOK) {
                Ok(message) if message.is_empty() => {
                    self.missing -= 1;
                    return Ok(None);
                }
                Ok(message) => return Ok(Some(look(&message))),
                Err(Error::TimedOut) => check(senders)?,
                Err(error) => return Err(failed("recv")(error)),
            }
            if let Some(fault) = self.mailbox.take_errors().pop() {
                return Err(refused(fault));
            }
        }
    }
}

impl<const COPY: bool> Inlet for LaneIn<COPY> {
    #[inline(always)]
    fn receive<R>(&mut self, senders: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        let mut look = Some(look);
        while self.missing > 0 {
            let seen = self.meet(senders, |message| look.take().map(|look| look(message)))?;
            if let Some(Some(seen)) = seen {
                return Ok(seen);
            }
        }
        let look =
            look.ok_or_else(|| MeasureError::fail("expected one peek per message, found two"))?;
        if COPY {
            return self.mailbox.receive(senders, look);
        }
        // SAFETY: the senders are children of this process and never change messages that they have
        // committed.
        let message = unsafe { self.mailbox.recv_in_place() };
        Ok(message.map(|message| look(&message)).map_err(failed("recv"))?)
    }
}

/// A mailbox at a path. If `WAITS`, its senders wait for the successor of a dead receiver.
pub struct ByPath<const WAITS: bool>;

impl<const WAITS: bool> ByPath<WAITS> {
    /// Returns options without spinning, which would make the path of a run depend on the clock.
    pub(super) fn options() -> Options {
        Options::new().wait_strategy(WaitStrategy::Sleep)
    }
}

pub(super) fn path(at: &Location) -> PathBuf {
    at.folder().join("mailbox")
}

impl<const WAITS: bool> NamedDriver for ByPath<WAITS> {
    type Out = Sender;
    type In = Mailbox;

    fn sender(at: &Location) -> Result<Sender> {
        let on_death = if WAITS { OnDeath::WaitForSuccessor } else { OnDeath::Fail };
        Self::options().on_death(on_death).connect(path(at)).map_err(refused)
    }

    fn receiver(at: &Location) -> Result<Mailbox> {
        Self::options().bind(path(at)).map_err(refused)
    }
}

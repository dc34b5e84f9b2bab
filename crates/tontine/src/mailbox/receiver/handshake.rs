//! The receiver's side of the handshake: [`HandshakeStatus`].
//!
//! Each part of HELLO is an untrusted value until it is checked: the sender's process against the
//! kernel's credentials, its memory for seals and the announced size, and the bytes that it may
//! have.
//!
//! If *this* process lacks a descriptor or memory to accept a sender, the sender is not at fault:
//! the handshake is deferred and retried. Meanwhile no other connection is accepted, since it would
//! lack the same resource. The sender is refused only once the handshake timeout has expired.
//!
//! Neighbours: [`super::listener`] owns the connections, [`super::inbound`] defines the lanes made
//! from them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::Mailbox;
use super::inbound::{InboundLane, LaneInit, chunk_size};
use super::listener::{BACKLOG, EventSource, FirstMessage, NextConnection, PendingConnection};
use super::message::SenderId;
use crate::error::{Error, Peer, Result};
use crate::lane::LaneReader;
use crate::lane::control::Control;
use crate::lane::mapped::half_of_peer;
use crate::lane::page::{DOUBT_AT, HANDOVER_AT, MAX_LOG2, MIN_LOG2, OWNERS_AT, UNGRANTED, VERSION};
use crate::lane::region::LaneMemory;
use crate::life::Watch;
use crate::mailbox::wire::{self, ControlMessage, DecodeError, FenceMode, Hello, Welcome};
use crate::sync::{Ordering, fence};
use crate::sys::region::PeerRegion;
use crate::sys::socket::{self, PassedMessage, PeerSocket, SendResult};
use crate::sys::{doorbell, pidfd, quarantine};

/// Maximum number of connections accepted per call.
const ACCEPTED_AT_ONCE: usize = 16;

impl Mailbox {
    /// Accepts a bounded number of connections, and processes the messages that they have sent.
    pub(super) fn accept(&mut self) -> Result<()> {
        for _ in 0..ACCEPTED_AT_ONCE {
            if !self.accept_one()? {
                break;
            }
        }
        Ok(())
    }

    /// Accepts the next connection. Returns `false` if none waits, or if this process lacks the
    /// resources.
    fn accept_one(&mut self) -> Result<bool> {
        if self.door.has_deferred() {
            // A connection accepted now would take a descriptor that deferred connections wait for.
            self.door.pause_accept();
            return Ok(false);
        }
        let options = &self.options;
        match self.door.accept(|socket| options.admit_connected(socket)) {
            Ok(accepted) => {
                self.door.resume_accept();
                match accepted {
                    NextConnection::Nothing => return Ok(false),
                    NextConnection::Pending(number) => self.answer(number),
                    NextConnection::Stranger(socket, error) => {
                        refuse(&socket, &error);
                        self.lanes.fault(error);
                    }
                }
            }
            Err(error) if self.options.relieves(&error) => {}
            Err(error) if error.is_shortage() => {
                if self.door.pause_accept() {
                    self.lanes.fault(error);
                }
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Accepts every sender that waits, as far as this process has the resources.
    pub(super) fn accept_waiting(&mut self) {
        for number in self.door.heard_numbers() {
            self.answer(number);
        }
        // More connections than the queue holds were not waiting when this began. An error is
        // returned by the next service of the connections.
        for _ in 0..BACKLOG.cast_unsigned() {
            match self.accept_one() {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
        }
    }

    /// Reads a pending connection's first message, and accepts, refuses or defers it.
    pub(super) fn answer(&mut self, number: u32) {
        let Some(mut connection) = self.door.take(number) else { return };
        let handshake = loop {
            match self.handshake(&mut connection) {
                Err(lack) if self.options.relieves(&lack) => {}
                done => break done,
            }
        };
        match handshake {
            Ok(HandshakeStatus::Silent) => self.door.keep(connection),
            Ok(HandshakeStatus::Gone) => self.door.unwatch(connection.socket.as_fd()),
            Ok(HandshakeStatus::Busy) => {
                // Refuse now, so that other users' connections do not wait for this one.
                let error = Error::system("a thread that receives HELLO", Errno::AGAIN);
                self.refuse(&connection, &error);
                self.lanes.fault(error);
            }
            Ok(HandshakeStatus::Welcome(lane)) => {
                self.lanes.add(InboundLane::new(*lane, connection.socket))
            }
            Err(lack) if lack.is_shortage() => {
                if self.door.keep_for_later(connection, lack.clone()) {
                    self.lanes.fault(lack);
                }
            }
            Err(error) => {
                self.refuse(&connection, &error);
                self.lanes.fault(error);
            }
        }
    }

    /// Refuses a pending connection, with the reason.
    pub(super) fn refuse(&self, connection: &PendingConnection, error: &Error) {
        // The socket is removed explicitly: a forked child's copy would keep it in the epoll set.
        self.door.unwatch(connection.socket.as_fd());
        refuse(&connection.socket, error);
    }

    /// Carries out the handshake with a pending connection as far as possible.
    fn handshake(&mut self, connection: &mut PendingConnection) -> Result<HandshakeStatus> {
        let (note, mut passed) = match connection.first_message.take() {
            Some(first) => first,
            None => match self.recv_hello(&connection.socket)? {
                Hearing::Silence => return Ok(HandshakeStatus::Silent),
                Hearing::HungUp => return Ok(HandshakeStatus::Gone),
                Hearing::Busy => return Ok(HandshakeStatus::Busy),
                Hearing::Message(first) => *first,
            },
        };
        let welcome = self.welcome(&connection.socket, note, &mut passed);
        if welcome.as_ref().is_err_and(Error::is_shortage) {
            connection.first_message = Some((note, passed));
        }
        Ok(welcome?.map_or(HandshakeStatus::Gone, |lane| HandshakeStatus::Welcome(Box::new(lane))))
    }

    /// Returns the initial state of a sender's lane, or `None` if the sender has withdrawn HELLO.
    pub(super) fn welcome(
        &mut self,
        socket: &PeerSocket,
        note: Result<ControlMessage, DecodeError>,
        passed: &mut PassedMessage,
    ) -> Result<Option<LaneInit>> {
        let Some(from) = passed.from else {
            return Err(Error::Protocol {
                peer: Peer::UNKNOWN,
                what: "HELLO carries no credentials of the process that sent it",
            });
        };
        // The process that connected was admitted, but another process may have sent the message.
        let peer = from.peer();
        self.options.admit_message(from, socket)?;
        let wrong = |what| Error::Protocol { peer, what };
        let hello = match note {
            Ok(ControlMessage::Hello(hello)) => hello,
            Err(DecodeError::Version(theirs)) => {
                return Err(Error::VersionMismatch { ours: VERSION, theirs });
            }
            Err(DecodeError::Malformed(what)) => return Err(wrong(what)),
            Ok(_) => return Err(wrong("expected HELLO as the first message, found another")),
        };
        if passed.count != hello.named().count() + 1 {
            return Err(wrong(
                "HELLO does not carry one descriptor for its process page and one for each chunk",
            ));
        }
        if self.lanes.len() >= self.options.max_lanes {
            return Err(Error::Full { what: "lanes", max: self.options.max_lanes as u64 });
        }
        let (granted, excess) = self.first_grant(&hello)?;
        let lane = self.begin(socket, peer, &hello, passed, granted)?;
        Ok(lane.map(|lane| LaneInit { excess, ..lane }))
    }

    /// Returns the total chunk size, in bytes, that a connecting sender may have without a request,
    /// and the part of it that exceeds the caps. Half of the mailbox's memory is granted to the
    /// senders that connect first: each receives its whole cap, so that it need not wait for a busy
    /// receiver. A quarter is shared equally. The rest is lent on request. If less than an equal
    /// share is left, the senders that may still connect share the remainder.
    pub(super) fn first_grant(&self, hello: &Hello) -> Result<(u64, u64)> {
        let brought: u64 = hello.named().map(|log2| 1_u64 << log2.min(MAX_LOG2)).sum();
        let MemoryLeft { regular: left, total } = self.memory_left();
        let wanted = self.options.lane_cap.min(hello.cap);
        let places = (self.options.max_lanes - self.lanes.len()).max(1) as u64;
        let most = self.options.lane_cap.min(left);
        if brought > most {
            // A lane that is handed over may have grown while no receiver had accepted it.
            if hello.handover == 0 || brought > UNGRANTED.min(total) {
                return Err(Error::Full { what: "bytes per lane", max: most });
            }
            // With a small chunk more, the sender can return its large one.
            let granted = brought + (1 << MIN_LOG2);
            return Ok((granted, granted - most));
        }
        if self.lanes.granted().saturating_add(wanted) <= self.options.mailbox_cap / 2 {
            return Ok((wanted.max(brought), 0));
        }
        let others = (places - 1).saturating_mul(1 << MIN_LOG2);
        let spare = self.share().min((left - brought).saturating_sub(others) / places);
        Ok((wanted.min(brought + spare).max(brought), 0))
    }

    /// Returns the number of bytes that may still be granted.
    pub(super) fn memory_left(&self) -> MemoryLeft {
        let cap = self.options.mailbox_cap;
        let (excess, regular, needed) = self.lanes.granted_parts();
        let twice = cap.saturating_mul(2);
        let total = twice.saturating_add(UNGRANTED).saturating_sub(excess + regular);
        let unused = cap.saturating_sub(needed).min(twice.saturating_sub(regular));
        MemoryLeft { regular: unused.min(total), total }
    }

    /// Returns the number of bytes for the smallest chunk of every sender that may still connect.
    pub(super) fn reserve(&self) -> u64 {
        // `max_lanes` may be usize::MAX.
        let places = self.options.max_lanes.saturating_sub(self.lanes.len()) as u64;
        places.saturating_mul(1 << MIN_LOG2)
    }

    /// Returns the number of bytes that each lane may have in addition to its chunk, even if other
    /// lanes request them.
    pub(super) fn share(&self) -> u64 {
        self.options.mailbox_cap / 4 / self.options.max_lanes.max(1) as u64
    }

    /// Returns the maximum number of bytes that a lane is ever granted, even if all others end. The
    /// sender uses it to distinguish a message that must wait from a message that never fits.
    fn most(&self, granted: u64) -> u64 {
        let others = self.options.max_lanes.saturating_sub(1) as u64;
        let left = self.options.mailbox_cap.saturating_sub(others.saturating_mul(1 << MIN_LOG2));
        granted.max(self.options.lane_cap.min(left))
    }

    /// Checks the passed memory, sends WELCOME, and returns the initial state of the lane, or
    /// `None` if the sender has withdrawn HELLO.
    pub(super) fn begin(
        &self,
        socket: &PeerSocket,
        peer: Peer,
        hello: &Hello,
        passed: &mut PassedMessage,
        granted: u64,
    ) -> Result<Option<LaneInit>> {
        let wrong = |what| Error::Protocol { peer, what };
        for log2 in hello.named() {
            chunk_size(log2).map_err(|broken| wrong(broken.0))?;
        }
        // The steps for which this process may lack a resource are first, while the passed objects
        // are still available for a retry.
        let (control, control_fd) = Control::new(hello.position, granted, self.most(granted))?;
        if self.options.relays {
            control.mark_relay();
        }
        if self.order.is_some() {
            control.want_stamps();
        }
        let (doorbell, button) = doorbell::make()?;
        let fences = match (self.can_interrupt, hello.fences) {
            (true, FenceMode::Asymmetric) => FenceMode::Asymmetric,
            _ => FenceMode::Symmetric,
        };
        let process = match (&passed.pidfd, peer.pid) {
            (None, Some(pid)) => match pidfd::open(pid) {
                // The process exists, and a lane must not be without its pidfd.
                Err(error) if error.is_shortage() => return Err(error),
                opened => opened.ok(),
            },
            _ => passed.pidfd.take(),
        };
        let memory = std::mem::replace(&mut passed.memory, Ok(Vec::new()));
        let mut memory = memory.map_err(|unfit| unfit.into_error(peer))?.into_iter();
        let page =
            memory.next().ok_or_else(|| wrong("expected HELLO with a process page, found none"))?;
        let watch = Watch::of_peer(page, peer)?;
        let mut chunks: VecDeque<(PeerRegion, u32)> = memory.zip(hello.named()).collect();
        let (first, log2) =
            chunks.pop_front().ok_or_else(|| wrong("expected HELLO with a chunk, found none"))?;
        let reader = LaneReader::new(first, log2, hello.base, hello.position)
            .map_err(|broken| wrong(broken.0))?;
        // The first chunk of a lane that is handed over still has the lane's last size.
        let returns_to = chunk_size(hello.returns_to.into()).unwrap_or(reader.size());
        let id = self.lanes.next_id();
        let given = [self.life.as_fd(), control_fd.as_fd(), button.as_fd()];
        let watched = [Some(doorbell.as_fd()), process.as_ref().map(AsFd::as_fd)];
        let unwatch = || watched.into_iter().flatten().for_each(|one| self.door.unwatch(one));
        if let Err(error) = self.announce(socket, watched, &given, fences, id) {
            unwatch();
            let chunks = chunks.into_iter().map(|(region, _)| region);
            let first = [watch.into_page(), reader.into_region()];
            passed.memory = Ok(first.into_iter().chain(chunks).collect());
            passed.pidfd = process;
            return Err(error);
        }
        // SYNC handover: pairs with `OutboundLane::withdraw`. The sender withdraws, then checks for
        // WELCOME; this receiver sends WELCOME, then checks whether the sender withdrew. Both
        // execute a full fence in between, so at least one sees the other's step, and two receivers
        // never read one lane.
        fence(Ordering::SeqCst);
        if half_of_peer(reader.region(), HANDOVER_AT).load(Ordering::Relaxed) != hello.handover {
            unwatch();
            // The sender may have read WELCOME. `GIVE_BACK` ends its fast path, so that it sees the
            // hang-up. CLOSED would announce a close, and end a lane that another owner may have.
            control.give_back(true);
            return Ok(None);
        }
        // The sender has stored both words before it sent HELLO.
        let doubt = (
            reader.region().word(DOUBT_AT).load(Ordering::Relaxed),
            half_of_peer(reader.region(), OWNERS_AT).load(Ordering::Relaxed),
        );
        Ok(Some(LaneInit {
            doubt,
            position: hello.position,
            returns_to,
            reader,
            passed: chunks,
            control,
            fences,
            granted,
            excess: 0,
            cap: hello.cap,
            doorbell,
            pidfd: process,
            watch,
            peer,
            id,
        }))
    }

    /// Watches the descriptors that report a lane's events, then sends WELCOME, after which no step
    /// can fail.
    fn announce(
        &self,
        socket: &PeerSocket,
        [doorbell, process]: [Option<BorrowedFd<'_>>; 2],
        passed: &[BorrowedFd<'_>],
        fences: FenceMode,
        SenderId { slot, generation }: SenderId,
    ) -> Result<()> {
        if let Some(doorbell) = doorbell {
            self.door.watch_edges(doorbell, EventSource::Doorbell(slot, generation))?;
        }
        if let Some(process) = process {
            self.door.watch(process, EventSource::Process(slot, generation))?;
        }
        self.door.watch(socket.as_fd(), EventSource::Socket(slot, generation))?;
        let welcome =
            wire::write(ControlMessage::Welcome(Welcome { fences, desk: self.desk.index }));
        // A sender that has ended needs no WELCOME; its messages are still read.
        if socket::send(socket, &welcome, passed)? == SendResult::Full {
            // Without WELCOME, the sender would never ring.
            return Err(Error::system("sendmsg of WELCOME", Errno::AGAIN));
        }
        Ok(())
    }
}

/// The memory that a mailbox may still grant, in bytes.
pub(super) struct MemoryLeft {
    /// Memory within the cap. The memory of empty lanes whose senders do not return it on request
    /// counts as unused, so that the lanes together have up to twice the cap.
    pub(super) regular: u64,
    /// Memory for messages that precede the acceptance of a lane: what the lanes together have
    /// never exceeds twice the cap and [`UNGRANTED`].
    pub(super) total: u64,
}

/// State of a handshake after one attempt.
enum HandshakeStatus {
    /// HELLO has not arrived.
    Silent,
    /// The sender hung up or withdrew HELLO.
    Gone,
    /// All threads that could receive HELLO are blocked by files whose file systems never reply.
    Busy,
    /// The lane is accepted.
    Welcome(Box<LaneInit>),
}

/// Result of an attempt to receive a connection's first message.
enum Hearing {
    /// The message has not arrived.
    Silence,
    /// The sender hung up.
    HungUp,
    /// No thread can receive the message.
    Busy,
    Message(Box<FirstMessage>),
}

impl Mailbox {
    /// Receives a connection's first message.
    ///
    /// # Errors
    /// This process lacks a resource; the message stays in the queue.
    fn recv_hello(&self, socket: &PeerSocket) -> Result<Hearing> {
        let mut bytes = [0; wire::LONGEST];
        let Some(received) = socket::receive(socket, &mut bytes)? else {
            return Ok(Hearing::Silence);
        };
        if received.hung_up {
            return Ok(Hearing::HungUp);
        }
        if !received.has_descriptors {
            let bytes = bytes[..received.len].to_vec();
            let note = wire::read_received(&bytes, received.oversize);
            let passed = PassedMessage::nothing(bytes, received.oversize, received.from);
            return Ok(Hearing::Message(Box::new((note, passed))));
        }
        if quarantine::is_full(socket::owner(socket)?.uid) {
            return Ok(Hearing::Busy);
        }
        let most = self.options.lane_cap.min(self.memory_left().regular).max(UNGRANTED);
        let expected = move |bytes: &[u8]| wire::expected(bytes, most);
        Ok(match socket::receive_passed(socket, wire::LONGEST, true, expected)? {
            None => Hearing::Silence,
            Some(passed) => {
                let note = wire::read_received(&passed.bytes, passed.oversize);
                Hearing::Message(Box::new((note, passed)))
            }
        })
    }
}

/// Sends the sender the error number of the refusal.
fn refuse(socket: &PeerSocket, error: &Error) {
    let _ = socket::send(socket, &wire::write(ControlMessage::Refused(error.errno())), &[]);
}

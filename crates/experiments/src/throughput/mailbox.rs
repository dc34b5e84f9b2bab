//! The library's mailbox: many senders, each in a process of its own, to one receiver.
//!
//! By default lanes grow from a page while messages wait, and here they always wait; what is timed
//! is the lane that they grow to, so it has that size from the start. It holds many small messages
//! and stays within a cache; of large ones it holds [`DEPTH`].
//!
//! In the variant without copies a sender still fills the room that it reserves, as a program does
//! that makes a message there; the receiver reads in place.

#![allow(unsafe_code, reason = "reads in place what our own senders wrote")]

use std::cell::RefCell;

use rustix::net::SocketType;
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender};
use tontine_host::peer::Peer;
use tontine_host::trouble::{Result, Trouble};
use tontine_mechanisms::descriptor::unix_pair;
use tontine_mechanisms::mailbox::{announced, failed, life, refused, until_welcome};

use super::harness::{self, Batches, Inlet, Outlet, Plan, check};

/// Bytes of a lane for small messages.
const SMALL: usize = 64 << 10;
/// Messages that a lane for large ones holds, at least.
const DEPTH: usize = 4;
/// How long the receiver waits for senders who have not come before it looks after them.
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);

/// Bytes of each lane for messages of so many bytes.
pub(super) fn lane_bytes(bytes: usize) -> u64 {
    (bytes * 2 * DEPTH).next_power_of_two().max(SMALL) as u64
}

/// Times it between processes.
pub(super) fn run<const COPY: bool>(plan: &Plan) -> Result<Batches> {
    let lane = lane_bytes(plan.bytes);
    let options = Options::new()
        .lane_cap(2 * lane)
        .first_chunk(lane)
        .mailbox_cap(4 * lane * plan.senders as u64)
        .max_lanes(plan.senders);
    let mut pairs = Vec::with_capacity(plan.senders);
    for _ in 0..plan.senders {
        let (read, write) = unix_pair(SocketType::SEQPACKET)?;
        pairs.push((Some(read), Some(write)));
    }
    let pairs = RefCell::new(pairs);
    let twice = || Trouble::fail("a socket was taken twice");
    harness::from_processes(
        plan,
        |number| {
            let socket = pairs.borrow_mut()[number].1.take();
            pairs.borrow_mut().clear();
            let mut sender = announced(&options, socket.ok_or_else(twice)?)?;
            until_welcome(&mut sender, Peer::Parent)?;
            Ok(Sending::<COPY>(sender))
        },
        |_| {
            life()?;
            let mut mailbox = options.unbound().map_err(refused)?;
            for (read, _) in pairs.borrow_mut().drain(..) {
                mailbox.adopt(read.ok_or_else(twice)?).map_err(refused)?;
            }
            Ok(Receiving::<COPY> { mailbox, missing: plan.senders })
        },
    )
}

struct Sending<const COPY: bool>(Sender);

impl<const COPY: bool> Outlet for Sending<COPY> {
    #[inline(always)]
    fn send(&mut self, message: &[u8], _: Peer<'_>) -> Result<()> {
        if COPY {
            self.0.send(message).map_err(failed("send"))
        } else {
            let mut room = self.0.reserve(message.len()).map_err(failed("reserve"))?;
            room.copy_from_slice(message);
            room.commit().map_err(failed("commit"))
        }
    }
}

struct Receiving<const COPY: bool> {
    mailbox: Mailbox,
    /// Senders who have not announced themselves.
    missing: usize,
}

impl<const COPY: bool> Receiving<COPY> {
    /// Waits for a message while senders are missing.
    #[cold]
    fn meet<R>(
        &mut self,
        senders: &[Peer<'_>],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
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
            if let Some(fault) = self.mailbox.faults().pop() {
                return Err(refused(fault));
            }
        }
    }
}

impl<const COPY: bool> Inlet for Receiving<COPY> {
    #[inline(always)]
    fn receive<R>(&mut self, senders: &[Peer<'_>], look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let mut look = Some(look);
        while self.missing > 0 {
            let seen = self.meet(senders, |message| look.take().map(|look| look(message)))?;
            if let Some(Some(seen)) = seen {
                return Ok(seen);
            }
        }
        let look = look.ok_or_else(|| Trouble::fail("a message was looked at twice"))?;
        if COPY {
            self.mailbox.recv().map(|message| look(&message)).map_err(failed("recv"))
        } else {
            // SAFETY: the senders are our own children, who never change what they have committed.
            let message = unsafe { self.mailbox.recv_in_place() };
            message.map(|message| look(&message)).map_err(failed("recv"))
        }
    }
}

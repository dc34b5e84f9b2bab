//! `mailbox-relay`: a relay as the receiver, which reads messages ahead of their acknowledgement.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tontine::mailbox::{Relay, Sender, SenderId};
use tontine_bench::error::{ErrorContext, Result};

use super::ends::{ByPath, FIRST_CHUNK, KILLED, path};
use super::{failed, refused};
use crate::about::{Explored, Mechanism};
use crate::driver::NamedDriver;
use crate::end::{Inlet, Patient, Peers, Transfer, TransferError, check};
use crate::location::Location;
use crate::operation::Operation;

/// Maximum number of messages that are read and not acknowledged.
const AHEAD: usize = 2;

pub const RELAY: Mechanism = Mechanism {
    explored: Some(Explored {
        own: true,
        // The next relay may be killed in its first receive, which takes the lane over.
        successions: &[(Operation::Receive, Operation::Receive)],
        delivers_again: true,
        hands_over: true,
        ..Explored::new(
            "mailbox-relay",
            "Tontine's mailbox, received by a relay that reads two messages ahead",
            &[
                Operation::Send,
                Operation::SendWaking,
                Operation::Grow,
                Operation::Receive,
                Operation::ReceiveEmpty,
            ],
            || FIRST_CHUNK,
        )
    }),
    ..Mechanism::new("mailbox-relay", KILLED, &[])
};

/// A relay at a path. Its senders have no reason to wait for a mailbox's successor.
pub struct RelayByPath;

impl NamedDriver for RelayByPath {
    type Out = Sender;
    type In = RelayInlet;

    fn sender(at: &Location) -> Result<Sender> {
        ByPath::<false>::options().connect(path(at)).map_err(refused)
    }

    fn receiver(at: &Location) -> Result<RelayInlet> {
        let relay = ByPath::<false>::options().bind_relay(path(at)).map_err(refused)?;
        Ok(RelayInlet { relay, ahead: VecDeque::new(), taken: None, lanes: Vec::new() })
    }
}

/// A message that was read ahead.
struct ReadMessage {
    lane: SenderId,
    /// The lane's position after the message.
    end: u64,
    bytes: Vec<u8>,
}

/// A relay that hands out the messages that it has read, and acknowledges each at the next receive.
pub struct RelayInlet {
    relay: Relay,
    /// Messages that were read and not handed out.
    ahead: VecDeque<ReadMessage>,
    /// The message that was handed out last.
    taken: Option<(SenderId, u64)>,
    lanes: Vec<SenderId>,
}

impl RelayInlet {
    /// Acknowledges the message that was handed out last, and reads ahead.
    fn next(&mut self) -> Result<Option<ReadMessage>> {
        if let Some((lane, end)) = self.taken.take() {
            self.relay.ack_to(lane, end).map_err(failed("ack_to"))?;
        }
        self.lanes.clear();
        self.relay.ready(&mut self.lanes);
        for &lane in &self.lanes {
            let Self { relay, ahead, .. } = self;
            let mut read = 0;
            relay
                .read_ahead(lane, |record| {
                    let reads = ahead.len() < AHEAD;
                    if reads {
                        let mut bytes = Vec::with_capacity(record.len());
                        record.append_to(.., &mut bytes);
                        ahead.push_back(ReadMessage { lane, end: record.end(), bytes });
                        read = record.end();
                    }
                    reads
                })
                .map_err(failed("read_ahead"))?;
            relay.mark_sent(lane, read);
            let is_done = relay.lane(lane).is_some_and(|lane| lane.drained);
            if is_done && ahead.iter().all(|message| message.lane != lane) {
                relay.remove(lane);
            }
        }
        let next = self.ahead.pop_front();
        self.taken = next.as_ref().map(|message| (message.lane, message.end));
        Ok(next)
    }

    /// Waits for a message until `deadline`.
    fn wait(&mut self, deadline: Option<Instant>, peers: Peers<'_>) -> Result<Option<ReadMessage>> {
        loop {
            if let Some(message) = self.next()? {
                return Ok(Some(message));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            if self.relay.arm().map_err(failed("arm"))? {
                let left = left.map(|left| Timespec {
                    tv_sec: left.as_secs().cast_signed(),
                    tv_nsec: left.subsec_nanos().into(),
                });
                match poll(&mut [PollFd::new(&self.relay, PollFlags::IN)], left.as_ref()) {
                    Ok(_) => {}
                    Err(Errno::INTR) => check(peers)?,
                    Err(error) => return Err(error).during("poll"),
                }
            }
            self.relay.service().map_err(failed("service"))?;
        }
    }
}

impl Inlet for RelayInlet {
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        match self.wait(None, peers)? {
            Some(message) => Ok(look(&message.bytes)),
            None => Err(TransferError::Gone),
        }
    }
}

impl Patient for RelayInlet {
    fn receive_within<R>(
        &mut self,
        time: Duration,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Transfer<Option<R>> {
        let message = self.wait(Instant::now().checked_add(time), &[])?;
        Ok(message.map(|message| look(&message.bytes)))
    }
}

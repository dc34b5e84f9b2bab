//! A worker with one end of a queue: [`QueueActor`].

use std::io;
use std::time::{Duration, Instant};

use super::order::{CommandKind, WorkerCommand, WorkerReply};
use super::{CommandHandler, framed, misplaced};
use crate::message::{LENGTH, MessageCheck, numbered};
use crate::run_dir::RunDir;
use crate::subject::{Endpoint, QueueSubject, Wait};

/// A worker that has one end of a queue.
pub(super) struct QueueActor {
    queue: &'static dyn QueueSubject,
    place: RunDir,
    endpoint: Option<Box<dyn Endpoint>>,
}

impl QueueActor {
    pub(super) fn new(queue: &'static dyn QueueSubject, place: RunDir) -> Self {
        Self { queue, place, endpoint: None }
    }

    fn endpoint(&mut self) -> io::Result<&mut (dyn Endpoint + 'static)> {
        self.endpoint.as_deref_mut().ok_or_else(|| io::Error::other("this end is not open"))
    }
}

impl CommandHandler for QueueActor {
    fn obey(&mut self, order: &WorkerCommand) -> io::Result<WorkerReply> {
        let done = match order.act {
            CommandKind::Create => self.queue.create(&self.place).map(|()| Vec::new()),
            CommandKind::Open(end) => framed(order.marked, || self.queue.open(&self.place, end))
                .map(|endpoint| self.endpoint = Some(endpoint))
                .map(|()| Vec::new()),
            CommandKind::Close => {
                let endpoint = self.endpoint.take();
                framed(order.marked, || drop(endpoint));
                Ok(Vec::new())
            }
            CommandKind::Send(number) => {
                let message = numbered(number);
                self.endpoint()
                    .and_then(|endpoint| framed(order.marked, || endpoint.send(&message)))
                    .map(|()| Vec::new())
            }
            CommandKind::Receive => {
                let mut into = [0; LENGTH];
                self.endpoint()
                    .and_then(|endpoint| {
                        framed(order.marked, || endpoint.receive(&mut into, Wait::Ever))
                    })
                    .map(|length| length.map(|length| MessageCheck::of(&into[..length])))
                    .map(|seen| seen.into_iter().collect())
            }
            CommandKind::Drain { until, quiet_ms } => {
                self.endpoint().and_then(|endpoint| drain(endpoint, until, quiet_ms))
            }
            CommandKind::Unread => self.endpoint().map(|endpoint| {
                endpoint.unread().iter().map(|message| MessageCheck::of(message)).collect()
            }),
            CommandKind::LookForSuccessor => self
                .endpoint()
                .and_then(|endpoint| endpoint.look_for_successor())
                .map(|()| Vec::new()),
            CommandKind::Heap(_) => Err(misplaced(order)),
        };
        done.map(WorkerReply::Done)
    }
}

/// Receives until the message `until` has arrived, and then until no message arrives for a while.
/// The wait for that message has no timeout, because the sender of the command has a deadline.
fn drain(endpoint: &mut dyn Endpoint, until: u32, quiet_ms: u64) -> io::Result<Vec<MessageCheck>> {
    let pause = Duration::from_millis(quiet_ms);
    let mut seen = Vec::new();
    let mut into = [0; LENGTH];
    let mut quiet_since: Option<Instant> = None;
    loop {
        if let Some(length) = endpoint.receive(&mut into, Wait::AtMost(pause))? {
            let one = MessageCheck::of(&into[..length]);
            seen.push(one);
            if one == MessageCheck::Whole(until) || quiet_since.is_some() {
                quiet_since = Some(Instant::now());
            }
            // A torn length or header may repeat endlessly; a few messages are sufficient proof.
            if seen.len() > MOST_SEEN {
                return Ok(seen);
            }
        } else if quiet_since.is_some_and(|since| since.elapsed() >= pause) {
            return Ok(seen);
        }
    }
}

/// Maximum number of messages that a working queue returns for one command.
const MOST_SEEN: usize = 4_096;

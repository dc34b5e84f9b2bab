//! `mailbox` and `mailbox-succession`: Tontine's own, which must survive every kill.
//!
//! They differ in what the sender does when its reader is dead. In the first it is told, takes back
//! what is unread and connects anew; in the second it waits for the next owner of the address and
//! hands its lane over.

use std::io;

use tontine::Error;
use tontine::mailbox::{Mailbox, OnDeath, Options, Sender, Waiting};

use super::{End, Endpoint, Kind, Operation, Queue, Role, Subject, Wait};
use crate::message::Message;
use crate::place::Place;

/// Messages that the first chunk of 4,096 bytes takes besides the one that the two ends exchange
/// first: its ring has 3,968, a message and its header take 72, and one header stays free.
const FIRST_CHUNK: u32 = 54;

pub(super) struct Own {
    on_death: OnDeath,
}

/// A sender fails when its reader is dead.
pub(super) const FAILING: Own = Own { on_death: OnDeath::Fail };

/// A sender waits for its dead reader's successor.
pub(super) const WAITING: Own = Own { on_death: OnDeath::WaitForSuccessor };

impl Subject for Own {
    fn name(&self) -> &'static str {
        if self.hands_over() { "mailbox-succession" } else { "mailbox" }
    }

    fn summary(&self) -> &'static str {
        if self.hands_over() {
            "Tontine's mailbox, its sender waiting for a dead reader's successor"
        } else {
            "Tontine's mailbox"
        }
    }

    fn role(&self) -> Role {
        Role::Own
    }

    fn operations(&self) -> &'static [Operation] {
        if self.hands_over() {
            return &[Operation::Receive, Operation::ReceiveEmpty];
        }
        &[
            Operation::Bind,
            Operation::Connect,
            Operation::Send,
            Operation::SendWaking,
            Operation::Grow,
            Operation::Receive,
            Operation::ReceiveEmpty,
            Operation::Close,
        ]
    }

    /// Whoever comes after a dead receiver may die in its first receive, in which it takes the lane
    /// over, or already in taking the address.
    fn succession(&self, operation: Operation) -> Option<Operation> {
        match (operation, self.hands_over()) {
            (Operation::Receive, true) => Some(Operation::Receive),
            (Operation::ReceiveEmpty, true) => Some(Operation::Bind),
            (Operation::Bind | Operation::Send, false) => Some(operation),
            _ => None,
        }
    }

    /// Opening a mailbox has 80 classes, so a second opening after each makes thousands of pairs.
    fn is_long_succession(&self, operation: Operation) -> bool {
        operation == Operation::Bind
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Queue(self)
    }
}

impl Queue for Own {
    fn hands_over(&self) -> bool {
        self.on_death == OnDeath::WaitForSuccessor
    }

    fn capacity(&self) -> u32 {
        FIRST_CHUNK
    }

    /// A message is acknowledged by the next `recv`: at least once across a death.
    fn delivers_again(&self) -> bool {
        true
    }

    fn open(&self, place: &Place, end: End) -> io::Result<Box<dyn Endpoint>> {
        let path = place.folder().join("mailbox");
        // Spinning first would make the way of a run depend on the clock.
        let options = Options::new().waiting(Waiting::Sleep).on_death(self.on_death);
        Ok(match end {
            End::Sender => Box::new(Sending(options.connect(path).map_err(error)?)),
            End::Receiver => Box::new(Receiving(options.bind(path).map_err(error)?)),
        })
    }
}

fn error(error: Error) -> io::Error {
    io::Error::other(error.to_string())
}

struct Sending(Sender);

impl Endpoint for Sending {
    fn send(&mut self, message: &Message) -> io::Result<()> {
        self.0.send(message).map_err(error)
    }

    fn receive(&mut self, _into: &mut Message, _wait: Wait) -> io::Result<Option<usize>> {
        Err(io::Error::other("a sender receives nothing"))
    }

    fn unread(&mut self) -> Vec<Vec<u8>> {
        self.0.unread().unwrap_or_default()
    }

    fn look_for_successor(&mut self) -> io::Result<()> {
        self.0.service().map_err(error)
    }
}

struct Receiving(Mailbox);

impl Endpoint for Receiving {
    fn send(&mut self, _message: &Message) -> io::Result<()> {
        Err(io::Error::other("a receiver sends nothing"))
    }

    fn receive(&mut self, into: &mut Message, wait: Wait) -> io::Result<Option<usize>> {
        let received = match wait {
            Wait::Ever => self.0.recv(),
            Wait::AtMost(wait) => self.0.recv_timeout(wait),
        };
        match received {
            Ok(message) => {
                let length = message.len().min(into.len());
                into[..length].copy_from_slice(&message[..length]);
                Ok(Some(length))
            }
            Err(Error::TimedOut) => Ok(None),
            Err(other) => Err(error(other)),
        }
    }
}

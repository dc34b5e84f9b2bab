//! `mailbox`: Tontine's own, which must survive every kill.

use std::io;

use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender, Waiting};

use super::{End, Endpoint, Operation, Role, Subject, Wait};
use crate::message::Message;
use crate::place::Place;

/// Messages that the first chunk of 4,096 bytes takes besides the one that the two ends exchange
/// first: its ring has 3,968, a message and its header take 72, and one header stays free.
const FIRST_CHUNK: u32 = 54;

pub(super) struct Own;

impl Subject for Own {
    fn name(&self) -> &'static str {
        "mailbox"
    }

    fn summary(&self) -> &'static str {
        "Tontine's mailbox"
    }

    fn role(&self) -> Role {
        Role::Own
    }

    fn operations(&self) -> &'static [Operation] {
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

    /// Whoever comes after a dead receiver may die in taking its place, or in its first receive.
    fn succession(&self, operation: Operation) -> Option<Operation> {
        match operation {
            Operation::Receive | Operation::Send => Some(operation),
            _ => None,
        }
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
        let options = Options::new().waiting(Waiting::Sleep);
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

//! `zeromq`: PUSH to PULL over ipc.
//!
//! Its IO threads run on while the thread that called `send` is stepped; killing the process ends
//! them all.

use std::io;
use std::time::Duration;

use super::{End, Endpoint, Kind, Operation, Queue, Subject, Wait};
use crate::message::Message;
use crate::place::Place;

/// How soon a sender tries again to reach a receiver.
const RECONNECT_MS: i32 = 5;

pub(super) struct PushPull;

impl Subject for PushPull {
    fn name(&self) -> &'static str {
        "zeromq"
    }

    fn summary(&self) -> &'static str {
        "ZeroMQ, PUSH to PULL over ipc"
    }

    fn caveat(&self) -> &'static str {
        "Mail that a receiver has not read lies in its own memory, mail under way in the sender's: \
         either dies with the process, and ZeroMQ promises nothing else"
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Connect, Operation::Send, Operation::Receive, Operation::ReceiveEmpty]
    }

    /// Its IO threads carry a message on after `send` has returned.
    fn settles(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Queue(self)
    }
}

impl Queue for PushPull {
    fn capacity(&self) -> u32 {
        1_000
    }

    fn open(&self, place: &Place, end: End) -> io::Result<Box<dyn Endpoint>> {
        let endpoint = format!("ipc://{}", place.folder().join("socket").display());
        let kind = if end == End::Sender { zmq::PUSH } else { zmq::PULL };
        let socket = zmq::Context::new().socket(kind).map_err(error)?;
        socket.set_linger(0).map_err(error)?;
        match end {
            End::Sender => {
                socket.set_reconnect_ivl(RECONNECT_MS).map_err(error)?;
                socket.connect(&endpoint).map_err(error)?;
            }
            End::Receiver => socket.bind(&endpoint).map_err(error)?,
        }
        Ok(Box::new(Socket(socket)))
    }
}

fn error(error: zmq::Error) -> io::Error {
    io::Error::from_raw_os_error(error.to_raw())
}

/// The socket keeps its context alive.
struct Socket(zmq::Socket);

impl Endpoint for Socket {
    fn send(&mut self, message: &Message) -> io::Result<()> {
        self.0.send(&message[..], 0).map_err(error)
    }

    fn receive(&mut self, into: &mut Message, wait: Wait) -> io::Result<Option<usize>> {
        if let Wait::AtMost(wait) = wait {
            let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
            if self.0.poll(zmq::POLLIN, wait).map_err(error)? == 0 {
                return Ok(None);
            }
        }
        // Longer than the array it is cut, and seen to be.
        let length = self.0.recv_into(&mut into[..], 0).map_err(error)?;
        Ok(Some(length.min(into.len())))
    }
}

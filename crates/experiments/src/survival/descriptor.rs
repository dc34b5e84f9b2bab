//! The mechanisms behind file descriptors: pipes, UNIX sockets, TCP, and eventfds.
//!
//! Each end of a connection is held by its own process alone, so that the kernel closes it when
//! that process dies. An eventfd has no ends: both processes hold both, and nobody is told.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::SocketType;
use tontine_host::trouble::{During, Result};
use tontine_mechanisms::descriptor::{again, pipe, tcp_pair, unix_pair};

use super::message::{BYTES, Claim, Message, claim};
use super::player::{End, Ended};

/// Two pipes.
pub(super) fn pipes() -> Result<(Stream, Stream)> {
    let ((ask_read, ask_write), (answer_read, answer_write)) = (pipe()?, pipe()?);
    Ok((
        Stream { read: answer_read, write: Some(ask_write) },
        Stream { read: ask_read, write: Some(answer_write) },
    ))
}

/// A pair of UNIX sockets.
pub(super) fn unix(kind: SocketType) -> Result<(Stream, Stream)> {
    unix_pair(kind).map(sockets)
}

/// A TCP connection over loopback.
pub(super) fn tcp() -> Result<(Stream, Stream)> {
    tcp_pair().map(sockets)
}

fn sockets((one, two): (OwnedFd, OwnedFd)) -> (Stream, Stream) {
    (Stream { read: one, write: None }, Stream { read: two, write: None })
}

/// One end of a connection.
pub(super) struct Stream {
    read: OwnedFd,
    /// What is written to, where that is another descriptor.
    write: Option<OwnedFd>,
}

impl End for Stream {
    fn send(&mut self, _: u64, message: &Message) -> std::result::Result<(), Ended> {
        let write = self.write.as_ref().unwrap_or(&self.read).as_fd();
        let mut left = &message[..];
        while !left.is_empty() {
            match rustix::io::write(write, left) {
                Ok(sent) => left = &left[sent..],
                Err(Errno::INTR) => {}
                // SIGPIPE is ignored, as Rust programs do from their start.
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Ended::Gone),
                Err(error) => return Err(error).during("write").map_err(Ended::from),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> std::result::Result<Claim, Ended> {
        let mut message = [0; BYTES];
        let mut filled = 0;
        while filled < BYTES {
            match rustix::io::read(&self.read, &mut message[filled..]) {
                // The stream ends inside a message: it is torn, and its sender gone.
                Ok(0) if filled > 0 => return Ok(Claim::Torn),
                Ok(0) | Err(Errno::CONNRESET) => return Err(Ended::Gone),
                Ok(got) => filled += got,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).during("read").map_err(Ended::from),
            }
        }
        Ok(claim(&message))
    }
}

/// Two eventfds, whose value is the number of the message.
pub(super) fn eventfds() -> Result<(Counter, Counter)> {
    let make = || eventfd(0, EventfdFlags::CLOEXEC).setting_up("eventfd2");
    let (ask, answer) = (make()?, make()?);
    let other = Counter { read: again(&ask)?, write: again(&answer)? };
    Ok((Counter { read: answer, write: ask }, other))
}

/// One end of two eventfds.
pub(super) struct Counter {
    read: OwnedFd,
    write: OwnedFd,
}

impl End for Counter {
    fn send(&mut self, number: u64, _: &Message) -> std::result::Result<(), Ended> {
        loop {
            match rustix::io::write(&self.write, &number.to_ne_bytes()) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).during("write to an eventfd").map_err(Ended::from),
            }
        }
    }

    fn receive(&mut self) -> std::result::Result<Claim, Ended> {
        let mut value = [0; size_of::<u64>()];
        loop {
            match rustix::io::read(&self.read, &mut value) {
                Ok(_) => return Ok(Claim::Whole(u64::from_ne_bytes(value))),
                Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(error).during("read of an eventfd").map_err(Ended::from);
                }
            }
        }
    }
}

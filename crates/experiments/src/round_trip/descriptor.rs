//! The mechanisms behind file descriptors: eventfd, pipe, UNIX sockets, TCP over loopback.
//!
//! Both ends are made before the fork; each process then closes the other's, so that an end of file
//! tells of a death.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::SocketType;
use tontine_host::peer::Peer;
use tontine_host::trouble::{During, Result, Trouble};
use tontine_mechanisms::descriptor::{again, pipe, tcp_pair, unix_pair};

use super::harness::{self, End, Plan, Timed};

/// Two eventfds, eight bytes a message.
pub(super) fn eventfds(plan: &Plan) -> Result<Timed> {
    let make = || eventfd(0, EventfdFlags::CLOEXEC).setting_up("eventfd2");
    let (ask, answer) = (make()?, make()?);
    let echo = (again(&ask)?, again(&answer)?);
    between::<8>(plan, (answer, ask), echo)
}

/// Two pipes.
pub(super) fn pipes(plan: &Plan) -> Result<Timed> {
    let ((ask_read, ask_write), (answer_read, answer_write)) = (pipe()?, pipe()?);
    between::<1>(plan, (answer_read, ask_write), (ask_read, answer_write))
}

/// A pair of UNIX sockets.
pub(super) fn unix(plan: &Plan, kind: SocketType) -> Result<Timed> {
    let (here, there) = unix_pair(kind)?;
    between_sockets(plan, here, there)
}

/// A TCP connection over loopback without Nagle's delay.
pub(super) fn tcp(plan: &Plan) -> Result<Timed> {
    let (here, there) = tcp_pair()?;
    between_sockets(plan, here, there)
}

fn between_sockets(plan: &Plan, here: OwnedFd, there: OwnedFd) -> Result<Timed> {
    let (here_out, there_out) = (again(&here)?, again(&there)?);
    between::<1>(plan, (here, here_out), (there, there_out))
}

/// Times messages of `BYTES` bytes; each end is (what it reads, what it writes).
fn between<const BYTES: usize>(
    plan: &Plan,
    ping: (OwnedFd, OwnedFd),
    echo: (OwnedFd, OwnedFd),
) -> Result<Timed> {
    // The child drops the ping's end through this slot; the parent drops the echo's with its
    // closure.
    let ping = std::cell::Cell::new(Some(ping));
    harness::between_processes(
        plan,
        |peer| {
            let (read, write) = ping.take().ok_or_else(|| Trouble::fail("ping ran twice"))?;
            harness::time(plan, &mut Stream::<BYTES> { read, write, peer })
        },
        |peer| {
            drop(ping.take());
            let (read, write) = echo;
            harness::answer(plan, &mut Stream::<BYTES> { read, write, peer })
        },
    )
}

/// One end of a connection that carries messages of `BYTES` bytes.
pub(super) struct Stream<'a, const BYTES: usize> {
    read: OwnedFd,
    write: OwnedFd,
    peer: Peer<'a>,
}

impl Stream<'_, 1> {
    /// An end of a TCP connection to a process that is not ours: its end closes the connection.
    pub(super) fn to_a_stranger(connection: OwnedFd) -> Result<Self> {
        let write = again(&connection)?;
        Ok(Self { read: connection, write, peer: Peer::Parent })
    }
}

impl<const BYTES: usize> End for Stream<'_, BYTES> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        let mut message = [0_u8; BYTES];
        message[0] = 1;
        loop {
            match rustix::io::write(self.write.as_fd(), &message) {
                Ok(sent) if sent == BYTES => return Ok(()),
                Ok(sent) => return Err(Trouble::fail(format!("wrote {sent} of {BYTES} bytes"))),
                Err(Errno::INTR) => self.peer.check()?,
                Err(error) => return Err(error).during("write"),
            }
        }
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        let mut message = [0_u8; BYTES];
        loop {
            match rustix::io::read(self.read.as_fd(), &mut message) {
                Ok(got) if got == BYTES => return Ok(()),
                Ok(got) => return Err(Trouble::fail(format!("read {got} of {BYTES} bytes"))),
                Err(Errno::INTR) => self.peer.check()?,
                Err(error) => return Err(error).during("read"),
            }
        }
    }
}

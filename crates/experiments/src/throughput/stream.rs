//! The mechanisms behind file descriptors: pipe, UNIX sockets, TCP over loopback.
//!
//! One connection, made before the forks; the senders share its writing end. A pipe keeps messages
//! apart up to PIPE_BUF and a seqpacket socket always, so these two take several senders.

use std::cell::Cell;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::SocketType;
use tontine_host::peer::Peer;
use tontine_host::trouble::{During, Result, Trouble};
use tontine_mechanisms::descriptor::{self, tcp_pair, unix_pair};

use super::harness::{self, Batches, Inlet, Outlet, Plan, check};

/// A pipe.
pub(super) fn pipe(plan: &Plan) -> Result<Batches> {
    through(plan, descriptor::pipe()?)
}

/// A pair of UNIX sockets.
pub(super) fn unix(plan: &Plan, kind: SocketType) -> Result<Batches> {
    let (read, write) = unix_pair(kind)?;
    if kind == SocketType::SEQPACKET {
        probe(plan, &write, &read)?;
    }
    through(plan, (read, write))
}

/// A TCP connection over loopback.
pub(super) fn tcp(plan: &Plan) -> Result<Batches> {
    through(plan, tcp_pair()?)
}

/// Sends a packet as large as a message once and takes it again, to learn whether there is room for
/// such.
fn probe(plan: &Plan, write: &OwnedFd, read: &OwnedFd) -> Result<()> {
    let mut packet = vec![0; plan.bytes];
    match rustix::net::send(write, &packet, rustix::net::SendFlags::DONTWAIT) {
        Ok(_) => rustix::io::read(read, &mut packet).during("read").map(|_| ()),
        Err(Errno::MSGSIZE) => {
            let room = rustix::net::sockopt::socket_send_buffer_size(write).unwrap_or(0);
            Err(Trouble::skip(format!(
                "a packet of {} bytes does not fit into the socket's buffer, which has {room}; see \
                 /proc/sys/net/core/wmem_max",
                plan.bytes
            )))
        }
        Err(error) => Err(error).setting_up("send of one packet"),
    }
}

/// Streams from the second descriptor to the first. Each process closes the end that it does not
/// use, so that the end of the last sender ends the stream.
fn through(plan: &Plan, ends: (OwnedFd, OwnedFd)) -> Result<Batches> {
    let ends = Cell::new(Some(ends));
    let take = || ends.take().ok_or_else(|| Trouble::fail("the ends were taken twice"));
    harness::from_processes(
        plan,
        |_| take().map(|(_, write)| Writer(write)),
        |_| take().map(|(read, _)| Reader { read, buffer: vec![0; plan.bytes] }),
    )
}

struct Writer(OwnedFd);

impl Outlet for Writer {
    #[inline(always)]
    fn send(&mut self, message: &[u8], receiver: Peer<'_>) -> Result<()> {
        let mut left = message;
        while !left.is_empty() {
            match rustix::io::write(&self.0, left) {
                Ok(sent) => left = &left[sent..],
                Err(Errno::INTR) => receiver.check()?,
                Err(error) => return Err(error).during("write"),
            }
        }
        Ok(())
    }
}

struct Reader {
    read: OwnedFd,
    buffer: Vec<u8>,
}

impl Inlet for Reader {
    #[inline(always)]
    fn receive<R>(&mut self, senders: &[Peer<'_>], look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let mut filled = 0;
        while filled < self.buffer.len() {
            match rustix::io::read(&self.read, &mut self.buffer[filled..]) {
                Ok(0) => {
                    check(senders)?;
                    return Err(Trouble::fail("the stream ended before the last message"));
                }
                Ok(got) => filled += got,
                Err(Errno::INTR) => check(senders)?,
                Err(error) => return Err(error).during("read"),
            }
        }
        Ok(look(&self.buffer))
    }
}

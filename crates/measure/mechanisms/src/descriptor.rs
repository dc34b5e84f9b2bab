//! Connections behind file descriptors: their creation, and their ends, [`DescriptorWriter`] and
//! [`DescriptorReader`]. All descriptors are CLOEXEC.
//!
//! The connections are created before a fork. Each process then closes the end of the other, so
//! that an end of file reports a death. This module implements the pairs and streams of every
//! mechanism that implements [`Connected`].

use std::cell::Cell;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use tontine_bench::error::{ErrorContext, MeasureError, Result};

use crate::driver::{PairDriver, PairHalves, StreamDriver, Traffic};
use crate::end::{Duplex, Inlet, Outlet, Patient, Peers, Transfer, TransferError, check};

/// Creates a pipe and returns its reading end and its writing end.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC).setting_up("pipe2")
}

/// Creates a pair of connected UNIX sockets.
pub fn unix_pair(kind: SocketType) -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).setting_up("socketpair")
}

/// Creates both ends of a TCP connection over loopback, without Nagle's delay.
pub fn tcp_pair() -> Result<(OwnedFd, OwnedFd)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).setting_up("bind to 127.0.0.1")?;
    let address = listener.local_addr().setting_up("getsockname")?;
    let here = TcpStream::connect(address).setting_up("connect to 127.0.0.1")?;
    let (there, _) = listener.accept().setting_up("accept")?;
    for stream in [&here, &there] {
        stream.set_nodelay(true).setting_up("setsockopt(TCP_NODELAY)")?;
    }
    Ok((here.into(), there.into()))
}

/// Returns a second descriptor of the same file.
pub fn again(fd: &OwnedFd) -> Result<OwnedFd> {
    fd.try_clone().setting_up("fcntl(F_DUPFD_CLOEXEC)")
}

/// The end to write to.
#[derive(Debug)]
pub struct DescriptorWriter(pub OwnedFd);

impl Outlet for DescriptorWriter {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        let mut left = message;
        while !left.is_empty() {
            match rustix::io::write(&self.0, left) {
                Ok(sent) => left = &left[sent..],
                Err(Errno::INTR) => check(peers)?,
                // SIGPIPE is ignored, as in every Rust program from its start.
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(TransferError::Gone),
                Err(error) => return Err(error).during("write").map_err(TransferError::from),
            }
        }
        Ok(())
    }
}

/// The end to read from, with a buffer that is as long as a message.
#[derive(Debug)]
pub struct DescriptorReader<B> {
    read: OwnedFd,
    buffer: B,
}

impl<B: AsMut<[u8]>> DescriptorReader<B> {
    /// Returns an end with this buffer.
    pub fn new(read: OwnedFd, buffer: B) -> Self {
        Self { read, buffer }
    }
}

impl<B: AsMut<[u8]>> Inlet for DescriptorReader<B> {
    /// If a stream ends inside a message, returns the part that arrived.
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        let buffer = self.buffer.as_mut();
        let mut filled = 0;
        while filled < buffer.len() {
            match rustix::io::read(&self.read, &mut buffer[filled..]) {
                Ok(0) if filled > 0 => break,
                Ok(0) | Err(Errno::CONNRESET) => {
                    check(peers)?;
                    return Err(TransferError::Gone);
                }
                Ok(got) => filled += got,
                Err(Errno::INTR) => check(peers)?,
                Err(error) => return Err(error).during("read").map_err(TransferError::from),
            }
        }
        Ok(look(&buffer[..filled]))
    }
}

impl<B: AsMut<[u8]>> Patient for DescriptorReader<B> {
    fn receive_within<R>(
        &mut self,
        time: Duration,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Transfer<Option<R>> {
        let timeout = Timespec::try_from(time).unwrap_or_default();
        let mut watched = [PollFd::new(&self.read, PollFlags::IN)];
        poll(&mut watched, Some(&timeout)).during("poll")?;
        if watched[0].revents().contains(PollFlags::IN) {
            return self.receive(&[], look).map(Some);
        }
        // Without a sender the pipe reports an end of file, which must not cause spinning.
        std::thread::sleep(time.min(Duration::from_millis(1)));
        Ok(None)
    }
}

/// A mechanism that consists of a connection between two descriptors.
pub trait Connected {
    /// `true` if each descriptor can be read from and written to.
    const BOTH_WAYS: bool;

    /// Creates a connection. Returns the descriptor to read from and the descriptor to write to.
    fn connect() -> Result<(OwnedFd, OwnedFd)>;

    /// Checks that messages of this length can pass.
    fn try_out(_bytes: usize, _read: &OwnedFd, _write: &OwnedFd) -> Result<()> {
        Ok(())
    }
}

/// An end of a connection in both directions, for messages of `BYTES` bytes.
pub type StreamEnd<const BYTES: usize> = Duplex<DescriptorWriter, DescriptorReader<[u8; BYTES]>>;

impl<const BYTES: usize> StreamEnd<BYTES> {
    /// Returns the end that reads from and writes to these descriptors.
    pub fn over(read: OwnedFd, write: OwnedFd) -> Self {
        Duplex::new(DescriptorWriter(write), DescriptorReader::new(read, [0; BYTES]))
    }
}

impl<C: Connected> PairDriver for C {
    /// The descriptor to read from, and the descriptor to write to.
    type Half = (OwnedFd, OwnedFd);
    type End<const BYTES: usize> = StreamEnd<BYTES>;

    fn pair(_: usize) -> Result<PairHalves<Self::Half>> {
        let (read, write) = C::connect()?;
        Ok(PairHalves::of(if C::BOTH_WAYS {
            let (out, back) = (again(&read)?, again(&write)?);
            ((read, out), (write, back))
        } else {
            let (other_read, other_write) = C::connect()?;
            ((other_read, write), (read, other_write))
        }))
    }

    fn open<const BYTES: usize>(
        (read, write): Self::Half,
        _: Peers<'_>,
    ) -> Result<Self::End<BYTES>> {
        Ok(StreamEnd::over(read, write))
    }
}

/// A connection before its ends are opened. The senders share its writing end, and each process
/// closes the end that it does not use, so that the last sender's exit ends the stream.
pub struct Shut {
    ends: Cell<Option<(OwnedFd, OwnedFd)>>,
    bytes: usize,
}

impl Shut {
    fn take(&self) -> Result<(OwnedFd, OwnedFd)> {
        self.ends.take().ok_or_else(|| MeasureError::fail("the ends were taken twice"))
    }
}

impl<C: Connected> StreamDriver for C {
    type Fixture = Shut;
    type Out = DescriptorWriter;
    type In = DescriptorReader<Vec<u8>>;

    fn set_up(Traffic { bytes, .. }: Traffic) -> Result<Shut> {
        let (read, write) = C::connect()?;
        C::try_out(bytes, &read, &write)?;
        Ok(Shut { ends: Cell::new(Some((read, write))), bytes })
    }

    fn outlet(fixture: &Shut, _: usize) -> Result<DescriptorWriter> {
        fixture.take().map(|(_, write)| DescriptorWriter(write))
    }

    fn inlet(fixture: &Shut, _: Peers<'_>) -> Result<Self::In> {
        fixture.take().map(|(read, _)| DescriptorReader::new(read, vec![0; fixture.bytes]))
    }
}

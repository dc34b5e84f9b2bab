//! `tcp` and `tcp-buffered`: one TCP connection without Nagle's delay, on which each message
//! follows its length.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::peer::{ChildError, PeerHandle};
use tontine_mechanisms::descriptor::DescriptorWriter;
use tontine_mechanisms::end::{Inlet, Outlet, TransferError, TwoWay, check};

use super::crossing::{Crossing, CrossingEnd, HostSide};

/// Bytes of the length before each message.
const LENGTH: usize = size_of::<u32>();
/// Bytes of each buffer. A receiver reads up to as much at once, as a gateway does.
const BUFFER: usize = 60 << 10;

/// A TCP connection. A buffered one collects messages before it writes them.
pub(super) struct TcpCrossing {
    pub(super) buffered: bool,
}

impl Crossing for TcpCrossing {
    /// The listener of host B.
    type Half = Option<TcpListener>;
    type End = FramedTcp;

    fn prepare(&self, side: HostSide, _: &ChildError) -> Result<Self::Half> {
        match side {
            HostSide::A => Ok(None),
            HostSide::B => TcpListener::bind(HostSide::listener()).during("bind").map(Some),
        }
    }

    fn open(&self, _: HostSide, half: Self::Half) -> Result<FramedTcp> {
        let connection = match half {
            Some(listener) => listener.accept().during("accept")?.0,
            None => TcpStream::connect(HostSide::listener()).during("connect")?,
        };
        connection.set_nodelay(true).during("setsockopt(TCP_NODELAY)")?;
        let read: OwnedFd = connection.into();
        let write = DescriptorWriter(read.try_clone().during("fcntl(F_DUPFD_CLOEXEC)")?);
        let limit = if self.buffered { BUFFER } else { 0 };
        let (unsent, buffer) = (Vec::with_capacity(2 * BUFFER), vec![1; BUFFER]);
        Ok(FramedTcp { read, write, limit, unsent, buffer, begin: 0, end: 0 })
    }
}

/// One end of the connection.
pub(super) struct FramedTcp {
    read: OwnedFd,
    write: DescriptorWriter,
    /// Number of collected bytes above which they are written.
    limit: usize,
    unsent: Vec<u8>,
    buffer: Vec<u8>,
    /// Bounds of the received bytes in `buffer`.
    begin: usize,
    end: usize,
}

impl FramedTcp {
    fn flush(&mut self, peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        if !self.unsent.is_empty() {
            self.write.send(&self.unsent, peers)?;
            self.unsent.clear();
        }
        Ok(())
    }

    /// Returns the length of the next message, if it has arrived.
    fn next(&self) -> Option<usize> {
        let bytes = &self.buffer[self.begin..self.end];
        let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
        (bytes.len() - LENGTH >= length).then_some(length)
    }

    /// Reads what has arrived behind the received bytes.
    fn fill(&mut self, peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        self.buffer.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        if self.end == self.buffer.len() {
            return Err(MeasureError::fail("a message is longer than the buffer").into());
        }
        loop {
            match rustix::io::read(&self.read, &mut self.buffer[self.end..]) {
                Ok(0) | Err(Errno::CONNRESET) => return Err(TransferError::Gone),
                Ok(read) => {
                    self.end += read;
                    return Ok(());
                }
                Err(Errno::INTR) => check(peers)?,
                Err(error) => return Err(error).during("read").map_err(TransferError::from),
            }
        }
    }
}

impl Outlet for FramedTcp {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        self.unsent.extend_from_slice(&(message.len() as u32).to_le_bytes());
        self.unsent.extend_from_slice(message);
        if self.unsent.len() > self.limit { self.flush(peers) } else { Ok(()) }
    }
}

impl Inlet for FramedTcp {
    #[inline(always)]
    fn receive<R>(
        &mut self,
        peers: &[PeerHandle<'_>],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, TransferError> {
        let length = loop {
            if let Some(length) = self.next() {
                break length;
            }
            // A program that waits has nothing to add.
            self.flush(peers)?;
            self.fill(peers)?;
        };
        let begin = self.begin + LENGTH;
        self.begin = begin + length;
        Ok(look(&self.buffer[begin..self.begin]))
    }
}

impl TwoWay for FramedTcp {}

impl CrossingEnd for FramedTcp {}

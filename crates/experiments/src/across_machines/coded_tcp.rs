//! Messages over a TCP connection without Nagle's delay: [`CodedTcp`], in the format of a
//! [`Codec`]. `tcp` and `tcp-buffered` connect the two programs ([`TcpCrossing`]); their messages
//! follow their lengths.

use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::Child;
use tontine_host::peer::{ChildError, PeerHandle};
use tontine_mechanisms::descriptor::DescriptorWriter;
use tontine_mechanisms::end::{Inlet, Outlet, TransferError, TwoWay, check};

use super::crossing::{Crossing, CrossingEnd, HostSide};

/// Bytes of the length before each message.
const LENGTH: usize = size_of::<u32>();
/// Bytes that a buffered end collects before it writes them. A receiver reads up to as much at
/// once, as a gateway does.
pub(super) const BUFFER: usize = 60 << 10;

/// The format of messages on a connection.
pub(super) trait Codec {
    /// Appends a message.
    fn encode(&mut self, message: &[u8], out: &mut Vec<u8>);

    /// Reads the first item of the received bytes.
    fn decode(&mut self, received: &[u8]) -> Result<Decoded>;

    /// Appends what the other end must know before it sends more.
    fn request(&mut self, _: &mut Vec<u8>) {}
}

/// The first item of the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// The item is not complete.
    Incomplete,
    /// An item of this many bytes that is not a message.
    Other(usize),
    /// A message in this range, and the length of the item.
    Message(Range<usize>, usize),
}

/// One end of a connection.
pub(super) struct CodedTcp<C> {
    codec: C,
    read: OwnedFd,
    write: DescriptorWriter,
    /// Number of collected bytes above which they are written.
    limit: usize,
    unsent: Vec<u8>,
    buffer: Vec<u8>,
    /// Bounds of the received bytes in `buffer`.
    begin: usize,
    end: usize,
    /// The message server. Killed when the end is dropped.
    _server: Option<Child>,
}

impl<C: Codec> CodedTcp<C> {
    /// Returns an end that writes once it has collected more than `limit` bytes, or waits.
    pub(super) fn new(codec: C, connection: TcpStream, limit: usize) -> Result<Self> {
        connection.set_nodelay(true).during("setsockopt(TCP_NODELAY)")?;
        let read: OwnedFd = connection.into();
        let write = DescriptorWriter(read.try_clone().during("fcntl(F_DUPFD_CLOEXEC)")?);
        let (unsent, buffer) = (Vec::with_capacity(2 * BUFFER), vec![1; BUFFER]);
        Ok(Self { codec, read, write, limit, unsent, buffer, begin: 0, end: 0, _server: None })
    }

    /// Kills `server` when this end is dropped.
    pub(super) fn with_server(self, server: Option<Child>) -> Self {
        Self { _server: server, ..self }
    }

    /// Sends `greeting`, and waits for an item that is equal to `answer`.
    pub(super) fn greet(&mut self, greeting: &[u8], answer: &[u8]) -> Result<()> {
        self.unsent.extend_from_slice(greeting);
        self.flush(&[])?;
        loop {
            match self.codec.decode(&self.buffer[self.begin..self.end])? {
                Decoded::Incomplete => self.fill(&[])?,
                Decoded::Other(used) | Decoded::Message(_, used) => {
                    let item = self.begin..self.begin + used;
                    self.begin += used;
                    if &self.buffer[item] == answer {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn flush(&mut self, peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        if !self.unsent.is_empty() {
            self.write.send(&self.unsent, peers)?;
            self.unsent.clear();
        }
        Ok(())
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

impl<C: Codec> Outlet for CodedTcp<C> {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        self.codec.encode(message, &mut self.unsent);
        if self.unsent.len() > self.limit { self.flush(peers) } else { Ok(()) }
    }
}

impl<C: Codec> Inlet for CodedTcp<C> {
    #[inline(always)]
    fn receive<R>(
        &mut self,
        peers: &[PeerHandle<'_>],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, TransferError> {
        loop {
            let received = &self.buffer[self.begin..self.end];
            match self.codec.decode(received)? {
                Decoded::Message(range, used) => {
                    self.begin += used;
                    return Ok(look(&received[range]));
                }
                Decoded::Other(used) => self.begin += used,
                Decoded::Incomplete => {
                    self.codec.request(&mut self.unsent);
                    // A program that waits has nothing to add.
                    self.flush(peers)?;
                    self.fill(peers)?;
                }
            }
        }
    }
}

impl<C: Codec> TwoWay for CodedTcp<C> {}

impl<C: Codec> CrossingEnd for CodedTcp<C> {}

/// The format in which a message follows its length.
pub(super) struct LengthCodec;

impl Codec for LengthCodec {
    #[inline(always)]
    fn encode(&mut self, message: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&(message.len() as u32).to_le_bytes());
        out.extend_from_slice(message);
    }

    #[inline(always)]
    fn decode(&mut self, received: &[u8]) -> Result<Decoded> {
        let length = received.first_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize);
        let end = length.map(|length| LENGTH + length).filter(|end| *end <= received.len());
        Ok(end.map_or(Decoded::Incomplete, |end| Decoded::Message(LENGTH..end, end)))
    }
}

/// A TCP connection. A buffered one collects messages before it writes them.
pub(super) struct TcpCrossing {
    pub(super) buffered: bool,
}

impl Crossing for TcpCrossing {
    /// The listener of host B.
    type Half = Option<TcpListener>;
    type End = CodedTcp<LengthCodec>;

    fn prepare(&self, side: HostSide, _: &ChildError) -> Result<Self::Half> {
        match side {
            HostSide::A => Ok(None),
            HostSide::B => TcpListener::bind(HostSide::listener()).during("bind").map(Some),
        }
    }

    fn open(&self, _: HostSide, half: Self::Half) -> Result<Self::End> {
        let connection = match half {
            Some(listener) => listener.accept().during("accept")?.0,
            None => TcpStream::connect(HostSide::listener()).during("connect")?,
        };
        CodedTcp::new(LengthCodec, connection, if self.buffered { BUFFER } else { 0 })
    }
}

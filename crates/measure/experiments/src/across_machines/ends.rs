//! The connections that need no gateway: `tcp` and `tcp-buffered` ([`TcpCrossing`]), and
//! `zeromq-tcp`.

use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use tontine_mechanisms::end::{Inlet, Outlet, TransferError, TwoWay};
#[cfg(feature = "peers")]
use tontine_mechanisms::zeromq::ZeroMqSocket;

use super::hosts::{Crossing, HostSide};
use super::timing::{BYTES, CrossingEnd};
use crate::prelude::*;

/// Bytes that a buffered end collects before it writes them. A receiver reads up to as much at
/// once, as a gateway does.
const BUFFER: usize = 60 << 10;

/// A TCP connection without Nagle's delay. A buffered one collects messages before it writes them.
pub(super) struct TcpCrossing {
    pub(super) buffered: bool,
}

pub(super) struct TcpEnd {
    read: BufReader<TcpStream>,
    write: BufWriter<TcpStream>,
    buffered: bool,
}

impl Crossing for TcpCrossing {
    type Half = Option<TcpListener>;
    type End = TcpEnd;

    fn prepare(&self, side: HostSide, _: &ChildError) -> Result<Self::Half> {
        match side {
            HostSide::A => Ok(None),
            HostSide::B => TcpListener::bind(HostSide::listener()).during("bind").map(Some),
        }
    }

    fn open(&self, _: HostSide, half: Self::Half) -> Result<TcpEnd> {
        let write = match half {
            Some(listener) => listener.accept().during("accept")?.0,
            None => TcpStream::connect(HostSide::listener()).during("connect")?,
        };
        write.set_nodelay(true).during("setsockopt(TCP_NODELAY)")?;
        let read = BufReader::with_capacity(BUFFER, write.try_clone().during("dup")?);
        let write = BufWriter::with_capacity(BUFFER, write);
        Ok(TcpEnd { read, write, buffered: self.buffered })
    }
}

impl Outlet for TcpEnd {
    #[inline(always)]
    fn send(&mut self, message: &[u8], _: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        self.write.write_all(message).map_err(ended)?;
        if self.buffered { Ok(()) } else { self.write.flush().map_err(ended) }
    }
}

impl Inlet for TcpEnd {
    #[inline(always)]
    fn receive<R>(
        &mut self,
        _: &[PeerHandle<'_>],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, TransferError> {
        if self.read.buffer().len() < BYTES {
            // A program that waits has nothing to add.
            self.write.flush().map_err(ended)?;
        }
        let mut message = [0; BYTES];
        self.read.read_exact(&mut message).map_err(ended)?;
        Ok(look(&message))
    }
}

impl TwoWay for TcpEnd {}
impl CrossingEnd for TcpEnd {}

#[cold]
fn ended(error: io::Error) -> TransferError {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            TransferError::Gone
        }
        _ => MeasureError::fail(format!("TCP: {error}")).into(),
    }
}

#[cfg(feature = "peers")]
pub(super) struct ZeroMqCrossing;

#[cfg(feature = "peers")]
impl Crossing for ZeroMqCrossing {
    type Half = Option<ZeroMqSocket>;
    type End = ZeroMqSocket;

    fn prepare(&self, side: HostSide, _: &ChildError) -> Result<Self::Half> {
        match side {
            HostSide::A => Ok(None),
            HostSide::B => ZeroMqSocket::listening(HostSide::listener()).map(Some),
        }
    }

    fn open(&self, _: HostSide, half: Self::Half) -> Result<ZeroMqSocket> {
        half.map_or_else(|| ZeroMqSocket::connecting(HostSide::listener()), Ok)
    }
}

#[cfg(feature = "peers")]
impl CrossingEnd for ZeroMqSocket {}

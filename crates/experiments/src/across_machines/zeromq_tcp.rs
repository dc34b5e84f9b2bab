//! `zeromq-tcp`: two PAIR sockets of ZeroMQ over TCP.

use tontine_host::error::Result;
use tontine_host::peer::ChildError;
use tontine_mechanisms::zeromq::ZeroMqSocket;

use super::crossing::{Crossing, CrossingEnd, HostSide};

/// Two PAIR sockets.
pub(super) struct ZeroMqCrossing;

impl Crossing for ZeroMqCrossing {
    /// The socket of host B.
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

impl CrossingEnd for ZeroMqSocket {}

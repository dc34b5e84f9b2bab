//! The interface of the rows: a [`Crossing`] connects a program on each of two hosts, and a
//! [`CrossingEnd`] is what each program holds.

use std::net::{Ipv4Addr, SocketAddrV4};

use tontine_host::error::Result;
use tontine_host::peer::ChildError;
use tontine_mechanisms::end::TwoWay;

/// The port at which host B listens. Its network namespace contains no other process.
const PORT: u16 = 7_447;

/// One of the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostSide {
    /// The host whose program sends first and measures. It connects to B.
    A,
    /// The host whose program answers. It listens.
    B,
}

impl HostSide {
    /// Returns the name of the host.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }

    /// Returns the other host.
    pub(super) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Returns the address of the host on the network that joins the two.
    pub(super) fn address(self) -> Ipv4Addr {
        match self {
            Self::A => Ipv4Addr::new(10, 70, 5, 1),
            Self::B => Ipv4Addr::new(10, 70, 5, 2),
        }
    }

    /// Returns the address at which host B listens.
    pub(super) fn listener() -> SocketAddrV4 {
        SocketAddrV4::new(Self::B.address(), PORT)
    }
}

/// A connection between a program on each host.
///
/// Host B prepares, then host A prepares, then both open. Each step runs in the program's own
/// process, which is single-threaded until then.
pub(super) trait Crossing {
    /// The preparation of one side, to which the other side may connect.
    type Half;
    /// An end of the connection.
    type End: CrossingEnd;

    /// Prepares one side. A process that this side starts stores its error in `errors`.
    fn prepare(&self, side: HostSide, errors: &ChildError) -> Result<Self::Half>;

    /// Connects to the other side, which has prepared.
    fn open(&self, side: HostSide, half: Self::Half) -> Result<Self::End>;
}

/// One end of a [`Crossing`].
pub(super) trait CrossingEnd: TwoWay {
    /// Blocks until the other end has received all messages. It answers the last one.
    fn settle(&mut self) -> Result<()> {
        Ok(self.receive(&[], |_| ())?)
    }
}

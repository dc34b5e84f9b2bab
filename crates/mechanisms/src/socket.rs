//! Connected sockets: `unix-stream`, `unix-seqpacket` and `tcp-loopback`.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::SocketType;
use tontine_host::error::{ErrorContext, MeasureError, Result};

use crate::about::{AfterKill, Asked, Death, Listing, Mechanism, Need};
use crate::descriptor::{Connected, tcp_pair, unix_pair};
use crate::driver::{Driver, PairUser, StreamUser, Traffic};

/// `unix-stream`.
pub struct UnixStream;

/// `unix-seqpacket`.
pub struct UnixSeqpacket;

/// `tcp-loopback`.
pub struct TcpLoopback;

/// The mechanism and shapes of a connection.
macro_rules! connected {
    ($driver:ty, $mechanism:expr) => {
        impl Driver for $driver {
            const MECHANISM: Mechanism = $mechanism;

            fn pairs<U: PairUser>(user: U) -> Option<U::Out> {
                Some(user.processes::<Self, 1>())
            }

            fn streams<U: StreamUser>(_: Traffic, user: U) -> Option<U::Out> {
                Some(user.processes::<Self>())
            }
        }
    };
}

connected!(
    UnixStream,
    Mechanism::new(
        "unix-stream",
        Death::LeavesOne { row: "unix-stream", survivor: AfterKill::Told },
        &[
            Listing::new(Asked::RoundTrip, "a pair of UNIX stream sockets, one byte per message"),
            Listing::new(Asked::Throughput, "a pair of UNIX stream sockets"),
            Listing::new(Asked::Survival, "a pair of UNIX stream sockets"),
            Listing::new(Asked::WakeUp, "a pair of UNIX stream sockets, one byte per message"),
        ],
    )
);

connected!(
    UnixSeqpacket,
    Mechanism {
        shared_up_to: usize::MAX,
        ..Mechanism::new(
            "unix-seqpacket",
            Death::LeavesOne { row: "unix-seqpacket", survivor: AfterKill::Told },
            &[
                Listing::new(
                    Asked::RoundTrip,
                    "a pair of UNIX seqpacket sockets, one byte per message"
                ),
                Listing::new(
                    Asked::Throughput,
                    "a pair of UNIX seqpacket sockets, one packet per message"
                ),
                Listing::new(Asked::Survival, "a pair of UNIX seqpacket sockets"),
                Listing::new(
                    Asked::WakeUp,
                    "a pair of UNIX seqpacket sockets, one byte per message"
                ),
            ],
        )
    }
);

connected!(
    TcpLoopback,
    Mechanism {
        needs: &[Need::Loopback],
        ..Mechanism::new(
            "tcp-loopback",
            Death::LeavesOne { row: "tcp-loopback", survivor: AfterKill::Told },
            &[
                Listing::new(Asked::RoundTrip, "a TCP connection over loopback with TCP_NODELAY"),
                Listing::new(Asked::Throughput, "a TCP connection over loopback with TCP_NODELAY"),
                Listing::new(Asked::Survival, "a TCP connection over loopback"),
                Listing::new(Asked::WakeUp, "a TCP connection over loopback with TCP_NODELAY"),
            ],
        )
    }
);

impl Connected for UnixStream {
    const BOTH_WAYS: bool = true;

    fn connect() -> Result<(OwnedFd, OwnedFd)> {
        unix_pair(SocketType::STREAM)
    }
}

impl Connected for UnixSeqpacket {
    const BOTH_WAYS: bool = true;

    fn connect() -> Result<(OwnedFd, OwnedFd)> {
        unix_pair(SocketType::SEQPACKET)
    }

    /// Sends one packet as large as a message and receives it, to check that such packets fit.
    fn try_out(bytes: usize, read: &OwnedFd, write: &OwnedFd) -> Result<()> {
        let mut packet = vec![0; bytes];
        match rustix::net::send(write, &packet, rustix::net::SendFlags::DONTWAIT) {
            Ok(_) => rustix::io::read(read, &mut packet).during("read").map(|_| ()),
            Err(Errno::MSGSIZE) => {
                let room = rustix::net::sockopt::socket_send_buffer_size(write).unwrap_or(0);
                Err(MeasureError::skip(format!(
                    "a packet of {bytes} bytes does not fit into the socket's buffer, which has \
                     {room}; see /proc/sys/net/core/wmem_max"
                )))
            }
            Err(error) => Err(error).setting_up("send of one packet"),
        }
    }
}

impl Connected for TcpLoopback {
    const BOTH_WAYS: bool = true;

    fn connect() -> Result<(OwnedFd, OwnedFd)> {
        tcp_pair()
    }
}

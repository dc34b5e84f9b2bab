//! Connected sockets: `unix-stream`, `unix-seqpacket` and `tcp-loopback`.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::SocketType;
use tontine_bench::error::{ErrorContext, MeasureError, Result};

use crate::about::{AfterKill, Death, Listing, Mechanism, RowKind};
use crate::descriptor::{Connected, tcp_pair, unix_pair};

pub struct UnixStream;

pub struct UnixSeqpacket;

pub struct TcpLoopback;

pub const UNIX_STREAM: Mechanism = Mechanism::new(
    "unix-stream",
    Death::LeavesOne { row: "unix-stream", survivor: AfterKill::Notified },
    &[
        Listing::new(RowKind::RoundTrip, "a pair of UNIX stream sockets, one byte per message"),
        Listing::new(RowKind::Throughput, "a pair of UNIX stream sockets"),
        Listing::new(RowKind::Survival, "a pair of UNIX stream sockets"),
        Listing::new(RowKind::WakeUp, "a pair of UNIX stream sockets, one byte per message"),
    ],
);

pub const UNIX_SEQPACKET: Mechanism = Mechanism {
    shared_up_to: usize::MAX,
    ..Mechanism::new(
        "unix-seqpacket",
        Death::LeavesOne { row: "unix-seqpacket", survivor: AfterKill::Notified },
        &[
            Listing::new(
                RowKind::RoundTrip,
                "a pair of UNIX seqpacket sockets, one byte per message",
            ),
            Listing::new(
                RowKind::Throughput,
                "a pair of UNIX seqpacket sockets, one packet per message",
            ),
            Listing::new(RowKind::Survival, "a pair of UNIX seqpacket sockets"),
            Listing::new(RowKind::WakeUp, "a pair of UNIX seqpacket sockets, one byte per message"),
        ],
    )
};

pub const TCP_LOOPBACK: Mechanism = Mechanism::new(
    "tcp-loopback",
    Death::LeavesOne { row: "tcp-loopback", survivor: AfterKill::Notified },
    &[
        Listing::new(RowKind::RoundTrip, "a TCP connection over loopback with TCP_NODELAY"),
        Listing::new(RowKind::Throughput, "a TCP connection over loopback with TCP_NODELAY"),
        Listing::new(RowKind::Survival, "a TCP connection over loopback"),
        Listing::new(RowKind::WakeUp, "a TCP connection over loopback with TCP_NODELAY"),
    ],
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
                let buffer = rustix::net::sockopt::socket_send_buffer_size(write).unwrap_or(0);
                Err(MeasureError::skip(format!(
                    "a packet of {bytes} bytes does not fit into the socket's buffer, which has \
                     {buffer}; see /proc/sys/net/core/wmem_max"
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

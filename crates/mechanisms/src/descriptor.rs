//! Connections behind file descriptors: pipe, UNIX sockets, TCP over loopback. All are CLOEXEC.
//!
//! They are made before a fork; each process then closes the other's end, so that an end of file
//! tells of a death.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use tontine_host::trouble::{During, Result};

/// A pipe: (its reading end, its writing end).
///
/// # Errors
/// Skipped, where the system refuses it.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC).setting_up("pipe2")
}

/// A pair of connected UNIX sockets.
///
/// # Errors
/// Skipped, where the system refuses it.
pub fn unix_pair(kind: SocketType) -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).setting_up("socketpair")
}

/// Both ends of a TCP connection over loopback without Nagle's delay.
///
/// # Errors
/// Skipped, where there is no loopback.
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

/// A second descriptor of the same.
///
/// # Errors
/// Skipped, where there are no more descriptors.
pub fn again(fd: &OwnedFd) -> Result<OwnedFd> {
    fd.try_clone().setting_up("fcntl(F_DUPFD_CLOEXEC)")
}

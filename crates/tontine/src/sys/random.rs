//! Random bytes ([`bytes`]), and random names of sockets ([`bind_random`]).

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Error, Result};

/// Maximum number of random names that are tried. Each has 16 bytes, so no user can guess one.
const NAMES: usize = 8;

/// Returns 16 random bytes.
///
/// # Errors
/// [`Error::System`] if the kernel returns none.
pub(crate) fn bytes() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    // The kernel returns up to 256 bytes whole, and no signal interrupts so short a call.
    match getrandom(&mut bytes[..], GetRandomFlags::empty()) {
        Ok(_) => Ok(bytes),
        Err(errno) => Err(Error::system("getrandom", errno)),
    }
}

/// Binds the socket to a random name in the abstract namespace, and returns the name.
///
/// The kernel gives an automatic name to a socket without one, for example when it sends
/// credentials. There are only 2^20 such names, any user can occupy them, and the kernel tries one
/// after the other, so that a call would depend on other users.
///
/// # Errors
/// [`Error::System`], with EINVAL if the socket has a name.
pub(crate) fn bind_random(fd: impl AsFd) -> Result<SocketAddrUnix> {
    let system = |errno| Error::system("bind", errno);
    for _ in 0..NAMES {
        let name = SocketAddrUnix::new_abstract_name(&bytes()?).map_err(system)?;
        match rustix::net::bind(&fd, &name) {
            Ok(()) => return Ok(name),
            Err(Errno::ADDRINUSE) => {}
            Err(errno) => return Err(system(errno)),
        }
    }
    Err(system(Errno::ADDRINUSE))
}

//! A doorbell: [`ring`] at one end, and the other becomes readable.
//!
//! It is a pair of sockets and not an eventfd, because its two ends belong to processes that do not
//! trust each other. Writing an eventfd waits where its counter is full, unless `O_NONBLOCK` is
//! set, and that flag belongs to the open file, which whoever else has it may fill and change. What
//! `MSG_DONTWAIT` says holds for the call.
//!
//! Neighbours: the mailbox makes one for each lane and passes the far end with `WELCOME`.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::error::{Error, Result};

/// Rings that are taken at once.
const MOST_RINGS: usize = 1024;

/// What the ear heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Rings, or nothing.
    Rings,
    /// Nobody can ring any more.
    HungUp,
}

/// The ear, and the button for somebody else.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn make() -> Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Error::system("socketpair", errno))
}

/// Whether a descriptor that a peer passed can be a button: using and closing it never waits.
pub(crate) fn is_button(fd: impl AsFd) -> bool {
    sockopt::socket_domain(fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
}

/// Rings. A bell that cannot take another ring has rung already; one without an ear needs none.
pub(crate) fn ring(button: impl AsFd) {
    let _ = rustix::net::send(button, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes the rings out. More than a thousand of them it leaves for the next time.
pub(crate) fn hush(ear: impl AsFd) -> Heard {
    let mut rings = [0; MOST_RINGS];
    match rustix::net::recv(ear, &mut rings, RecvFlags::DONTWAIT) {
        Ok((0, _)) | Err(Errno::CONNRESET) => Heard::HungUp,
        Ok(_) | Err(_) => Heard::Rings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rings_never_waits_and_tells_of_the_end() {
        let (ear, button) = make().expect("a pair");
        assert!(is_button(&button) && !is_button(std::io::stdin()));
        assert_eq!(hush(&ear), Heard::Rings);
        rustix::io::ioctl_fionbio(&button, false).expect("set");
        for _ in 0..100_000 {
            ring(&button);
        }
        assert_eq!(hush(&ear), Heard::Rings);
        drop(button);
        while hush(&ear) == Heard::Rings {}
        let (ear, button) = make().expect("a pair");
        drop(ear);
        ring(&button);
    }
}

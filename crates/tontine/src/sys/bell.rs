//! A doorbell: [`ring`] at one end, and the other becomes readable.
//!
//! It is a pair of sockets and not an eventfd, because its two ends belong to processes that do not
//! trust each other. Writing an eventfd waits where its counter is full, unless `O_NONBLOCK` is
//! set, and that flag belongs to the open file, which whoever else has it may fill and change. What
//! `MSG_DONTWAIT` says holds for the call.
//!
//! A ring may bring descriptors, and closing those may wait. The kernel refuses them where it can
//! (`SO_PASSRIGHTS`); where it cannot, each ring is looked at before it is taken. Datagrams and not
//! a stream, so that no byte out of band hides from that look, and a queue can be told for certain
//! to be empty before it is closed.
//!
//! Neighbours: the mailbox makes one for each lane and passes the far end with `WELCOME`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use super::socket::{self, Socket};
use crate::error::{Error, Result};

/// Rings that are taken at once.
const MOST_RINGS: usize = 64;

/// The kernel lets rings bring descriptors.
static UNGUARDED: AtomicBool = AtomicBool::new(false);

/// What the ear heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Rings, or nothing.
    Rings,
    /// What no honest peer rings with. It is in there still: the bell is not to be heard again.
    Noise,
}

/// The ear, and the button for somebody else.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn make() -> Result<(Socket, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (ear, button) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
            .map_err(|errno| Error::system("socketpair", errno))?;
    if !socket::refuse_descriptors(&ear) {
        UNGUARDED.store(true, Ordering::Relaxed);
        // Each ring is looked at, with room for credentials and for no descriptor.
        socket::pass_credentials(&ear)?;
    }
    // Nothing is ever queued at this end, whoever holds it.
    rustix::net::shutdown(&button, Shutdown::Read)
        .map_err(|errno| Error::system("shutdown", errno))?;
    Ok((Socket::new(ear)?, button))
}

/// Rings. A bell that cannot take another ring has rung already; one without an ear needs none.
pub(crate) fn ring(button: impl AsFd) {
    let _ = rustix::net::send(button, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes the rings out. More than a few dozen of them it leaves for the next time.
pub(crate) fn hush(ear: impl AsFd) -> Heard {
    if UNGUARDED.load(Ordering::Relaxed) {
        return hush_carefully(ear);
    }
    for _ in 0..MOST_RINGS {
        if rustix::net::recv(&ear, &mut [0_u8; 1], RecvFlags::DONTWAIT).is_err() {
            break;
        }
    }
    Heard::Rings
}

fn hush_carefully(ear: impl AsFd) -> Heard {
    for _ in 0..MOST_RINGS {
        match socket::receive(&ear, &mut [0]) {
            Ok(Some(ring)) if ring.has_descriptors => return Heard::Noise,
            // An empty one, which looks like the end of a connection and is not taken.
            Ok(Some(ring)) if ring.hung_up => return Heard::Noise,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    Heard::Rings
}

#[cfg(test)]
mod tests {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage};

    use super::*;

    #[test]
    fn it_rings_and_never_waits() {
        let (ear, button) = make().expect("a pair");
        assert_eq!(hush(&ear), Heard::Rings);
        rustix::io::ioctl_fionbio(&button, false).expect("set");
        for _ in 0..100_000 {
            ring(&button);
        }
        assert_eq!(hush(&ear), Heard::Rings);
        drop(ear);
        ring(&button);
    }

    /// A ring that brought a socket told to linger made `recv` wait for it.
    #[test]
    fn descriptors_do_not_come_with_a_ring_or_end_it() {
        let (ear, button) = make().expect("a pair");
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let fds = [button.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let bytes = [rustix::io::IoSlice::new(b"1")];
        let sent = rustix::net::sendmsg(&button, &bytes, &mut control, SendFlags::DONTWAIT);
        let came = hush_carefully(&ear);
        match sent {
            Ok(_) => assert_eq!(came, Heard::Noise),
            Err(errno) => {
                assert_eq!((errno, came), (rustix::io::Errno::PERM, Heard::Rings));
                assert!(!UNGUARDED.load(Ordering::Relaxed));
            }
        }
        // As on a kernel that cannot refuse them.
        let flags = SocketFlags::CLOEXEC;
        let (ear, button) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
                .expect("a pair");
        socket::pass_credentials(&ear).expect("set");
        ring(&button);
        assert_eq!(hush_carefully(&ear), Heard::Rings);
        let mut control = SendAncillaryBuffer::new(&mut room);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        rustix::net::sendmsg(&button, &bytes, &mut control, SendFlags::DONTWAIT).expect("sent");
        assert_eq!(hush_carefully(&ear), Heard::Noise);
    }
}

//! Doorbells: [`ring`] at one end makes the other end readable.
//!
//! A doorbell is a pair of sockets rather than an eventfd, because its two ends belong to processes
//! that do not trust each other. A write to an eventfd whose counter is full blocks unless
//! `O_NONBLOCK` is set, and the other end can fill the counter and change the flag, which belongs
//! to the open file. `MSG_DONTWAIT`, in contrast, applies to one call.
//!
//! A ring may carry descriptors, and closing them may block. If the kernel supports
//! `SO_PASSRIGHTS`, it refuses descriptors; otherwise each ring is checked before it is received.
//! The sockets are of type `SOCK_SEQPACKET`, so that no out-of-band byte evades the check, an empty
//! queue can be recognised with certainty before the socket is closed, and no process can connect
//! an end to another socket, upon which the peer would ring there with its own credentials.
//!
//! Neighbours: the mailbox makes one doorbell per lane, and passes the ringing end with `WELCOME`.

#![allow(unsafe_code, reason = "recvmmsg")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType};

use super::socket::{self, PeerSocket};
use crate::error::{Error, Result};

/// Maximum number of rings received per call.
const MOST_RINGS: usize = 16;

/// Maximum number of calls per drain. A set with thousands of lanes reports one of them rarely, and
/// more rings than one call receives may be queued by then.
const MOST_CALLS: usize = 4;

/// `true` if the kernel cannot refuse descriptors in rings.
static UNGUARDED: AtomicBool = AtomicBool::new(false);

/// Content of a doorbell's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BellState {
    /// Rings, or no message.
    Rings,
    /// A message that no honest peer sends. It stays in the queue: do not receive from the doorbell
    /// again.
    Noise,
}

/// Makes a doorbell. Returns the listening end, and the ringing end to pass to another process.
///
/// # Errors
/// [`Error::System`] if a system call fails.
pub(crate) fn make() -> Result<(PeerSocket, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (listen_end, ring_end) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|errno| Error::system("socketpair", errno))?;
    if !socket::refuse_descriptors(&listen_end) {
        UNGUARDED.store(true, Ordering::Relaxed);
        // Each ring is checked first, with space for credentials but not for descriptors.
        socket::pass_credentials_to_reader(&listen_end)?;
    }
    // No message can be queued at this end any more, whichever process holds it.
    rustix::net::shutdown(&ring_end, Shutdown::Read)
        .map_err(|errno| Error::system("shutdown", errno))?;
    Ok((PeerSocket::new(listen_end)?, ring_end))
}

/// Rings the doorbell. Returns `false` if the queue is full, if memory is short, or if the other
/// end is closed and needs no ring.
pub(crate) fn ring(ring_end: impl AsFd) -> bool {
    rustix::net::send(ring_end, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok()
}

/// Receives up to [`MOST_CALLS`] × [`MOST_RINGS`] rings; the others stay queued for the next call.
pub(crate) fn drain(listen_end: impl AsFd) -> BellState {
    if UNGUARDED.load(Ordering::Relaxed) {
        return drain_carefully(listen_end);
    }
    let mut byte = 0_u8;
    let mut place = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all zero is a valid value of this C struct.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_iov = &raw mut place;
    message.msg_hdr.msg_iovlen = 1;
    let mut messages = [message; MOST_RINGS];
    for _ in 0..MOST_CALLS {
        // SAFETY: all messages refer to one byte, which outlives the call, and which only the
        // kernel accesses during the call. Without a timeout, the last pointer is null.
        let received = unsafe {
            libc::recvmmsg(
                listen_end.as_fd().as_raw_fd(),
                messages.as_mut_ptr(),
                MOST_RINGS as libc::c_uint,
                // The C libraries differ in the type of the flags.
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        // A seccomp filter may refuse `recvmmsg`. The library needs `recvmsg` in any case.
        if received < 0 && io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock {
            return drain_carefully(listen_end);
        }
        if received < MOST_RINGS as libc::c_int {
            break;
        }
    }
    BellState::Rings
}

fn drain_carefully(listen_end: impl AsFd) -> BellState {
    for _ in 0..MOST_CALLS * MOST_RINGS {
        match socket::receive(&listen_end, &mut [0]) {
            Ok(Some(ring)) if ring.has_descriptors => return BellState::Noise,
            // An empty message, which looks like the end of a connection, is not received.
            Ok(Some(ring)) if ring.hung_up => return BellState::Noise,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    BellState::Rings
}

#[cfg(test)]
mod tests {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage};

    use super::*;

    #[test]
    fn ring_with_full_queue_does_not_wait() {
        let (listen_end, ring_end) = make().expect("a pair");
        assert_eq!(drain(&listen_end), BellState::Rings);
        rustix::io::ioctl_fionbio(&ring_end, false).expect("set");
        for _ in 0..100_000 {
            ring(&ring_end);
        }
        assert_eq!(drain(&listen_end), BellState::Rings);
        drop(listen_end);
        ring(&ring_end);
    }

    #[test]
    fn drain_receives_64_rings() {
        let (listen_end, ring_end) = make().expect("a pair");
        for drain in [|end: &PeerSocket| drain(end), |end: &PeerSocket| drain_carefully(end)] {
            assert!((0..65).all(|_| ring(&ring_end)));
            assert_eq!(drain(&listen_end), BellState::Rings);
            for left in [true, false] {
                let ring = socket::receive(&listen_end, &mut [0]).expect("received");
                assert_eq!(ring.is_some(), left);
            }
        }
    }

    /// A ring that carried a socket with SO_LINGER made `recv` wait for that socket.
    #[test]
    fn ring_with_descriptors_is_refused_or_noise() {
        let (listen_end, ring_end) = make().expect("a pair");
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [ring_end.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let bytes = [rustix::io::IoSlice::new(b"1")];
        let sent = rustix::net::sendmsg(&ring_end, &bytes, &mut control, SendFlags::DONTWAIT);
        let came = drain_carefully(&listen_end);
        match sent {
            Ok(_) => assert_eq!(came, BellState::Noise),
            Err(errno) => {
                assert_eq!((errno, came), (rustix::io::Errno::PERM, BellState::Rings));
                assert!(!UNGUARDED.load(Ordering::Relaxed));
            }
        }
        // Simulates a kernel that cannot refuse descriptors.
        let flags = SocketFlags::CLOEXEC;
        let (listen_end, ring_end) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .expect("a pair");
        socket::pass_credentials(&listen_end).expect("set");
        ring(&ring_end);
        assert_eq!(drain_carefully(&listen_end), BellState::Rings);
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        rustix::net::sendmsg(&ring_end, &bytes, &mut control, SendFlags::DONTWAIT).expect("sent");
        assert_eq!(drain_carefully(&listen_end), BellState::Noise);
    }
}

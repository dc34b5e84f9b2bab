//! Messages without descriptors: [`receive()`]; and `recvmsg` itself, for [`super::passed`].
//!
//! A message is first peeked at (`MSG_PEEK`), with space only for its sender's credentials. So the
//! kernel installs no descriptor in the process's table, and reports with `MSG_CTRUNC` that the
//! message has descriptors. Such a message stays in the queue, and [`super::passed`] receives it in
//! another table.

#![allow(unsafe_code, reason = "recvmsg with control data without a safe wrapper")]

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::INTERRUPTIONS;
use crate::error::{Error, Peer, Result};

/// Number of descriptors for which there is always space: one more than an honest peer passes with
/// one message (a process page and 32 chunks). Unused space for control data may hold more.
pub(super) const MAX_PASSED: usize = 34;

/// `SCM_PIDFD`, since Linux 6.5.
const SCM_PIDFD: i32 = 4;

/// The sender of a message, as identified by the kernel. The pid is 0 if the process is not visible
/// in this PID namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SenderCredentials {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl SenderCredentials {
    /// Returns the process with these credentials.
    pub(crate) fn peer(self) -> Peer {
        Peer { pid: Some(self.pid).filter(|&pid| pid != 0), uid: self.uid }
    }
}

/// A message from the queue.
#[derive(Debug, Default)]
pub(crate) struct ReceivedPacket {
    /// Number of bytes written to the caller's buffer.
    pub(crate) len: usize,
    /// `true` if the message is longer than the caller's buffer.
    pub(crate) oversize: bool,
    /// `true` if the message carries descriptors and stays in the queue: see
    /// [`super::receive_passed`].
    pub(crate) has_descriptors: bool,
    /// The sender, if the socket passes credentials.
    pub(crate) from: Option<SenderCredentials>,
    /// `true` if the peer has hung up and the queue is empty; then no other field is set.
    pub(crate) hung_up: bool,
}

/// Removes the next message from the queue, unless the message carries descriptors and therefore
/// stays. Returns `None` if the queue is empty. Does not wait.
///
/// Only one thread at a time may call this function, because two could peek at the same message.
///
/// # Errors
/// [`Error::System`] if `recvmsg` fails.
pub(crate) fn receive(fd: impl AsFd, into: &mut [u8]) -> Result<Option<ReceivedPacket>> {
    let fd = fd.as_fd();
    let Some(seen) = message(fd, into, Take::Look)? else { return Ok(None) };
    let received = ReceivedPacket {
        len: seen.len,
        oversize: seen.oversize,
        has_descriptors: seen.truncated,
        from: seen.from,
        hung_up: seen.hung_up,
    };
    if received.hung_up || received.has_descriptors {
        return Ok(Some(received));
    }
    // The result is `None` if a forked child with a copy of the connection was faster.
    Ok(remove(fd)?.then_some(received))
}

/// Removes the next message from the queue, with everything that it carries. Returns `false` if the
/// queue is empty.
pub(super) fn remove(fd: BorrowedFd<'_>) -> Result<bool> {
    Ok(message(fd, &mut [], Take::Away)?.is_some())
}

/// The result of one `recvmsg`.
#[derive(Debug, Default)]
pub(super) struct RecvmsgResult {
    pub(super) len: usize,
    pub(super) oversize: bool,
    /// `true` if there was not enough space for the control data.
    pub(super) truncated: bool,
    pub(super) fds: Vec<OwnedFd>,
    pub(super) from: Option<SenderCredentials>,
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) hung_up: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    /// Peeks at bytes and credentials. The socket must pass credentials, because otherwise
    /// descriptors would use their space.
    Look,
    /// Peeks at the whole message, with copies of its descriptors.
    LookWhole,
    /// Removes the message from the queue.
    Away,
}

/// Space for control data, aligned like its headers.
#[repr(C)]
union ControlBuffer {
    header: libc::cmsghdr,
    space: [u8; CONTROL_BYTES],
}

/// Bytes for credentials, which come first and are the only control data that the process itself
/// receives.
const CREDENTIALS_BYTES: usize = space(size_of::<libc::ucred>());

const CONTROL_BYTES: usize = CREDENTIALS_BYTES
    + space(MAX_PASSED * size_of::<i32>())
    + space(size_of::<i32>())
    // A security label, in case the program has set an option that requests it.
    + space(256);

const fn space(bytes: usize) -> usize {
    // SAFETY: the macro only computes a size.
    unsafe { libc::CMSG_SPACE(bytes as u32) as usize }
}

pub(super) fn message(
    fd: BorrowedFd<'_>,
    into: &mut [u8],
    take: Take,
) -> Result<Option<RecvmsgResult>> {
    let mut control = MaybeUninit::<ControlBuffer>::uninit();
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: the structure has only integers and pointers, for which zero is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    let space = match take {
        Take::LookWhole => CONTROL_BYTES,
        Take::Look => CREDENTIALS_BYTES,
        Take::Away => 0,
    };
    let mut flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    if take != Take::Away {
        flags |= libc::MSG_PEEK;
    }
    for _ in 0..INTERRUPTIONS {
        if space > 0 {
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = space as _;
        }
        // SAFETY: the header describes `into` and `control`, both writable for this call.
        let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) };
        if len < 0 {
            let error = io::Error::last_os_error();
            match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                // The kernel returns ECONNRESET once, before the messages in the queue.
                Errno::INTR | Errno::CONNRESET => continue,
                Errno::AGAIN => return Ok(None),
                errno => return Err(Error::system("recvmsg", errno)),
            }
        }
        let mut seen = RecvmsgResult {
            len: len.cast_unsigned(),
            oversize: header.msg_flags & libc::MSG_TRUNC != 0,
            truncated: header.msg_flags & libc::MSG_CTRUNC != 0,
            ..RecvmsgResult::default()
        };
        if space > 0 {
            // SAFETY: the kernel has filled in the header and its control data.
            unsafe { read_control(&header, &mut seen) };
            // This is not an empty message, which would carry its sender's credentials.
            seen.hung_up =
                len == 0 && !seen.oversize && !seen.truncated && header.msg_controllen == 0;
        }
        return Ok(Some(seen));
    }
    Ok(None)
}

/// Reads the control data of a message.
///
/// # Safety
/// `header` is unchanged since `recvmsg` filled it, and its buffer still has the control data.
unsafe fn read_control(header: &libc::msghdr, seen: &mut RecvmsgResult) {
    // SAFETY: the macros walk over the control data that the kernel has written, and stop at its
    // end; each piece is read up to its own length. Descriptors are new, and this process owns
    // them.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(header);
        while !at.is_null() {
            let data = libc::CMSG_DATA(at);
            let len =
                ((*at).cmsg_len as usize).saturating_sub(data.offset_from(at.cast()) as usize);
            match ((*at).cmsg_level, (*at).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for n in 0..len / size_of::<i32>() {
                        let fd = data.cast::<i32>().add(n).read_unaligned();
                        seen.fds.push(OwnedFd::from_raw_fd(fd));
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if len >= size_of::<libc::ucred>() => {
                    let sender = data.cast::<libc::ucred>().read_unaligned();
                    seen.from = Some(SenderCredentials {
                        pid: u32::try_from(sender.pid).unwrap_or(0),
                        uid: sender.uid,
                        gid: sender.gid,
                    });
                }
                (libc::SOL_SOCKET, SCM_PIDFD) if len >= size_of::<i32>() => {
                    match data.cast::<i32>().read_unaligned() {
                        fd if fd >= 0 => seen.pidfd = Some(OwnedFd::from_raw_fd(fd)),
                        // The table is full; other errors mean that the sender has been reaped.
                        error if [-libc::EMFILE, -libc::ENFILE].contains(&error) => {
                            seen.truncated = true;
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(header, at);
        }
    }
}

const _: () = assert!(offset_of!(ControlBuffer, space) == 0);

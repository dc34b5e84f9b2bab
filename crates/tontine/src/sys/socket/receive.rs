//! Receiving a message with all its descriptors, or leaving it where it is: [`receive()`].
//!
//! A descriptor table without room would cost descriptors: the kernel passes those that fit and
//! closes the rest. So a message is looked at first (`MSG_PEEK`, which installs duplicates), and
//! taken from the queue only when everything had room. What was installed then *is* the message's
//! descriptors; the queue's own copies are dropped inside the kernel, where no `close` can wait,
//! as ours are still open.

#![allow(unsafe_code, reason = "recvmsg with control data that no crate knows yet")]

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::{INTERRUPTIONS, MOST_DESCRIPTORS, close_hostile};
use crate::error::{Error, Result};

/// `SCM_PIDFD`, since Linux 6.5.
const SCM_PIDFD: i32 = 4;

/// Who sent a message, as the kernel says. A pid of 0 cannot be seen from this PID namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// What was in the queue.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Bytes that were written to the caller's buffer.
    pub(crate) len: usize,
    /// The message was longer than the caller's buffer; the rest is lost.
    pub(crate) oversize: bool,
    /// The message's descriptors do not fit into this process's descriptor table. The message is
    /// in the queue still, whole; none of its descriptors is here. `len` and `from` are right.
    pub(crate) truncated: bool,
    /// The message's descriptors, close-on-exec.
    pub(crate) fds: Passed,
    /// The sender, if the socket passes credentials.
    pub(crate) from: Option<Credentials>,
    /// The sender's pidfd, if the socket passes credentials and the kernel knows how.
    pub(crate) pidfd: Option<OwnedFd>,
    /// There is no peer any more, and no message: nothing else is set.
    pub(crate) hung_up: bool,
}

/// Descriptors that came with a message. What nobody takes out is closed as a hostile peer's: not
/// every `close` returns at once.
#[derive(Debug, Default)]
pub(crate) struct Passed(Vec<OwnedFd>);

impl Passed {
    /// Takes the last one out, which is known by now to be closed at once.
    pub(crate) fn pop(&mut self) -> Option<OwnedFd> {
        self.0.pop()
    }
}

impl Deref for Passed {
    type Target = [OwnedFd];

    fn deref(&self) -> &[OwnedFd] {
        &self.0
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        close_hostile(self.0.drain(..));
    }
}

/// Takes the next message from the queue, if there is one. Does not wait.
///
/// One thread at a time: two could each look at the same message.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn receive(fd: impl AsFd, into: &mut [u8]) -> Result<Option<Received>> {
    let fd = fd.as_fd();
    let Some(mut received) = message(fd, into, Take::Look)? else { return Ok(None) };
    if received.hung_up {
        return Ok(Some(received));
    }
    if received.truncated {
        // The queue has the same descriptors still: closing these ends nothing, and nothing must be
        // done to what they refer to.
        received.fds.0.clear();
        received.pidfd = None;
        return Ok(Some(received));
    }
    // Without room for control data: the descriptors are here already.
    match message(fd, &mut [], Take::Away)? {
        Some(taken) if !taken.hung_up => Ok(Some(received)),
        // A forked child with a copy of the connection was faster.
        gone => Ok(gone),
    }
}

/// The next message's descriptors, as many as there is room for; none where there is no message.
/// The others are closed by the kernel, and whoever calls this may wait for that.
pub(super) fn take_whole(fd: BorrowedFd<'_>) -> Option<Vec<OwnedFd>> {
    let mut bytes = [0; 4096];
    let mut taken = message(fd, &mut bytes, Take::Whole).ok().flatten()?;
    if taken.hung_up {
        return None;
    }
    Some(std::mem::take(&mut taken.fds.0))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Take {
    /// All of it, and leave it in the queue.
    Look,
    /// Out of the queue, and nothing else.
    Away,
    /// All of it, out of the queue.
    Whole,
}

/// Room for control data, aligned as its headers are.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    room: [u8; CONTROL_BYTES],
}

const CONTROL_BYTES: usize = space(MOST_DESCRIPTORS * size_of::<i32>())
    + space(size_of::<libc::ucred>())
    + space(size_of::<i32>())
    // A security label, should some socket option of a program's ask for it.
    + space(256);

const fn space(bytes: usize) -> usize {
    // SAFETY: arithmetic.
    unsafe { libc::CMSG_SPACE(bytes as u32) as usize }
}

fn message(fd: BorrowedFd<'_>, into: &mut [u8], take: Take) -> Result<Option<Received>> {
    let mut control = MaybeUninit::<Control>::uninit();
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: integers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    let mut flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    if take == Take::Look {
        flags |= libc::MSG_PEEK;
    }
    for _ in 0..INTERRUPTIONS {
        if take != Take::Away {
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES as _;
        }
        // SAFETY: the header describes `into` and `control`, both writable for this call.
        let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) };
        if len < 0 {
            let error = io::Error::last_os_error();
            match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                // ECONNRESET is said once, before the messages that are still in the queue.
                Errno::INTR | Errno::CONNRESET => continue,
                Errno::AGAIN => return Ok(None),
                errno => return Err(Error::system("recvmsg", errno)),
            }
        }
        let mut received = Received {
            len: len.cast_unsigned(),
            oversize: header.msg_flags & libc::MSG_TRUNC != 0,
            truncated: header.msg_flags & libc::MSG_CTRUNC != 0,
            ..Received::default()
        };
        if take != Take::Away {
            // SAFETY: the kernel has filled in the header and its control data.
            unsafe { read_control(&header, &mut received) };
            // An empty message from somebody would have something with it: his credentials.
            received.hung_up =
                len == 0 && !received.oversize && !received.truncated && header.msg_controllen == 0;
        }
        return Ok(Some(received));
    }
    Ok(None)
}

/// # Safety
/// `header` is as `recvmsg` left it, with control data in its buffer.
unsafe fn read_control(header: &libc::msghdr, received: &mut Received) {
    // SAFETY: the macros walk over the control data that the kernel has written, and stop at its
    // end; each piece is read as far as its own length says. Descriptors are new, and ours.
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
                        received.fds.0.push(OwnedFd::from_raw_fd(fd));
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if len >= size_of::<libc::ucred>() => {
                    let sender = data.cast::<libc::ucred>().read_unaligned();
                    received.from = Some(Credentials {
                        pid: u32::try_from(sender.pid).unwrap_or(0),
                        uid: sender.uid,
                        gid: sender.gid,
                    });
                }
                (libc::SOL_SOCKET, SCM_PIDFD) if len >= size_of::<i32>() => {
                    match data.cast::<i32>().read_unaligned() {
                        fd if fd >= 0 => received.pidfd = Some(OwnedFd::from_raw_fd(fd)),
                        // No room in the table; other errors mean that the sender has been reaped.
                        error if [-libc::EMFILE, -libc::ENFILE].contains(&error) => {
                            received.truncated = true;
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

const _: () = assert!(offset_of!(Control, room) == 0);

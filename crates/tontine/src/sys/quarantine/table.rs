//! The descriptor table of a thread ([`LentTable`]), and the sockets over which descriptors are
//! lent.

#![allow(unsafe_code, reason = "close_range, and close")]

use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::{Errno, IoSliceMut};
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{Pid, gettid};

use super::{MAX_LENT, quarantine};
use crate::error::{Error, Result};
use crate::sys::random::bind_random;

/// The thread's table, with the socket over which it borrows descriptors.
pub(super) struct LentTable {
    socket: ManuallyDrop<OwnedFd>,
    name: SocketAddrUnix,
    /// Number of entries from the first that hold no descriptor of a peer.
    copies: u32,
}

/// Minimum number of entries that the kernel copies, even if the call requests fewer.
const COPIED: u32 = 64;

/// Number of entries that a table needs in addition to the copies: the thread's own entries, and
/// the entries of one message.
const MIN_SPACE: u64 = MAX_LENT as u64 + 4;

impl LentTable {
    /// Gives the calling thread its own table, and a socket that accepts messages only from the
    /// socket named `lender`.
    pub(super) fn new(lender: &SocketAddrUnix) -> Result<Self> {
        let limit = getrlimit(Resource::Nofile).current;
        let is_small = limit.is_some_and(|limit| limit < u64::from(COPIED) + MIN_SPACE);
        let copies = if is_small { 0 } else { COPIED };
        // Until the copies of the listeners are closed, no listener is made or closed.
        let quarantine = quarantine()?;
        // SAFETY: the call takes three integers. The other threads' table is unchanged; this thread
        // uses none of its descriptors.
        let done = unsafe {
            libc::syscall(libc::SYS_close_range, COPIED, u32::MAX, libc::CLOSE_RANGE_UNSHARE)
        };
        if done != 0 {
            return Err(Error::last("close_range(CLOSE_RANGE_UNSHARE)"));
        }
        for &number in quarantine.listeners.iter().filter(|number| number.cast_unsigned() < COPIED)
        {
            // SAFETY: the number is an entry of this thread's own table, which nothing else uses.
            unsafe { libc::close(number) };
        }
        drop(quarantine);
        if is_small {
            // The copies leave too little space. Closing them flushes the program's files.
            // SAFETY: the call takes three integers, and closes entries of this thread's own table.
            unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
        }
        let (socket, name) = named_socket_to(lender)?;
        let table = Self { socket: ManuallyDrop::new(socket), name, copies };
        // The kernel closes the entries of a table in the order of their numbers. Peers'
        // descriptors must come after the program's own, because a close that never returns keeps
        // all later entries open.
        for _ in 0..copies {
            let copy = rustix::io::fcntl_dupfd_cloexec(&*table.socket, 0)
                .map_err(|errno| Error::system("fcntl(F_DUPFD_CLOEXEC)", errno))?;
            if ManuallyDrop::new(copy).as_raw_fd().cast_unsigned() >= COPIED {
                break;
            }
        }
        Ok(table)
    }

    /// Closes the copies of the program's descriptors, which may flush files of the program.
    ///
    /// If a copy is the last reference to its file, the kernel releases the file before this call
    /// returns. If the thread ended instead, the kernel would release the file only after it has
    /// closed every descriptor, and a peer's file may block that.
    pub(super) fn close_copies(&self) {
        // In a small table they are closed already, and descriptors of peers have their numbers.
        if let Some(last) = self.copies.checked_sub(1) {
            // SAFETY: the call takes three integers, and closes entries of this thread's own table.
            unsafe { libc::syscall(libc::SYS_close_range, 0, last, 0) };
        }
    }

    /// Returns the socket's name and the thread that holds the socket.
    pub(super) fn address(&self) -> (SocketAddrUnix, Pid) {
        (self.name.clone(), gettid())
    }

    /// Receives the descriptors that the process lends.
    pub(super) fn borrow(&self) -> Result<Vec<OwnedFd>> {
        let system = |errno| Error::system("recvmsg", errno);
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1), ScmRights(MAX_LENT))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 8];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = rustix::io::retry_on_intr(|| {
            let parts = &mut [IoSliceMut::new(&mut bytes)];
            rustix::net::recvmsg(&*self.socket, parts, &mut control, flags)
        })
        .map_err(system)?;
        let (mut lent, mut is_ours) = (ManuallyDrop::new(Vec::new()), false);
        for message in control.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(fds) => lent.extend(fds),
                RecvAncillaryMessage::ScmCredentials(from) => {
                    is_ours = from.pid == rustix::process::getpid();
                }
                _ => {}
            }
        }
        // In another network namespace the name may belong to another process.
        if !is_ours {
            return Err(system(Errno::PERM));
        }
        // The soft limit of descriptors applies to this table too.
        if received.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
            return Err(system(Errno::MFILE));
        }
        Ok(ManuallyDrop::into_inner(lent))
    }
}

/// Returns a datagram socket with a random name.
pub(super) fn named_socket() -> Result<(OwnedFd, SocketAddrUnix)> {
    let socket = datagram_socket()?;
    let name = bind_random(&socket)?;
    Ok((socket, name))
}

/// Like [`named_socket`], but connects the socket first: the kernel then refuses messages from any
/// other socket.
fn named_socket_to(peer: &SocketAddrUnix) -> Result<(OwnedFd, SocketAddrUnix)> {
    let socket = datagram_socket()?;
    rustix::net::connect(&socket, peer).map_err(|errno| Error::system("connect", errno))?;
    // Set the option before the socket has a name, so that each message carries its sender's
    // credentials, but after the connection, for which the kernel would choose a name.
    sockopt::set_socket_passcred(&socket, true)
        .map_err(|errno| Error::system("setsockopt(SO_PASSCRED)", errno))?;
    let name = bind_random(&socket)?;
    Ok((socket, name))
}

fn datagram_socket() -> Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Error::system("socket", errno))
}

//! Socket options: the sender of a message ([`pass_credentials`]), the process at the other end
//! ([`owner`], [`owner_groups`], [`owner_pidfd`]), and the kind of a socket ([`check_connected`],
//! [`check_listening`]).

#![allow(unsafe_code, reason = "socket options without a safe wrapper")]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};

use super::SenderCredentials;
use crate::error::{Error, Result};
use crate::sys::pidfd;
use crate::sys::random::bind_random;

/// Available since Linux 6.5, with the same value on all architectures except PA-RISC and SPARC.
const SO_PASSPIDFD: i32 = 76;

/// Available since Linux 6.5, with the same value on all architectures except PA-RISC and SPARC.
const SO_PEERPIDFD: i32 = 77;

/// Available since Linux 6.16, with the same value on all architectures except PA-RISC and SPARC.
const SO_PASSRIGHTS: i32 = 83;

/// Checks that a socket from the program is a connected Unix socket of type `SOCK_SEQPACKET`.
///
/// # Errors
/// [`Error::InvalidSocket`]; [`Error::System`] if the descriptor is not a socket.
pub(crate) fn check_connected(fd: impl AsFd) -> Result<()> {
    check_kind(&fd)?;
    if rustix::net::getpeername(&fd).is_ok() {
        return Ok(());
    }
    let reason = "expected a connected socket, found one that is not connected; connect it first";
    Err(Error::InvalidSocket { reason })
}

/// Checks that a socket from the program is a listening Unix socket of type `SOCK_SEQPACKET`.
///
/// # Errors
/// The errors of [`check_connected`].
pub(crate) fn check_listening(fd: impl AsFd) -> Result<()> {
    check_kind(&fd)?;
    let listens = sockopt::socket_acceptconn(&fd)
        .map_err(|errno| Error::system("getsockopt(SO_ACCEPTCONN)", errno))?;
    if listens {
        return Ok(());
    }
    let reason = "expected a listening socket, found one that does not listen; call listen first";
    Err(Error::InvalidSocket { reason })
}

fn check_kind(fd: impl AsFd) -> Result<()> {
    let domain = sockopt::socket_domain(&fd)
        .map_err(|errno| Error::system("getsockopt(SO_DOMAIN)", errno))?;
    let kind =
        sockopt::socket_type(&fd).map_err(|errno| Error::system("getsockopt(SO_TYPE)", errno))?;
    let reason = if domain != AddressFamily::UNIX {
        "expected a Unix socket, found one of another domain; make one of AF_UNIX"
    } else if kind == SocketType::STREAM {
        "expected SOCK_SEQPACKET, found SOCK_STREAM, which keeps no message boundaries; \
         use SOCK_SEQPACKET"
    } else if kind == SocketType::DGRAM {
        "expected SOCK_SEQPACKET, found SOCK_DGRAM, which reports no hang-up; use SOCK_SEQPACKET"
    } else if kind != SocketType::SEQPACKET {
        "expected SOCK_SEQPACKET, found another type; use SOCK_SEQPACKET"
    } else {
        return Ok(());
    };
    Err(Error::InvalidSocket { reason })
}

/// Makes the kernel refuse descriptors that are sent to this socket. Returns `false` if the kernel
/// does not support this: an older kernel returns ENOPROTOOPT.
pub(crate) fn refuse_descriptors(fd: impl AsFd) -> bool {
    let off = 0_i32;
    // SAFETY: the option's value is one integer, which is readable.
    let answer = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    answer == 0
}

/// Makes the kernel attach the sender's credentials to each message that is received from now on.
/// Connections that a listener accepts inherit the option.
///
/// The kernel gives a socket with this option an automatic name before it connects or sends, so a
/// socket without a name gets a random one here ([`bind_random`]).
///
/// # Errors
/// [`Error::System`] if `bind` or `setsockopt` fails.
pub(crate) fn pass_credentials(fd: impl AsFd) -> Result<()> {
    let name = rustix::net::getsockname(&fd).and_then(SocketAddrUnix::try_from);
    // `is_unnamed` is `false` for an unnamed address from `getsockname`.
    let is_unnamed = |name: SocketAddrUnix| {
        name.path_bytes().is_none() && name.abstract_name().is_none_or(<[u8]>::is_empty)
    };
    if name.is_ok_and(is_unnamed) {
        bind_random(&fd)?;
    }
    pass_credentials_to_reader(fd)
}

/// Like [`pass_credentials`], for a socket over which this process sends nothing.
///
/// # Errors
/// [`Error::System`] if `setsockopt` fails.
pub(crate) fn pass_credentials_to_reader(fd: impl AsFd) -> Result<()> {
    sockopt::set_socket_passcred(&fd, true)
        .map_err(|errno| Error::system("setsockopt(SO_PASSCRED)", errno))
}

/// Sets whether the kernel attaches the sender's pidfd to each message that is received from now
/// on. A kernel before 6.5 attaches none.
pub(super) fn pass_pidfd(fd: impl AsFd, wanted: bool) {
    let wanted = i32::from(wanted);
    // SAFETY: the option's value is one integer, which is readable. An older kernel returns
    // ENOPROTOOPT.
    unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSPIDFD,
            (&raw const wanted).cast(),
            size_of::<i32>() as libc::socklen_t,
        );
    }
}

/// Returns `true` if a descriptor that `sender` passed is an end of a `SOCK_SEQPACKET` pair that
/// `sender` made, or of a connection to its own listener. No process can connect such a socket to
/// another one, so a message to it reaches no third process's socket.
pub(super) fn is_doorbell_of(fd: impl AsFd, sender: Option<SenderCredentials>) -> bool {
    // The pid is 0 in another PID namespace. Otherwise the users may differ: the kernel names the
    // effective user of the process that made the pair, and the real user of the sender.
    let is_same = |maker: SenderCredentials, sender: SenderCredentials| {
        maker.pid == sender.pid && (maker.pid != 0 || maker.uid == sender.uid)
    };
    check_connected(&fd).is_ok()
        && sender.is_some_and(|sender| owner(&fd).is_ok_and(|maker| is_same(maker, sender)))
}

/// Returns the process that called `listen` on the socket to which this one is connected; for a
/// pair, the process that made the pair.
///
/// # Errors
/// [`Error::System`] if `getsockopt` fails.
pub(crate) fn owner(fd: impl AsFd) -> Result<SenderCredentials> {
    let mut owner = libc::ucred { pid: 0, uid: 0, gid: 0 };
    // SAFETY: the value of SO_PEERCRED is a `ucred`.
    if !unsafe { read(&fd, libc::SO_PEERCRED, &mut owner) } {
        return Err(Error::last("getsockopt(SO_PEERCRED)"));
    }
    let pid = u32::try_from(owner.pid).unwrap_or(0);
    Ok(SenderCredentials { pid, uid: owner.uid, gid: owner.gid })
}

/// Returns the supplementary groups of the [`owner`] when it connected or called `listen`.
///
/// # Errors
/// [`Error::System`] if `getsockopt` fails.
pub(crate) fn owner_groups(fd: impl AsFd) -> Result<Vec<u32>> {
    let mut groups = vec![0_u32; 32];
    // The second attempt has the size that the kernel reported. The groups do not change.
    for _ in 0..2 {
        let mut length = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes of integers to the slice.
        let done = unsafe {
            let (fd, to) = (fd.as_fd().as_raw_fd(), groups.as_mut_ptr().cast());
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERGROUPS, to, &raw mut length)
        };
        let failed = (done != 0).then(|| Error::last("getsockopt(SO_PEERGROUPS)"));
        match failed.as_ref().map(Error::errno) {
            Some(libc::ENODATA) => return Ok(Vec::new()),
            None | Some(libc::ERANGE) => groups.resize(length as usize / size_of::<u32>(), 0),
            Some(_) => {}
        }
        match failed {
            None => return Ok(groups),
            Some(error) if error.errno() != libc::ERANGE => return Err(error),
            Some(_) => {}
        }
    }
    Err(Error::system("getsockopt(SO_PEERGROUPS)", rustix::io::Errno::RANGE))
}

/// Returns the pidfd of the [`owner`]; `None` if it cannot be watched (another PID namespace).
/// Before Linux 6.5, the owner's number gives the pidfd: its own if it lives, possibly another
/// process's if it was reaped. Before 6.16, a reaped owner has no pidfd.
///
/// # Errors
/// [`Error::System`] with ESRCH if the owner was reaped, or if this process is short of a
/// descriptor.
pub(crate) fn owner_pidfd(fd: impl AsFd) -> Result<Option<OwnedFd>> {
    let mut pidfd = -1_i32;
    // SAFETY: the value of SO_PEERPIDFD is an `i32`.
    if unsafe { read(&fd, SO_PEERPIDFD, &mut pidfd) } && pidfd >= 0 {
        // SAFETY: the kernel has stored a new descriptor there, which this process owns.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(pidfd) }));
    }
    match pidfd::open(owner(&fd)?.pid) {
        Err(error) if error.errno() == libc::ESRCH || error.is_shortage() => Err(error),
        opened => Ok(opened.ok()),
    }
}

/// Reads an option into `value`. Returns `true` on success.
///
/// # Safety
/// The option's value is a `T`.
unsafe fn read<T: Copy>(fd: impl AsFd, option: i32, value: &mut T) -> bool {
    let (fd, mut length) = (fd.as_fd().as_raw_fd(), size_of::<T>() as libc::socklen_t);
    let value = std::ptr::from_mut(value).cast();
    // SAFETY: the kernel writes at most `length` bytes to the value, which is writable.
    unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, value, &raw mut length) == 0 }
}

//! Questions about the file of a socket: who listens there ([`occupant`]); and its mode
//! ([`set_mode`], [`set_mode_of_file`]).

#![allow(unsafe_code, reason = "fchmodat2")]

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use super::option::{owner, owner_pidfd};
use super::path::SocketPath;
use super::seqpacket;
use crate::error::{Error, Result};
use crate::sys::pidfd;

/// `fchmodat2`, since Linux 6.6: the same number on all architectures except Alpha.
const FCHMODAT2: libc::c_long = 452;

/// The listener at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// No process listens.
    Vacant,
    /// A listener that was bound under another name than an owner's.
    Program(ListenerProcess),
    /// A listener that was bound under the name of [`SocketPath::temporary`], as an owner does.
    Owner(ListenerProcess),
    /// A listener whose queue is full.
    Full,
    /// A socket to which this process may not connect.
    Unknown,
}

/// The process that called `listen`. Another process may hold the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerProcess {
    /// The process lives; its pid, if it is known.
    Live(Option<u32>),
    /// The process has ended.
    Ended,
    /// The kernel does not tell.
    Unknown,
}

/// Returns the listener at a path, by a connection that is closed at once. Does not wait.
///
/// # Errors
/// [`Error::System`] if another call fails than the one that connects.
pub(crate) fn occupant(path: &Path) -> Result<Occupant> {
    let probe = seqpacket()?;
    rustix::io::ioctl_fionbio(&probe, true)
        .map_err(|errno| Error::system("ioctl(FIONBIO)", errno))?;
    let socket_path = SocketPath::new(path)?;
    let address = SocketAddrUnix::new(socket_path.as_path())
        .map_err(|errno| Error::system("sockaddr_un", errno))?;
    match rustix::io::retry_on_intr(|| rustix::net::connect(&probe, &address)) {
        Ok(()) => {}
        Err(Errno::CONNREFUSED | Errno::NOENT) => return Ok(Occupant::Vacant),
        // A process holds a socket of another type.
        Err(Errno::PROTOTYPE) => return Ok(Occupant::Program(ListenerProcess::Live(None))),
        Err(Errno::AGAIN) => return Ok(Occupant::Full),
        Err(_) => return Ok(Occupant::Unknown),
    }
    let process = listener_process(&probe)?;
    let temporary = SocketPath::temporary(path)?;
    let is_owners = name_of_listener(&probe).is_some_and(|name| {
        // The folder may have another path in the owner's mount namespace.
        Path::new(&name).file_name() == temporary.as_path().file_name()
    });
    Ok(if is_owners { Occupant::Owner(process) } else { Occupant::Program(process) })
}

fn listener_process(probe: &OwnedFd) -> Result<ListenerProcess> {
    let pid = Some(owner(probe)?.pid).filter(|&pid| pid != 0);
    match owner_pidfd(probe) {
        Ok(Some(process)) if pidfd::has_ended(&process) => Ok(ListenerProcess::Ended),
        Ok(Some(_)) => Ok(ListenerProcess::Live(pid)),
        Ok(None) => Ok(ListenerProcess::Unknown),
        Err(error) if error.errno() == libc::ESRCH => Ok(ListenerProcess::Ended),
        Err(error) => Err(error),
    }
}

/// Returns the path under which the listener at the other end was bound.
fn name_of_listener(probe: &OwnedFd) -> Option<OsString> {
    let name = rustix::net::getpeername(probe).ok()??;
    let name = SocketAddrUnix::try_from(name).ok()?;
    Some(OsStr::from_bytes(name.path_bytes()?).to_owned())
}

/// Sets the mode with which `bind` will create the file of a socket. The umask of the process then
/// still applies.
///
/// # Errors
/// [`Error::System`] if `fchmod` fails.
pub(crate) fn set_mode(socket: impl AsFd, mode: u32) -> Result<()> {
    rustix::fs::fchmod(socket, Mode::from_raw_mode(mode))
        .map_err(|errno| Error::system("fchmod", errno))
}

/// Sets the mode of the file of a socket. The file is opened once, without following a symbolic
/// link, and must be a socket of this process's user with one name.
///
/// # Errors
/// [`Error::System`] if it is another file, or a call fails.
pub(crate) fn set_mode_of_file(path: &Path, mode: u32) -> Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| Error::system("open of the socket", errno))?;
    let found = rustix::fs::fstat(&file).map_err(|errno| Error::system("fstat", errno))?;
    let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
    let own = rustix::process::geteuid().as_raw();
    if !is_socket || found.st_uid != own || found.st_nlink != 1 {
        // Another process has exchanged the file since `bind` made it.
        return Err(Error::system("open of the socket", Errno::STALE));
    }
    // SAFETY: the path is an empty, terminated string, and the other arguments are integers.
    let done = unsafe {
        libc::syscall(FCHMODAT2, file.as_raw_fd(), c"".as_ptr(), mode, AtFlags::EMPTY_PATH.bits())
    };
    if done == 0 {
        return Ok(());
    }
    // Before Linux 6.6, and under some filters, only `/proc` leads to the file of a descriptor.
    let refused = Error::last("fchmodat2");
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    match rustix::fs::chmod(link, Mode::from_raw_mode(mode)) {
        Ok(()) => Ok(()),
        Err(Errno::NOENT) if refused.errno() == libc::ENOSYS => Err(Error::InvalidAddress {
            address: path.display().to_string(),
            reason: "the umask removes permissions of its mode, and before Linux 6.6 only /proc \
                     leads to the socket without its name; mount /proc, or change the umask",
        }),
        Err(errno) => Err(Error::system("chmod", errno)),
    }
}

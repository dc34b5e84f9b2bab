//! The socket of a queue, which several processes hold: [`PyListener`].

#![allow(unsafe_code, reason = "a descriptor that the parent of this process passed")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::process::{Flock, FlockType, PidfdFlags, fcntl_getlk, pidfd_open};
use tontine::Error;
use tontine::mailbox::{ListenerCheck, Mailbox, MailboxOptions};

use crate::failure::exception;

/// Maximum number of producers that wait for a consumer; the kernel's own limit may be lower.
const BACKLOG: i32 = 4096;

/// A listening socket, which the processes that have a queue inherit.
///
/// The kernel keeps the connections of producers, with what they have put, while any process holds
/// the socket. One process at a time receives from it: the one with the POSIX record lock on the
/// socket, which a forked child does not inherit, and which the kernel releases when the process
/// ends. Closing any descriptor of the socket releases the lock, so a process has one `Listener`,
/// and duplicates its descriptor for the mailbox only.
#[pyclass(name = "Listener", module = "tontine._tontine", frozen)]
pub(crate) struct PyListener {
    socket: Mutex<Option<OwnedFd>>,
    name: Vec<u8>,
}

impl PyListener {
    /// Opens the mailbox of the process that receives.
    ///
    /// # Errors
    /// [`Error::AddrInUse`] with the process that receives; those of `Options::listen`.
    pub(crate) fn open(&self, options: &MailboxOptions) -> tontine::Result<Mailbox> {
        let socket = self.socket.lock();
        let address = || format!("@{}", self.name.escape_ascii());
        let socket = socket.as_ref().ok_or_else(|| Error::NoMailbox { address: address() })?;
        match fcntl_lock(socket, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => {
                let lock = fcntl_getlk(socket, &Flock::from(FlockType::WriteLock));
                let pid = lock.ok().flatten().and_then(|lock| lock.pid);
                let holder = pid.map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
                return Err(Error::AddrInUse { address: address(), holder });
            }
            Err(errno) => return Err(system("fcntl(F_SETLK)", errno)),
        }
        // If a step fails, closing the duplicate releases the lock.
        let duplicate =
            fcntl_dupfd_cloexec(socket, 3).map_err(|errno| system("fcntl(F_DUPFD)", errno))?;
        // From now on, producers that connect learn of the death of this process.
        listen(&duplicate, BACKLOG).map_err(|errno| system("listen", errno))?;
        options.listen(duplicate)
    }

    /// Returns what a producer's unaccepted lane depends on: the process that receives, which has
    /// called `listen`, and nothing while no other process receives.
    pub(crate) fn check(&self) -> ListenerCheck {
        let socket = self.socket.lock();
        let lock = |socket| fcntl_getlk(socket, &Flock::from(FlockType::WriteLock));
        match socket.as_ref().map(lock) {
            Some(Ok(None)) => ListenerCheck::Ignored,
            _ => ListenerCheck::Watched,
        }
    }

    /// Returns `true` while the process lives that receives, or received last; if none did, the one
    /// that made the socket.
    pub(crate) fn is_attended(&self) -> bool {
        let socket = self.socket.lock();
        let Some(Ok(process)) = socket.as_ref().map(socket_peercred) else { return false };
        let Ok(process) = pidfd_open(process.pid, PidfdFlags::empty()) else { return false };
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        poll(&mut ended, Some(&Timespec::default())) == Ok(0)
    }

    /// Lets another process receive.
    pub(crate) fn release(&self) {
        if let Some(socket) = &*self.socket.lock() {
            let _ = fcntl_lock(socket, FlockOperation::NonBlockingUnlock);
        }
    }
}

fn system(call: &'static str, errno: Errno) -> Error {
    Error::System { call, errno: errno.raw_os_error() }
}

/// Makes a socket that listens at a name in the abstract namespace.
fn open(name: &[u8]) -> tontine::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None);
    let socket = socket.map_err(|errno| system("socket", errno))?;
    let address = SocketAddrUnix::new_abstract_name(name);
    let address = address.map_err(|errno| system("bind", errno))?;
    bind(&socket, &address).map_err(|errno| system("bind", errno))?;
    listen(&socket, BACKLOG).map_err(|errno| system("listen", errno))?;
    Ok(socket)
}

#[pymethods]
impl PyListener {
    /// Makes the socket of an address, "@" and a name; or takes the socket with the descriptor
    /// `fd`, which this process has inherited.
    #[new]
    #[pyo3(signature = (address, fd = None))]
    fn new(py: Python<'_>, address: PathBuf, fd: Option<i32>) -> PyResult<Self> {
        let bytes = address.into_os_string().into_encoded_bytes();
        let name = bytes.strip_prefix(b"@").unwrap_or(&bytes).to_vec();
        let socket = match fd {
            None => open(&name),
            // SAFETY: the parent passed the descriptor to this process for this object only.
            Some(fd) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        };
        let socket = socket.and_then(|socket| {
            fcntl_setfd(&socket, FdFlags::CLOEXEC).map_err(|errno| system("fcntl", errno))?;
            Ok(socket)
        });
        let socket = socket.map_err(|error| exception(py, &error))?;
        Ok(Self { socket: Mutex::new(Some(socket)), name })
    }

    /// Returns the descriptor.
    ///
    /// Raises:
    ///     ValueError: The socket was closed.
    fn fileno(&self) -> PyResult<i32> {
        let socket = self.socket.lock();
        let socket = socket.as_ref().ok_or_else(|| PyValueError::new_err("the socket is closed"));
        socket.map(AsRawFd::as_raw_fd)
    }

    /// Returns whether a producer waits for a consumer.
    fn has_waiting(&self) -> bool {
        let socket = self.socket.lock();
        let Some(socket) = &*socket else { return false };
        let mut waiting = [PollFd::new(socket, PollFlags::IN)];
        poll(&mut waiting, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// Closes the socket. A connected producer is not affected while another process holds it.
    fn close(&self) {
        *self.socket.lock() = None;
    }
}

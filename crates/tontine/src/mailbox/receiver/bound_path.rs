//! The path of a mailbox: [`BoundPath`] takes it over, watches it, and gives it up.
//!
//! `docs/internals/recovery.md` lists the steps, and what a death between any two of them leaves.
//! The path lock keeps other owners away, and a question to the kernel keeps other programs'
//! sockets: a socket is replaced only if no process listens at it, or if the process that called
//! `listen` has ended, although a child that it forked may hold the listener. An owner binds its
//! socket under a temporary name, by which its listener is recognised. A program that binds the
//! path between that question and the rename is not noticed.
//!
//! A user who may write to the folder can exchange every name. So no call follows a symbolic link,
//! and the mode is set without a name.

use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::life::PathLock;
use crate::mailbox::address::{SocketId, file_id};
use crate::sys::socket::{self, ListenerProcess, ListenerSocket, Occupant, SocketPath};

/// Interval between two comparisons of the names with the files.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// A path with this mailbox's socket. Dropping it releases the path lock, after [`Self::unlink`].
#[derive(Debug)]
pub(super) struct BoundPath {
    path: PathBuf,
    socket: SocketId,
    lock: PathLock,
    looked: Instant,
    /// `true` once a lost name was reported.
    is_lost: bool,
}

impl BoundPath {
    /// Binds a socket at `path` with this mode, and makes it listen with a queue of `backlog`.
    /// Replaces the socket of a dead owner.
    ///
    /// The new socket is bound under a temporary name and listens before it is renamed over the old
    /// one, so that the path always leads to a socket.
    ///
    /// # Errors
    /// [`Error::AddrInUse`] if a live process owns the path or listens there,
    /// [`Error::InvalidAddress`] if the path is invalid or leads to another kind of file, or
    /// [`Error::SystemAt`].
    pub(super) fn bind(path: &Path, mode: u32, backlog: i32) -> Result<(ListenerSocket, Self)> {
        // The path is checked first, so that no lock file is created for a path that is invalid for
        // a socket.
        SocketPath::new(path)?;
        let lock = PathLock::acquire(path)?;
        match take_over(path, mode, backlog, &lock) {
            Ok((listener, socket)) => {
                let (path, looked) = (path.to_owned(), Instant::now());
                Ok((listener, Self { path, socket, lock, looked, is_lost: false }))
            }
            Err(error) => {
                lock.give_up();
                Err(error.at(path.display()))
            }
        }
    }

    /// Compares the names with the files, at most once a second. Returns an error once if the path
    /// or its lock file has been removed or replaced, since senders or other owners then go
    /// elsewhere.
    pub(super) fn look(&mut self) -> Option<Error> {
        if self.is_lost || self.looked.elapsed() < BETWEEN_LOOKS {
            return None;
        }
        self.looked = Instant::now();
        // A call that fails for another reason tells nothing.
        let what = if self.leads_here() == Ok(false) {
            "its socket"
        } else if self.lock.is_named() == Ok(false) {
            "its lock file"
        } else {
            return None;
        };
        self.is_lost = true;
        Some(Error::NameLost { address: self.path.display().to_string(), what })
    }

    /// Removes the socket, if the path still leads to it. The listener must be open: no other file
    /// has its inode then.
    pub(super) fn unlink(&self) {
        if self.leads_here() == Ok(true) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn leads_here(&self) -> Result<bool, ErrorKind> {
        match std::fs::symlink_metadata(&self.path).map_err(|error| error.kind()) {
            Ok(found) => Ok(file_id(&found) == self.socket),
            Err(ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            Err(kind) => Err(kind),
        }
    }
}

/// Listens at `path`, whose lock the caller holds.
fn take_over(
    path: &Path,
    mode: u32,
    backlog: i32,
    lock: &PathLock,
) -> Result<(ListenerSocket, SocketId)> {
    refuse_occupied(path, lock)?;
    let temporary = SocketPath::temporary(path)?;
    let new = temporary.as_path();
    // The path lock proves that the process that made a file with this name has ended.
    match std::fs::remove_file(new) {
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            let reason = "`bind` makes its socket under this name first, and found a folder; \
                          remove it or choose another path";
            return Err(Error::InvalidAddress { address: temporary.display().to_string(), reason });
        }
        // If the file cannot be removed, `bind` fails and returns the reason.
        _ => {}
    }
    let listener = ListenerSocket::new()?;
    socket::set_mode(&listener, mode)?;
    socket::bind_path(&listener, &temporary)?;
    let named = (|| {
        let lstat = || std::fs::symlink_metadata(new).map_err(|error| Error::io("lstat", &error));
        let mut file = lstat()?;
        if file.mode() & 0o777 != mode {
            // The kernel has applied the umask.
            socket::set_mode_of_file(new, mode)?;
            file = lstat()?;
        }
        socket::listen(&listener, backlog)?;
        std::fs::rename(new, path).map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => Error::InvalidAddress {
                address: path.display().to_string(),
                reason: "it is a mount point, over which no socket can be renamed; unmount it, or \
                         choose another path",
            },
            _ => Error::io("rename", &error),
        })?;
        Ok(file_id(&file))
    })();
    if named.is_err() {
        let _ = std::fs::remove_file(new);
    }
    named.map(|file| (listener, file))
}

/// Checks that no live process listens at `path`.
///
/// # Errors
/// [`Error::AddrInUse`] if one does, [`Error::InvalidAddress`] if the path leads to another kind of
/// file or the listener's process is unknown.
fn refuse_occupied(path: &Path, lock: &PathLock) -> Result<()> {
    let address = || path.display().to_string();
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            let reason = "expected a socket or nothing at this path, found another file; remove it \
                          or choose another path";
            return Err(Error::InvalidAddress { address: address(), reason });
        }
        Ok(_) => {}
        // A later call returns the reason, if it is not that there is no file.
        Err(_) => return Ok(()),
    }
    let process = match socket::occupant(path)? {
        Occupant::Vacant => return Ok(()),
        // The last owner did not remove its lock file, which this process has locked. So it has
        // ended, and at most a child that it forked holds its listener.
        Occupant::Owner(_) | Occupant::Full if lock.is_inherited() => return Ok(()),
        Occupant::Owner(process) | Occupant::Program(process) => process,
        Occupant::Full | Occupant::Unknown => ListenerProcess::Unknown,
    };
    match process {
        ListenerProcess::Ended => Ok(()),
        ListenerProcess::Live(holder) => Err(Error::AddrInUse { address: address(), holder }),
        ListenerProcess::Unknown => {
            let reason = "a process that the kernel does not name may listen at this path; remove \
                          the file if none does, or choose another path";
            Err(Error::InvalidAddress { address: address(), reason })
        }
    }
}

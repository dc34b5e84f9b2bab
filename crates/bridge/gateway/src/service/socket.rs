//! The status socket: [`StatusSocket`] answers each connection with the status as JSON, and
//! [`read_status`] asks for it.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use tontine::life::PathLock;
use tracing::warn;

use super::ServiceError;
use crate::status::{GatewayStatus, MAX_STATUS};

/// Maximum time that either side waits for the other.
pub const MAX_WAIT: Duration = Duration::from_secs(5);

/// Maximum number of answers that are written at the same time. Further connections are closed.
const MAX_ANSWERS: usize = 8;

/// Pause after a connection could not be accepted. Without it, a process without descriptors would
/// try again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The socket at which a gateway answers requests for its status. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
    answers: Arc<AtomicUsize>,
    /// Proves that no other gateway has the socket.
    _lock: PathLock,
}

impl StatusSocket {
    /// Binds the socket, for the gateway's user alone. The file of a gateway that has ended is
    /// replaced.
    ///
    /// # Errors
    /// [`ServiceError::AlreadyRuns`], with the process id, if the other gateway lives.
    pub(super) fn bind(path: &Path) -> Result<Self, ServiceError> {
        let lock = PathLock::acquire(path).map_err(|error| match error {
            tontine::Error::AddrInUse { holder, .. } => {
                ServiceError::AlreadyRuns { socket: path.to_owned(), pid: holder }
            }
            other => ServiceError::Lock(other),
        })?;
        let failed = |error| ServiceError::Status { socket: path.to_owned(), error };
        remove_socket(path).map_err(failed)?;
        let listener = listen_at(path).map_err(|errno| failed(errno.into()))?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), answers: Arc::default(), _lock: lock })
    }

    /// Answers all waiting connections. A thread writes each answer, so that a slow reader does not
    /// stop the gateway.
    pub(super) fn answer(&self, mut status: impl FnMut() -> GatewayStatus) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    warn!("cannot accept a request for the status: {error}");
                    thread::sleep(ACCEPT_PAUSE);
                    return;
                }
            };
            if self.answers.fetch_add(1, Ordering::Relaxed) >= MAX_ANSWERS {
                self.answers.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let json = status().to_json();
            let answers = Arc::clone(&self.answers);
            let write = move || {
                // The reader may have ended.
                let _ = write_answer(stream, &json);
                answers.fetch_sub(1, Ordering::Relaxed);
            };
            if let Err(error) = thread::Builder::new().name("status".into()).spawn(write) {
                self.answers.fetch_sub(1, Ordering::Relaxed);
                warn!("cannot start a thread for the status: {error}");
            }
        }
    }
}

impl AsFd for StatusSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the socket at the path, if there is one at which no process listens.
fn remove_socket(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;

    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match connect_at_once(path) {
            Err(Errno::CONNREFUSED) => fs::remove_file(path),
            _ => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another program may listen there; end it, or name another `status`",
            )),
        },
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "expected a socket or no file, found another file; remove it, or name another `status`",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Connects to the socket at the path, unless its queue is full.
fn connect_at_once(path: &Path) -> rustix::io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}

fn listen_at(path: &Path) -> rustix::io::Result<UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Linux gives the file the mode of the unbound socket, so no other user can connect first.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, 16)?;
    Ok(socket.into())
}

fn write_answer(mut stream: UnixStream, json: &str) -> io::Result<()> {
    // An accepted socket does not inherit the listener's `O_NONBLOCK`.
    stream.set_write_timeout(Some(MAX_WAIT))?;
    stream.write_all(json.as_bytes())
}

/// Returns the status of the gateway that listens at a path.
///
/// # Errors
/// [`StatusQueryError`] if no gateway listens there, or if it does not answer within [`MAX_WAIT`].
pub fn read_status(path: &Path) -> Result<GatewayStatus, StatusQueryError> {
    let failed = |error| StatusQueryError { socket: path.to_owned(), error };
    let mut text = Vec::new();
    UnixStream::connect(path)
        .and_then(|stream| {
            stream.set_read_timeout(Some(MAX_WAIT))?;
            stream.take(MAX_STATUS).read_to_end(&mut text)
        })
        .map_err(failed)?;
    GatewayStatus::from_json(&text)
        .map_err(|reason| failed(io::Error::new(io::ErrorKind::InvalidData, reason)))
}

/// The reason why a status cannot be read.
#[derive(Debug)]
pub struct StatusQueryError {
    /// The socket.
    pub socket: PathBuf,
    /// The reason.
    pub error: io::Error,
}

impl fmt::Display for StatusQueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (socket, error) = (self.socket.display(), &self.error);
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => write!(
                f,
                "no gateway listens at {socket}: {error}; start one (tontine bridge --config \
                 FILE), or name its configuration (--config) or its socket (--socket)"
            ),
            io::ErrorKind::PermissionDenied => {
                write!(f, "cannot ask the gateway at {socket}: {error}; run as the gateway's user")
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => write!(
                f,
                "the gateway at {socket} gave no answer within {} seconds; it may be stopped",
                MAX_WAIT.as_secs()
            ),
            _ => write!(f, "cannot read the status at {socket}: {error}"),
        }
    }
}

impl std::error::Error for StatusQueryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn status() -> GatewayStatus {
        let (peers, lanes) = (Vec::new(), Vec::new());
        let text = |text: &str| text.to_owned();
        GatewayStatus {
            name: text("hostA"),
            realm: text("default"),
            carrier: text("memory"),
            instance: text("1"),
            pid: 1,
            uptime_ms: 1,
            peers,
            lanes,
        }
    }

    /// Answers until the reader has read the status.
    fn read_from(socket: &StatusSocket) -> Result<GatewayStatus, StatusQueryError> {
        let path = socket.path.clone();
        let reader = thread::spawn(move || read_status(&path));
        while !reader.is_finished() {
            socket.answer(status);
            thread::sleep(Duration::from_millis(1));
        }
        reader.join().expect("no panic")
    }

    #[test]
    fn status_is_read_through_the_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("status");
        let socket = StatusSocket::bind(&path).expect("bound");
        let mode = fs::metadata(&path).expect("the socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for _ in 0..3 * MAX_ANSWERS {
            assert_eq!(read_from(&socket).expect("answered"), status());
        }
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn live_gateway_is_refused_and_left_file_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("status");
        // The file of a gateway that was killed.
        drop(UnixListener::bind(&path).expect("bound"));
        let socket = StatusSocket::bind(&path).expect("replaced");
        let error = StatusSocket::bind(&path).expect_err("one at a time").to_string();
        let pid = std::process::id();
        let start = format!("the gateway with process id {pid} has {}; stop it", path.display());
        assert!(error.starts_with(&start), "{error}");
        assert_eq!(read_from(&socket).expect("answered"), status());
    }

    /// Regression: a gateway replaced the live socket of another program.
    #[test]
    fn live_socket_of_another_program_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("status");
        let program = UnixListener::bind(&path).expect("binds");
        let refused = StatusSocket::bind(&path).expect_err("the program lives").to_string();
        assert!(refused.contains("another program may listen there"), "{refused}");
        UnixStream::connect(&path).expect("the program's socket");
        drop(program);
        StatusSocket::bind(&path).expect("no process listens any more");
    }

    #[test]
    fn other_file_at_the_path_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("status");
        fs::write(&path, "kept").expect("written");
        let error = StatusSocket::bind(&path).expect_err("a file").to_string();
        assert!(error.contains("expected a socket or no file, found another file"), "{error}");
        assert_eq!(fs::read(&path).expect("the file"), b"kept");
    }

    #[test]
    fn absent_and_garbled_gateways_are_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("status");
        let error = read_status(&path).expect_err("nothing there").to_string();
        let start = format!("no gateway listens at {}: No such file", path.display());
        assert!(error.starts_with(&start), "{error}");
        let listener = UnixListener::bind(&path).expect("bound");
        let writer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepted");
            stream.write_all(b"hello").expect("written");
        });
        let error = read_status(&path).expect_err("not JSON").to_string();
        assert!(error.contains("expected the status of a gateway of this version"), "{error}");
        writer.join().expect("no panic");
        let error = read_status(&path).expect_err("the listener has ended").to_string();
        assert!(error.starts_with("no gateway listens at"), "{error}");
    }
}

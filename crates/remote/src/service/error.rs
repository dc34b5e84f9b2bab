//! The reasons why a service ends: [`ServiceError`].

use std::fmt;
use std::io;
use std::path::PathBuf;

use tontine::signal::SignalError;

use crate::gateway::GatewayError;

/// The reason why a gateway cannot start, or cannot continue.
#[derive(Debug)]
pub enum ServiceError {
    /// The level of the log is unknown.
    LogLevel {
        /// The option or the variable that names the level; empty for neither.
        origin: &'static str,
        /// The level.
        level: String,
    },
    /// The handlers of SIGTERM and SIGINT cannot be installed.
    Signals(SignalError),
    /// A folder does not exist, and the gateway does not create it.
    NoFolder {
        /// The folder.
        folder: PathBuf,
        /// The socket that would lie in it.
        socket: PathBuf,
    },
    /// A folder cannot be created.
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Another gateway has this status socket.
    AlreadyRuns {
        /// The socket.
        socket: PathBuf,
        /// Process id of the other gateway, if it is known.
        pid: Option<u32>,
    },
    /// The lock of the status socket cannot be acquired.
    Lock(tontine::Error),
    /// The status socket cannot be bound.
    Status {
        /// The socket.
        socket: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The gateway cannot start.
    Gateway(GatewayError),
    /// The gateway cannot continue.
    Turn(io::Error),
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LogLevel { origin, level } => write!(
                f,
                "{origin}: expected off, error, warn, info, debug or trace; found {level:?}; \
                 change it"
            ),
            Self::Signals(error) => write!(f, "cannot install signal handlers: {error}"),
            Self::NoFolder { folder, socket } => write!(
                f,
                "{} needs the folder {folder}, which does not exist; create it for the gateway's \
                 user (only folders below /run/tontine are created): sudo install -d -o \"$USER\" \
                 {folder}",
                socket.display(),
                folder = folder.display()
            ),
            Self::Folder { folder, error } => write!(
                f,
                "cannot create the folder {}: {error}; create it for the gateway's user",
                folder.display()
            ),
            Self::AlreadyRuns { socket, pid } => {
                let socket = socket.display();
                match pid {
                    Some(pid) => write!(f, "the gateway with process id {pid} has {socket}")?,
                    None => write!(f, "another gateway has {socket}")?,
                }
                f.write_str("; stop it, or name another `status` in the configuration")
            }
            Self::Lock(error) => write!(f, "cannot lock the status socket: {error}"),
            Self::Status { socket, error } => {
                write!(f, "cannot bind the status socket {}: {error}", socket.display())
            }
            Self::Gateway(error) => error.fmt(f),
            Self::Turn(error) => write!(f, "the gateway cannot wait for events: {error}"),
        }
    }
}

impl std::error::Error for ServiceError {}

//! The reasons why a service ends: [`ServiceError`].

use std::io;
use std::path::PathBuf;

use tontine::signal::SignalError;

use crate::gateway::GatewayError;

/// The reason why a gateway cannot start, or cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The level of the log is unknown.
    #[error(
        "{origin}: expected off, error, warn, info, debug or trace; found {level:?}; change it"
    )]
    LogLevel {
        /// The option or the variable that names the level; empty for neither.
        origin: &'static str,
        /// The level.
        level: String,
    },
    /// The handlers of SIGTERM and SIGINT cannot be installed.
    #[error("cannot install signal handlers: {0}")]
    Signals(SignalError),
    /// A folder does not exist, and the gateway does not create it.
    #[error(
        "{} needs the folder {folder}, which does not exist; create it for the gateway's user \
         (only folders below /run/tontine are created): sudo install -d -o \"$USER\" {folder}",
        .socket.display(),
        folder = .folder.display()
    )]
    NoFolder {
        /// The folder.
        folder: PathBuf,
        /// The socket that would lie in it.
        socket: PathBuf,
    },
    /// A folder cannot be created.
    #[error(
        "cannot create the folder {}: {error}; create it for the gateway's user",
        .folder.display()
    )]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Another gateway has this status socket.
    #[error(
        "{} has {}; stop it, or name another `status` in the configuration",
        .pid.map_or("another gateway".into(), |pid| format!("the gateway with process id {pid}")),
        .socket.display()
    )]
    AlreadyRuns {
        /// The socket.
        socket: PathBuf,
        /// Process id of the other gateway, if it is known.
        pid: Option<u32>,
    },
    /// The lock of the status socket cannot be acquired.
    #[error("cannot lock the status socket: {0}")]
    Lock(tontine::Error),
    /// The status socket cannot be bound.
    #[error("cannot bind the status socket {}: {error}", .socket.display())]
    Status {
        /// The socket.
        socket: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The gateway cannot start.
    #[error("{0}")]
    Gateway(GatewayError),
    /// The gateway cannot continue.
    #[error("the gateway cannot wait for events: {0}")]
    Turn(io::Error),
}

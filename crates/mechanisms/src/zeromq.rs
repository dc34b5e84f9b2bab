//! ZeroMQ's sockets, and its errors as ours.

use std::path::Path;

use tontine_host::leftovers::Folder;
use tontine_host::trouble::{Result, Trouble};

/// A socket of that kind. It keeps its context alive.
///
/// # Errors
/// Skipped, where the system refuses what a socket needs.
pub fn socket(context: &zmq::Context, kind: zmq::SocketType) -> Result<zmq::Socket> {
    context.socket(kind).map_err(set_up("zmq_socket"))
}

/// The address of a socket in that folder.
pub fn endpoint_in(folder: &Folder) -> String {
    format!("ipc://{}", Path::join(folder.path(), "socket").display())
}

/// What an error of a call that sets up says.
pub fn set_up(call: &'static str) -> impl Fn(zmq::Error) -> Trouble {
    move |error| {
        let error = std::io::Error::from_raw_os_error(error.to_raw());
        Trouble::setting_up(call, error)
    }
}

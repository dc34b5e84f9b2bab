//! Messages to a service manager: [`Notifier`], the protocol of `sd_notify(3)`.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tracing::warn;

/// The service manager, if one waits for messages.
#[derive(Debug)]
pub(super) struct Notifier {
    socket: Option<UnixDatagram>,
    watches: bool,
}

impl Notifier {
    /// Connects to the socket that the environment names. A failure is logged, because the gateway
    /// works without it.
    pub(super) fn from_environment() -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|name| {
            connect(&name)
                .inspect_err(|error| warn!("cannot reach NOTIFY_SOCKET {name:?}: {error}"))
                .ok()
        });
        Self { socket, watches: env::var_os("WATCHDOG_USEC").is_some() }
    }

    /// Sends a message. The manager's timeouts report a lost one.
    pub(super) fn send(&mut self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            warn!("cannot send {message} to the service manager: {error}");
        }
    }

    /// Informs the manager's watchdog, if it has one, that the gateway makes progress.
    pub(super) fn keep_alive(&mut self) {
        if self.watches {
            self.send("WATCHDOG=1");
        }
    }
}

fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A manager that does not read must not stop the gateway.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_reach_path_and_abstract_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let name = format!("tontine-notify-{}", std::process::id());
        let at_path = UnixDatagram::bind(&path).expect("bound");
        let address = SocketAddr::from_abstract_name(&name).expect("an address");
        let at_name = UnixDatagram::bind_addr(&address).expect("bound");
        let texts = [(at_path, path.into_os_string()), (at_name, format!("@{name}").into())];
        for (receiver, text) in texts {
            let socket = Some(connect(&text).expect("connected"));
            let mut notifier = Notifier { socket, watches: true };
            notifier.send("READY=1");
            notifier.keep_alive();
            let mut bytes = [0; 64];
            for expected in ["READY=1", "WATCHDOG=1"] {
                let length = receiver.recv(&mut bytes).expect("received");
                assert_eq!(&bytes[..length], expected.as_bytes());
            }
        }
    }

    #[test]
    fn absent_manager_is_ignored() {
        Notifier { socket: None, watches: true }.keep_alive();
        assert!(connect(OsStr::new("/no/such/socket")).is_err());
    }
}

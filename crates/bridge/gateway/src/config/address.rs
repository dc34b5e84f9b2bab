//! The network address of a peer: [`HostPort`].

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A host, by name or by IP address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    /// Returns the name or the IP address of the host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the first IP address of the host. Blocks if the system has to ask a name server.
    ///
    /// # Errors
    /// Returns an error that names the host if the system finds no address.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        let mut found = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| io::Error::new(error.kind(), format!("{self}: {error}")))?;
        found.next().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("{self}: the host has no address"))
        })
    }
}

/// Accepts `name:port`, `127.0.0.1:port` and `[::1]:port`.
impl FromStr for HostPort {
    type Err = InvalidHostPort;

    fn from_str(text: &str) -> Result<Self, InvalidHostPort> {
        let address = match SocketAddr::from_str(text) {
            Ok(address) => Self { host: address.ip().to_string(), port: address.port() },
            Err(_) => {
                let (host, port) = text.rsplit_once(':').ok_or(InvalidHostPort)?;
                let port = port.parse().map_err(|_| InvalidHostPort)?;
                if !is_host_name(host) {
                    return Err(InvalidHostPort);
                }
                Self { host: host.to_owned(), port }
            }
        };
        if address.port == 0 { Err(InvalidHostPort) } else { Ok(address) }
    }
}

fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            && !label.starts_with('-')
    };
    // A name whose last part is a number would be a mistyped IPv4 address.
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253
        && text.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Error of a text that is not a [`HostPort`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected HOST:PORT with a port from 1 to 65535, like 192.0.2.7:7447")]
pub struct InvalidHostPort;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_address_is_written_as_it_was_read() {
        for text in ["127.0.0.1:7447", "[::1]:1", "host-b.example:65535", "hostB:7447", "a_b:1"] {
            let address: HostPort = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        let address: HostPort = "127.0.0.2:7447".parse().expect("an address");
        assert_eq!(address.resolve().expect("no name server"), ([127, 0, 0, 2], 7447).into());
    }

    #[test]
    fn invalid_address_is_refused() {
        for text in [
            "",
            ":1",
            "a",
            "a:",
            "a:0",
            "a:65536",
            "a:-1",
            "a b:1",
            "127.0.0.999:1",
            "1:1",
            "::1:1",
            "-a:1",
            "a..b:1",
            "tcp/a:1",
        ] {
            assert_eq!(text.parse::<HostPort>(), Err(InvalidHostPort), "{text}");
        }
    }
}

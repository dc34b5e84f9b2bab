//! The configuration of a gateway: [`Config`], read from a TOML file.
//!
//! [`Config::read`] reports every mistake of the file, each with its line, column and key, and not
//! only the first. `reader` parses the text and checks types, `check` checks what the values mean,
//! and `address` holds [`HostPort`]. A configuration creates nothing: `crate::service` and the
//! gateway do.

mod address;
mod check;
mod reader;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tontine::mailbox::Address;

pub use address::HostPort;

use crate::link::HostId;

/// Path of the status socket if the file names none.
pub const DEFAULT_STATUS: &str = "/run/tontine/bridge.status";
/// Name of the realm if the file names none.
pub const DEFAULT_REALM: &str = "default";
/// Maximum number of bytes of a configuration file.
pub const MAX_FILE: u64 = 1 << 20;
/// Maximum number of peers of one gateway.
pub const MAX_PEERS: usize = 1000;

/// The configuration of one gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Name of this host.
    pub name: String,
    /// Name of the realm. Gateways of different realms ignore each other.
    pub realm: String,
    /// Addresses at which the carrier listens.
    pub listen: Vec<SocketAddr>,
    /// Path of the status socket.
    pub status: PathBuf,
    /// Permissions of the sockets of the imports.
    pub mode: u32,
    /// Users, besides the gateway's own, that may send into the imports.
    pub allowed_uids: Vec<u32>,
    /// Users, besides the gateway's own, whose processes may own the exported mailboxes.
    pub owner_uids: Vec<u32>,
    /// Maximum number of bytes in a lane, if the file sets it.
    pub lane_cap: Option<u64>,
    /// Maximum number of lanes of a mailbox, if the file sets it.
    pub max_lanes: Option<usize>,
    /// The other hosts. A [`HostId`] is an index into this list.
    pub peers: Vec<PeerConfig>,
    /// Local mailboxes to which the peers may send.
    pub exports: Vec<ExportConfig>,
    /// Mailboxes of peers to which local programs may send.
    pub imports: Vec<ImportConfig>,
    /// Settings of the carrier Zenoh.
    pub zenoh: ZenohConfig,
    /// Oddities that are not mistakes, one sentence each.
    pub warnings: Vec<String>,
}

/// Another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerConfig {
    /// Name of the host.
    pub name: String,
    /// Address that this gateway dials. `None` if the peer dials this gateway.
    pub connect: Option<HostPort>,
    /// Duration of silence after which a lane to the peer ends with `EHOSTUNREACH`. `None`: never.
    pub unreachable_after: Option<Duration>,
}

/// A local mailbox to which the peers may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportConfig {
    /// Name by which peers call the mailbox.
    pub name: String,
    /// Address of the mailbox on this host.
    pub address: Address,
}

/// A mailbox of a peer, to which local programs send at an address of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportConfig {
    /// The peer.
    pub host: HostId,
    /// Name by which the peer exports the mailbox.
    pub name: String,
    /// Address that the gateway binds on this host.
    pub address: Address,
}

/// Settings of the carrier Zenoh. All three files are needed for an encrypted connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZenohConfig {
    /// File with the certificate of the authority that signed the peers' certificates.
    pub ca: Option<PathBuf>,
    /// File with this gateway's certificate.
    pub certificate: Option<PathBuf>,
    /// File with the private key of the certificate.
    pub private_key: Option<PathBuf>,
    /// Name and address of each router. With routers, this gateway reaches all peers through one of
    /// them, and neither listens nor dials a peer.
    pub routers: Vec<(String, HostPort)>,
}

impl Config {
    /// Returns the configuration of a host without peers, exports and imports.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            realm: DEFAULT_REALM.into(),
            listen: Vec::new(),
            status: DEFAULT_STATUS.into(),
            mode: 0o600,
            allowed_uids: Vec::new(),
            owner_uids: Vec::new(),
            lane_cap: None,
            max_lanes: None,
            peers: Vec::new(),
            exports: Vec::new(),
            imports: Vec::new(),
            zenoh: ZenohConfig::default(),
            warnings: Vec::new(),
        }
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`ConfigError::Unreadable`] if the file cannot be read; [`ConfigError::Invalid`], with every
    /// mistake, if it is not a configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |error| ConfigError::Unreadable { path: path.to_owned(), error };
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
            .map_err(unreadable)?;
        if bytes.len() as u64 > MAX_FILE {
            let text = format!("the file has more than {MAX_FILE} bytes");
            return Err(unreadable(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        let invalid = |mistakes| ConfigError::Invalid { path: path.to_owned(), mistakes };
        match std::str::from_utf8(&bytes) {
            Ok(text) => Self::parse(text).map_err(invalid),
            Err(error) => {
                let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
                let (line, column) = reader::position(&valid, valid.len());
                let text = "expected UTF-8, found a byte that is not; save the file as UTF-8";
                Err(invalid(vec![ConfigMistake {
                    line,
                    column,
                    key: String::new(),
                    text: text.into(),
                }]))
            }
        }
    }

    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// Returns every mistake, in the order of the text.
    pub fn parse(text: &str) -> Result<Self, Vec<ConfigMistake>> {
        check::check(text)
    }

    /// Returns what `--check` prints: the host, its realm, and the numbers of peers, exports and
    /// imports.
    pub fn summary(&self) -> String {
        let count = |count: usize, noun: &str| match count {
            1 => format!("1 {noun}"),
            _ => format!("{count} {noun}s"),
        };
        format!(
            "host {} of realm {} with {}, {} and {}",
            self.name,
            self.realm,
            count(self.peers.len(), "peer"),
            count(self.exports.len(), "export"),
            count(self.imports.len(), "import"),
        )
    }

    /// Returns the peer of that name.
    pub fn host(&self, name: &str) -> Option<HostId> {
        let at = self.peers.iter().position(|peer| peer.name == name)?;
        u16::try_from(at).ok().map(HostId)
    }

    /// Returns the settings of a peer.
    ///
    /// # Panics
    /// Panics if the configuration has no such peer.
    pub fn peer(&self, host: HostId) -> &PeerConfig {
        &self.peers[usize::from(host.0)]
    }
}

/// A mistake in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMistake {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Key with the names of its tables (`peers.hostB.connect`). Empty if the text cannot be parsed
    /// at this position.
    pub key: String,
    /// The mistake, and how to fix it.
    pub text: String,
}

impl fmt::Display for ConfigMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.text)
    }
}

/// The reason why a file is not a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}; name a readable configuration file", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        error: io::Error,
    },
    /// The file has mistakes.
    #[error("{}", lines(.path, .mistakes))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// All mistakes, in the order of the file.
        mistakes: Vec<ConfigMistake>,
    },
}

/// Returns one line per mistake, each with the path of the file.
fn lines(path: &Path, mistakes: &[ConfigMistake]) -> String {
    let lines: Vec<String> =
        mistakes.iter().map(|mistake| format!("{}:{mistake}", path.display())).collect();
    lines.join("\n")
}

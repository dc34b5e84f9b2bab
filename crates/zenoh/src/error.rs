//! Errors of this package: [`ZenohError`].

use std::path::PathBuf;

/// The reason why a link cannot be opened, or certificates cannot be made.
#[derive(Debug)]
pub enum ZenohError {
    /// A name of a host or realm has characters that a key or a certificate cannot have.
    InvalidName(String),
    /// A name that hosts prove by certificates has a dot.
    DottedName(String),
    /// Two hosts have this name.
    DuplicateName(String),
    /// The endpoint is not `quic/HOST:PORT`, `tcp/HOST:PORT` or `HOST:PORT`.
    InvalidEndpoint(String),
    /// The endpoint's protocol is `tls/`.
    TlsEndpoint(String),
    /// The endpoint's protocol has no cipher, and other hosts reach it.
    Plaintext(String),
    /// The endpoint's protocol needs certificates, and there are none.
    NoCertificates(String),
    /// There are certificates, and the endpoint's protocol does not use them.
    UnusedCertificates(String),
    /// The endpoint is one to listen at, and peers are reached through routers.
    ListensWithRouters(String),
    /// The endpoint is one of a peer to connect to, and peers are reached through routers.
    ConnectsWithRouters(String),
    /// The file has no part in PEM format with this label.
    NotPem(PathBuf, &'static str),
    /// The file exists already.
    FileExists(PathBuf),
    /// The file cannot be read or written.
    File(PathBuf, std::io::Error),
    /// A certificate cannot be made.
    Certificate(String),
    /// The kernel refuses a resource.
    System(std::io::Error),
    /// Zenoh refuses an endpoint or a setting.
    Zenoh(String),
}

impl std::error::Error for ZenohError {}

impl ZenohError {
    /// Returns `true` if only a change of the options or of the named files helps. The other errors
    /// may be transient.
    pub fn is_invalid_input(&self) -> bool {
        match self {
            Self::InvalidName(_)
            | Self::DottedName(_)
            | Self::DuplicateName(_)
            | Self::InvalidEndpoint(_)
            | Self::TlsEndpoint(_)
            | Self::Plaintext(_)
            | Self::NoCertificates(_)
            | Self::UnusedCertificates(_)
            | Self::ListensWithRouters(_)
            | Self::ConnectsWithRouters(_)
            | Self::NotPem(..) => true,
            Self::FileExists(_)
            | Self::File(..)
            | Self::Certificate(_)
            | Self::System(_)
            | Self::Zenoh(_) => false,
        }
    }
}

impl std::fmt::Display for ZenohError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InvalidName(name) => write!(
                f,
                "expected a name of 1 to 63 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`; \
                 found {name:?}"
            ),
            Self::DottedName(name) => write!(
                f,
                "{name:?}: with certificates, expected names without dots, because public \
                 authorities cannot sign those"
            ),
            Self::DuplicateName(name) => write!(f, "two hosts have the name {name:?}"),
            Self::InvalidEndpoint(endpoint) => write!(
                f,
                "expected an endpoint quic/HOST:PORT, tcp/HOST:PORT or HOST:PORT, found \
                 {endpoint:?}"
            ),
            Self::TlsEndpoint(endpoint) => write!(
                f,
                "{endpoint}: Zenoh 1.10.2 stalls over tls/ while both sides send; use quic/, which \
                 takes the same certificates"
            ),
            Self::Plaintext(endpoint) => write!(
                f,
                "{endpoint}: not a loopback address, and tcp/ has neither a cipher nor proof of \
                 the sender; use quic/ with certificates, or --plaintext in a trusted network"
            ),
            Self::NoCertificates(endpoint) => write!(
                f,
                "{endpoint}: quic/ needs `ca`, `certificate` and `private_key` under [zenoh]; make \
                 them with: tontine-bridge-zenoh certificates"
            ),
            Self::UnusedCertificates(endpoint) => write!(
                f,
                "{endpoint}: with certificates, hosts are known by them, and tcp/ has none; use \
                 quic/ or remove `ca`, `certificate` and `private_key`"
            ),
            Self::ListensWithRouters(endpoint) => write!(
                f,
                "{endpoint}: a host that reaches its peers through routers does not listen; remove \
                 the endpoint or the routers"
            ),
            Self::ConnectsWithRouters(endpoint) => write!(
                f,
                "{endpoint}: a host that reaches its peers through routers does not connect to \
                 them; remove the peer's `connect` or the routers"
            ),
            Self::NotPem(path, label) => write!(
                f,
                "{}: expected a file in PEM format with a {label}, found none in it",
                path.display()
            ),
            Self::FileExists(path) => write!(
                f,
                "{}: exists already; remove it, or choose another folder with --out",
                path.display()
            ),
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Certificate(reason) => write!(f, "cannot make a certificate: {reason}"),
            Self::System(error) => write!(f, "the kernel refuses a resource: {error}"),
            Self::Zenoh(reason) => write!(f, "Zenoh: {reason}"),
        }
    }
}

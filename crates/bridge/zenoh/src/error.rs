//! Errors of this package: [`ZenohError`].

use std::path::PathBuf;

use thiserror::Error;

/// The reason why a link cannot be opened, or certificates cannot be made. The text of each reason
/// says what was expected, and what to do.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the texts document the reasons")]
pub enum ZenohError {
    #[error(
        "expected a name of 1 to 63 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`; found {0:?}"
    )]
    InvalidName(String),
    #[error(
        "{0:?}: with certificates, expected names without dots, because public authorities cannot \
         sign those"
    )]
    DottedName(String),
    #[error("two hosts have the name {0:?}")]
    DuplicateName(String),
    #[error("expected an endpoint quic/HOST:PORT, tcp/HOST:PORT or HOST:PORT, found {0:?}")]
    InvalidEndpoint(String),
    #[error(
        "{0}: Zenoh 1.10.2 stalls over tls/ while both sides send; use quic/, which takes the same \
         certificates"
    )]
    TlsEndpoint(String),
    #[error(
        "{0}: not a loopback address, and tcp/ has neither a cipher nor proof of the sender; use \
         quic/ with certificates, or --plaintext in a trusted network"
    )]
    Plaintext(String),
    #[error(
        "{0}: quic/ needs `ca`, `certificate` and `private_key` under [zenoh]; make them with: \
         tontine-bridge-zenoh certificates"
    )]
    NoCertificates(String),
    #[error(
        "{0}: with certificates, hosts are known by them, and tcp/ has none; use quic/ or remove \
         `ca`, `certificate` and `private_key`"
    )]
    UnusedCertificates(String),
    #[error(
        "{0}: a host that reaches its peers through routers does not listen; remove the endpoint \
         or the routers"
    )]
    ListensWithRouters(String),
    #[error(
        "{0}: a host that reaches its peers through routers does not connect to them; remove the \
         peer's `connect` or the routers"
    )]
    ConnectsWithRouters(String),
    #[error("{}: expected a file in PEM format with a {}, found none in it", .0.display(), .1)]
    NotPem(PathBuf, &'static str),
    #[error("{}: exists already; remove it, or choose another folder with --out", .0.display())]
    FileExists(PathBuf),
    /// The file cannot be read or written.
    #[error("{}: {}", .0.display(), .1)]
    File(PathBuf, std::io::Error),
    #[error("cannot make a certificate: {0}")]
    Certificate(String),
    #[error("the kernel refuses a resource: {0}")]
    System(std::io::Error),
    /// Zenoh refuses an endpoint or a setting.
    #[error("Zenoh: {0}")]
    Zenoh(String),
}

impl ZenohError {
    /// Returns `true` if only a change of the options or of the named files helps. The other errors
    /// may be transient.
    pub fn is_invalid_input(&self) -> bool {
        let may_pass = matches!(
            self,
            Self::FileExists(_)
                | Self::File(..)
                | Self::Certificate(_)
                | Self::System(_)
                | Self::Zenoh(_)
        );
        !may_pass
    }
}

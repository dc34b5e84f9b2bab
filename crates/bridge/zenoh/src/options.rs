//! Names and endpoints of a link, and their validation: [`ZenohOptions`].

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tontine_gateway::config::{Config, ZenohConfig};

use crate::ZenohError;

/// Maximum number of bytes of a file in PEM format that are examined.
const MAX_PEM: u64 = 1 << 20;

/// Files in PEM format, by which hosts prove their names to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificates {
    /// Certificate of the realm's authority.
    pub ca: PathBuf,
    /// Certificate of this host. Its common name is the host's name.
    pub certificate: PathBuf,
    /// Private key of this host.
    pub private_key: PathBuf,
}

/// Names and endpoints of a link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZenohOptions {
    /// Name of this host.
    pub name: String,
    /// Name of the realm. Gateways of different realms do not hear each other.
    pub realm: String,
    /// Names of the other hosts. A [`tontine_gateway::link::HostId`] is an index into this list.
    pub peers: Vec<String>,
    /// Names of the routers, as in their certificates. With routers, this host reaches all peers
    /// through one of them: `connect` has an endpoint for each router and no other, and `listen` is
    /// empty.
    pub routers: Vec<String>,
    /// Endpoints at which peers reach this host.
    pub listen: Vec<String>,
    /// Endpoints of peers, or of routers, to which this host connects. One of two peers connects.
    pub connect: Vec<String>,
    /// Certificates. With them, all endpoints are `quic/`.
    pub tls: Option<Certificates>,
    /// Permits endpoints without a cipher on other addresses than loopback.
    pub plaintext: bool,
}

impl ZenohOptions {
    /// Returns the options of a gateway. Its endpoints are `quic/` if it has certificates, and
    /// `tcp/` otherwise.
    pub fn from_config(config: &Config, plaintext: bool) -> Self {
        let tls = match &config.zenoh {
            ZenohConfig {
                ca: Some(ca),
                certificate: Some(certificate),
                private_key: Some(private_key),
                ..
            } => Some(Certificates {
                ca: ca.clone(),
                certificate: certificate.clone(),
                private_key: private_key.clone(),
            }),
            _ => None,
        };
        let protocol = if tls.is_some() { "quic" } else { "tcp" };
        let routers = &config.zenoh.routers;
        let peers = config.peers.iter().filter_map(|peer| peer.connect.as_ref());
        let connect = routers.iter().map(|router| &router.1).chain(peers);
        Self {
            name: config.name.clone(),
            realm: config.realm.clone(),
            peers: config.peers.iter().map(|peer| peer.name.clone()).collect(),
            routers: routers.iter().map(|router| router.0.clone()).collect(),
            listen: config.listen.iter().map(|at| format!("{protocol}/{at}")).collect(),
            connect: connect.map(|at| format!("{protocol}/{at}")).collect(),
            tls,
            plaintext,
        }
    }

    /// Returns all mistakes: those in names and endpoints, and files that cannot be read or are not
    /// in PEM format.
    pub fn mistakes(&self) -> Vec<ZenohError> {
        let mut mistakes = self.invalid_options();
        if let Some(tls) = &self.tls {
            let certificate = "CERTIFICATE";
            let files = [
                (&tls.ca, certificate),
                (&tls.certificate, certificate),
                (&tls.private_key, "PRIVATE KEY"),
            ];
            mistakes.extend(files.into_iter().filter_map(|(path, label)| check_pem(path, label)));
        }
        mistakes
    }

    fn invalid_options(&self) -> Vec<ZenohError> {
        let mut mistakes: Vec<_> = check_name(&self.realm).err().into_iter().collect();
        let names = [&self.name].into_iter().chain(&self.peers).chain(&self.routers);
        let names: Vec<&String> = names.collect();
        for (index, name) in names.iter().enumerate() {
            mistakes.extend(check_name(name).err());
            // Zenoh also accepts servers whose certificates public authorities have signed. These
            // sign only names with dots.
            if self.tls.is_some() && name.contains('.') {
                mistakes.push(ZenohError::DottedName(name.to_string()));
            }
            if names[..index].contains(name) {
                mistakes.push(ZenohError::DuplicateName(name.to_string()));
            }
        }
        let endpoints = self.connect.iter().chain(&self.listen);
        mistakes.extend(endpoints.filter_map(|endpoint| self.endpoint(endpoint).err()));
        if !self.routers.is_empty() {
            let peers = self.connect.iter().skip(self.routers.len()).cloned();
            mistakes.extend(peers.map(ZenohError::ConnectsWithRouters));
            mistakes.extend(self.listen.iter().cloned().map(ZenohError::ListensWithRouters));
        }
        mistakes
    }

    /// Returns the endpoints as Zenoh writes them.
    pub(crate) fn endpoints(&self, endpoints: &[String]) -> Result<Vec<String>, ZenohError> {
        endpoints.iter().map(|endpoint| self.endpoint(endpoint)).collect()
    }

    fn endpoint(&self, endpoint: &str) -> Result<String, ZenohError> {
        let invalid = || ZenohError::InvalidEndpoint(endpoint.to_owned());
        let (protocol, address) = endpoint.split_once('/').unwrap_or(("tcp", endpoint));
        if protocol == "tls" {
            return Err(ZenohError::TlsEndpoint(endpoint.to_owned()));
        }
        // Zenoh would take settings of the connection from what follows one of these characters.
        if address.contains(['/', '?', '#', ';', ' ']) {
            return Err(invalid());
        }
        let (host, port) = address.rsplit_once(':').ok_or_else(invalid)?;
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(invalid());
        }
        match (protocol, &self.tls) {
            ("quic", Some(_)) => {}
            ("quic", None) => return Err(ZenohError::NoCertificates(endpoint.to_owned())),
            ("tcp", Some(_)) => return Err(ZenohError::UnusedCertificates(endpoint.to_owned())),
            ("tcp", None) if self.plaintext || is_loopback(host) => {}
            ("tcp", None) => return Err(ZenohError::Plaintext(endpoint.to_owned())),
            _ => return Err(invalid()),
        }
        Ok(format!("{protocol}/{address}"))
    }
}

/// Checks a name of a host or realm: all of these can be part of a key and of a certificate.
pub(crate) fn check_name(name: &str) -> Result<(), ZenohError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=63).contains(&name.len()) && name.bytes().all(is_allowed) {
        Ok(())
    } else {
        Err(ZenohError::InvalidName(name.to_owned()))
    }
}

/// Returns the mistake in a file in PEM format, if it has one. Zenoh's own error would come only
/// when it connects, and would not name the file.
fn check_pem(path: &Path, label: &'static str) -> Option<ZenohError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_PEM).read_to_end(&mut bytes));
    if let Err(error) = read {
        return Some(ZenohError::File(path.to_owned(), error));
    }
    let text = String::from_utf8_lossy(&bytes);
    // Keys have the labels PRIVATE KEY, EC PRIVATE KEY or RSA PRIVATE KEY.
    let is_header =
        |line: &str| line.starts_with("-----BEGIN ") && line.ends_with(&format!("{label}-----"));
    let found = text.lines().any(|line| is_header(line.trim_end()));
    (!found).then(|| ZenohError::NotPem(path.to_owned(), label))
}

fn is_loopback(host: &str) -> bool {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn options(listen: &str) -> ZenohOptions {
        ZenohOptions {
            name: "here".into(),
            realm: "plant".into(),
            peers: vec!["there".into()],
            listen: vec![listen.into()],
            ..ZenohOptions::default()
        }
    }

    fn secured(listen: &str) -> ZenohOptions {
        let file = PathBuf::from("file");
        let tls = Certificates { ca: file.clone(), certificate: file.clone(), private_key: file };
        ZenohOptions { tls: Some(tls), ..options(listen) }
    }

    fn refusals(options: &ZenohOptions) -> Vec<String> {
        options.invalid_options().iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn refusal(options: &ZenohOptions) -> String {
        let mut refusals = refusals(options);
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        refusals.remove(0)
    }

    #[test]
    fn endpoints_need_cipher_and_known_protocol() {
        let plain = options("127.0.0.1:7");
        assert_eq!(plain.endpoints(&plain.listen).expect("valid"), ["tcp/127.0.0.1:7"]);
        for endpoint in ["localhost:7", "tcp/127.8.0.1:7", "[::1]:7", "tcp/[::1]:7"] {
            assert_eq!(refusals(&options(endpoint)), [""; 0]);
        }
        for endpoint in ["0.0.0.0:7", "tcp/[::]:7", "hostb:7", "localhost.example:7"] {
            let text = refusal(&options(endpoint));
            assert!(text.starts_with(endpoint) && text.contains("--plaintext"), "{text}");
            let plaintext = ZenohOptions { plaintext: true, ..options(endpoint) };
            assert_eq!(refusals(&plaintext), [""; 0]);
        }
        assert_eq!(refusals(&secured("quic/hostb:7")), [""; 0]);
        for (options, part) in [
            (options("quic/hostb:7"), "private_key"),
            (secured("tcp/127.0.0.1:7"), "use quic/"),
            (options("tls/127.0.0.1:7"), "use quic/"),
            (secured("tls/hostb:7"), "use quic/"),
        ] {
            let text = refusal(&options);
            assert!(text.contains(part), "{text}");
        }
        let endpoints = ["quic/hostb", "quic/:7", "quic/hostb:x", "udp/hostb:7", "quic/b:7#a=b"];
        for endpoint in endpoints.into_iter().chain(["quic/b:7?rel=0", "quic/b:70000", ""]) {
            assert!(refusal(&secured(endpoint)).contains("expected an endpoint"), "{endpoint}");
        }
    }

    #[test]
    fn names_are_short_and_distinct() {
        for name in ["", "a/b", "*", "a b", &"a".repeat(64)] {
            let options = ZenohOptions { name: name.into(), ..options("localhost:7") };
            assert!(refusal(&options).contains("1 to 63"), "{name}");
        }
        assert!(check_name(&"a".repeat(63)).is_ok());
        let named = ZenohOptions { name: "there".into(), ..options("localhost:7") };
        assert!(refusal(&named).contains("\"there\""));
        let dotted = |options| ZenohOptions { name: "a.b".into(), ..options };
        assert_eq!(refusals(&dotted(options("localhost:7"))), [""; 0], "no certificates");
        assert!(refusal(&dotted(secured("quic/hostb:7"))).contains("without dots"));
    }

    #[test]
    fn host_with_routers_neither_listens_nor_dials_peers() {
        let text = r#"
            name = "a"
            [peers.b]
            [zenoh.routers]
            hub = "127.0.0.3:7"
        "#;
        let config = Config::parse(text).expect("valid");
        let mut options = ZenohOptions::from_config(&config, false);
        options.connect.push("tcp/127.0.0.2:7".into());
        assert!(refusal(&options).contains("tcp/127.0.0.2:7: a host that reaches its peers"));
        options.listen.push("localhost:7".into());
        let all = refusals(&options);
        assert!(all.len() == 2 && all[1].starts_with("localhost:7"), "{all:?}");
        options.connect.pop();
        assert!(refusal(&options).starts_with("localhost:7"));
    }

    #[test]
    fn all_mistakes_are_reported() {
        let options = ZenohOptions {
            name: "there".into(),
            peers: vec!["there".into(), "c.d".into()],
            ..secured("tcp/hostb:7")
        };
        let all = refusals(&options);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[0].contains("\"there\"") && all[1].contains("\"c.d\""), "{all:?}");
        assert_eq!(options.mistakes().len(), 6, "three files are missing");
    }

    #[test]
    fn files_without_pem_are_mistakes() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("written");
            folder.path().join(name)
        };
        let tls = Certificates {
            ca: folder.path().to_owned(),
            certificate: write("a.pem", "-----BEGIN CERTIFICATE-----\r\nAAAA\r\n"),
            private_key: write("a.key", "-----BEGIN CERTIFICATE-----\n"),
        };
        let options = ZenohOptions { tls: Some(tls), ..secured("quic/hostb:7") };
        let mistakes: Vec<String> = options.mistakes().iter().map(ToString::to_string).collect();
        assert_eq!(mistakes.len(), 2, "{mistakes:?}");
        assert!(mistakes[0].contains("directory"), "{mistakes:?}");
        assert!(mistakes[1].contains("a.key") && mistakes[1].contains("PRIVATE KEY"));
        write("a.key", "-----BEGIN EC PRIVATE KEY-----\n");
        assert_eq!(options.mistakes().len(), 1);
    }

    #[test]
    fn configuration_with_certificates_uses_quic() {
        let text = r#"
            name = "a"
            realm = "plant"
            listen = ["0.0.0.0:7447"]
            [peers.b]
            connect = "b:7447"
            [peers.c]
        "#;
        let plain = ZenohOptions::from_config(&Config::parse(text).expect("valid"), false);
        assert_eq!(plain.listen, ["tcp/0.0.0.0:7447"]);
        let without_cipher = refusals(&plain);
        assert_eq!(without_cipher.len(), 2, "{without_cipher:?}");
        assert!(without_cipher.iter().all(|text| text.contains("--plaintext")));
        let files = "[zenoh]\nca = '/ca.pem'\ncertificate = '/a.pem'\nprivate_key = '/a.key'\n";
        let config = Config::parse(&(text.to_owned() + files)).expect("valid");
        let secured = ZenohOptions::from_config(&config, false);
        assert_eq!(refusals(&secured), [""; 0]);
        assert_eq!(secured.peers, ["b", "c"]);
        assert_eq!((secured.listen, secured.connect.len()), (vec!["quic/0.0.0.0:7447".into()], 1));
        assert_eq!(secured.connect, ["quic/b:7447"]);
        assert_eq!(secured.tls.expect("certificates").private_key, Path::new("/a.key"));
    }
}

//! Names and endpoints of a link, and their validation: [`ZenohOptions`].

use std::net::IpAddr;
use std::path::PathBuf;

use tontine_remote::config::{Config, ZenohConfig};

use crate::ZenohError;

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
    /// Names of the other hosts. A [`tontine_remote::link::HostId`] is an index into this list.
    pub peers: Vec<String>,
    /// Names of the routers, as in their certificates. With routers, this host reaches all peers
    /// through one of them: `connect` has the routers' endpoints, and `listen` is empty.
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
        let peers = peers.filter(|_| routers.is_empty());
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

    /// Checks all names and endpoints.
    pub(crate) fn validate(&self) -> Result<(), ZenohError> {
        check_name(&self.realm)?;
        let names = [&self.name].into_iter().chain(&self.peers).chain(&self.routers);
        let names: Vec<&String> = names.collect();
        for (index, name) in names.iter().enumerate() {
            check_name(name)?;
            // Zenoh also accepts servers whose certificates public authorities have signed. These
            // sign only names with dots.
            if self.tls.is_some() && name.contains('.') {
                return Err(ZenohError::DottedName(name.to_string()));
            }
            if names[..index].contains(name) {
                return Err(ZenohError::DuplicateName(name.to_string()));
            }
        }
        self.endpoints(&self.connect)?;
        match self.endpoints(&self.listen)?.first() {
            Some(endpoint) if !self.routers.is_empty() => {
                Err(ZenohError::ListensWithRouters(endpoint.clone()))
            }
            _ => Ok(()),
        }
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
    if (1..=64).contains(&name.len()) && name.bytes().all(is_allowed) {
        Ok(())
    } else {
        Err(ZenohError::InvalidName(name.to_owned()))
    }
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

    fn refusal(options: &ZenohOptions) -> String {
        options.validate().expect_err("refused").to_string()
    }

    #[test]
    fn plain_address_is_tcp() {
        let options = options("127.0.0.1:7");
        assert_eq!(options.endpoints(&options.listen).expect("valid"), ["tcp/127.0.0.1:7"]);
    }

    #[test]
    fn loopback_endpoints_need_no_cipher() {
        for endpoint in ["localhost:7", "tcp/127.8.0.1:7", "[::1]:7", "tcp/[::1]:7"] {
            options(endpoint).validate().expect(endpoint);
        }
    }

    #[test]
    fn other_endpoint_needs_cipher_or_option() {
        for endpoint in ["0.0.0.0:7", "tcp/[::]:7", "hostb:7", "localhost.example:7"] {
            let text = refusal(&options(endpoint));
            assert!(text.starts_with(endpoint) && text.contains("--plaintext"), "{text}");
            ZenohOptions { plaintext: true, ..options(endpoint) }.validate().expect(endpoint);
        }
    }

    #[test]
    fn tls_endpoint_is_refused_and_names_quic() {
        for options in [options("tls/127.0.0.1:7"), secured("tls/hostb:7")] {
            let text = refusal(&options);
            assert!(text.starts_with("tls/") && text.contains("use quic/"), "{text}");
        }
    }

    #[test]
    fn certificates_and_quic_need_each_other() {
        secured("quic/hostb:7").validate().expect("certificates");
        assert!(refusal(&options("quic/hostb:7")).contains("private_key"));
        assert!(refusal(&secured("tcp/127.0.0.1:7")).contains("use quic/"));
    }

    #[test]
    fn endpoint_with_settings_or_other_protocol_is_refused() {
        let endpoints = ["quic/hostb", "quic/:7", "quic/hostb:x", "udp/hostb:7", "quic/b:7#a=b"];
        for endpoint in endpoints.into_iter().chain(["quic/b:7?rel=0", "quic/b:70000", ""]) {
            assert!(refusal(&secured(endpoint)).contains("expected an endpoint"), "{endpoint}");
        }
    }

    #[test]
    fn names_are_short_and_distinct() {
        for name in ["", "a/b", "*", "a b", &"a".repeat(65)] {
            let options = ZenohOptions { name: name.into(), ..options("localhost:7") };
            assert!(refusal(&options).contains("64"), "{name}");
        }
        let named = ZenohOptions { name: "there".into(), ..options("localhost:7") };
        assert!(refusal(&named).contains("\"there\""));
        let dotted = |options| ZenohOptions { name: "a.b".into(), ..options };
        dotted(options("localhost:7")).validate().expect("no certificates");
        assert!(refusal(&dotted(secured("quic/hostb:7"))).contains("without dots"));
    }

    #[test]
    fn host_with_routers_does_not_listen() {
        let options = ZenohOptions { routers: vec!["router".into()], ..options("localhost:7") };
        assert!(refusal(&options).contains("tcp/localhost:7"));
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
        assert!(refusal(&plain).contains("--plaintext"));
        let files = "[zenoh]\nca = '/ca.pem'\ncertificate = '/a.pem'\nprivate_key = '/a.key'\n";
        let config = Config::parse(&(text.to_owned() + files)).expect("valid");
        let secured = ZenohOptions::from_config(&config, false);
        secured.validate().expect("valid");
        assert_eq!(secured.peers, ["b", "c"]);
        assert_eq!((secured.listen, secured.connect.len()), (vec!["quic/0.0.0.0:7447".into()], 1));
        assert_eq!(secured.connect, ["quic/b:7447"]);
        assert_eq!(secured.tls.expect("certificates").private_key, Path::new("/a.key"));
    }
}

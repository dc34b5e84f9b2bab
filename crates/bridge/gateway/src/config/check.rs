//! The meaning of a configuration file: [`check`].

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tontine::mailbox::Address;

use super::reader::{self, KeyValue, Reader, nearest, quoted};
use super::{
    Config, ConfigMistake, ExportConfig, HostPort, ImportConfig, MAX_PEERS, PeerConfig, ZenohConfig,
};

const ROOT_KEYS: [&str; 13] = [
    "name",
    "realm",
    "listen",
    "status",
    "mode",
    "allow",
    "owners",
    "lane_cap",
    "max_lanes",
    "peers",
    "exports",
    "imports",
    "zenoh",
];
const PEER_KEYS: [&str; 2] = ["connect", "unreachable_after"];
const ZENOH_KEYS: [&str; 4] = ["ca", "certificate", "private_key", "routers"];
/// The keys that name files, which come together.
const ZENOH_FILES: [&str; 3] = ["ca", "certificate", "private_key"];

/// Maximum length of the path of a Unix socket, without its NUL.
const MAX_SOCKET_PATH: usize = 107;
/// The rule on names, for errors.
const NAME_RULE: &str = "1 to 63 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`";

/// Reads the text of a configuration file.
///
/// # Errors
/// Returns every mistake, in the order of the text.
pub(super) fn check(text: &str) -> Result<Config, Vec<ConfigMistake>> {
    let document = reader::parse(text)?;
    let entries = Reader::root(&document);
    let mut checker = ConfigChecker { reader: Reader::new(text), addresses: HashMap::new() };
    let config = checker.config(&entries);
    if checker.reader.has_mistakes() { Err(checker.reader.into_mistakes()) } else { Ok(config) }
}

struct ConfigChecker<'t> {
    reader: Reader<'t>,
    /// The key that uses each address.
    addresses: HashMap<Address, String>,
}

impl<'t> ConfigChecker<'t> {
    fn config(&mut self, entries: &[KeyValue<'_, 't>]) -> Config {
        let mut config = Config::new("");
        for entry in entries {
            self.root_key(entry, &mut config);
        }
        if entries.is_empty() {
            let text = "expected a configuration, found an empty file; begin with name = \"hostA\"";
            self.reader.complain(0, "name", text);
        } else if find(entries, "name").is_none() {
            let text = "expected the name of this host, found none; add name = \"hostA\"";
            self.reader.complain(0, "name", text);
        }
        if find(entries, "status").is_none() {
            self.addresses.insert(Address::path(&config.status), "the status socket".into());
        }
        if let Some(peers) = find(entries, "peers") {
            let listens = find(entries, "listen").is_some() || !config.zenoh.routers.is_empty();
            config.peers = self.peers(peers, &config, listens);
        }
        if let Some(exports) = find(entries, "exports") {
            config.exports = self.exports(exports);
        }
        if let Some(imports) = find(entries, "imports") {
            config.imports = self.imports(imports, &config);
        }
        if !config.zenoh.routers.is_empty() {
            self.router_rules(entries, &config);
        }
        if config.zenoh.ca.is_some() {
            self.certificate_rules(entries, &config);
        }
        config.warnings = warnings(&config);
        config
    }

    /// Reads a key that does not depend on others.
    fn root_key(&mut self, entry: &KeyValue<'_, 't>, config: &mut Config) {
        match entry.name {
            "name" => config.name = self.name(entry, "hostA").unwrap_or_default(),
            "realm" => config.realm = self.name(entry, "plant").unwrap_or_default(),
            "listen" => config.listen = self.listen(entry),
            "status" => {
                if let Some(path) = self.absolute(entry, super::DEFAULT_STATUS) {
                    self.status(entry, &path);
                    config.status = path;
                }
            }
            "mode" => config.mode = self.mode(entry).unwrap_or(config.mode),
            "allow" => config.allowed_uids = self.users(entry),
            "owners" => config.owner_uids = self.users(entry),
            "lane_cap" => config.lane_cap = self.reader.integer(entry, 4096, 1 << 40),
            "max_lanes" => {
                let lanes = self.reader.integer(entry, 1, 1_000_000);
                config.max_lanes = lanes.and_then(|lanes| usize::try_from(lanes).ok());
            }
            "zenoh" => config.zenoh = self.zenoh(entry),
            "peers" | "exports" | "imports" => {}
            _ => self.reader.unknown(entry, &ROOT_KEYS),
        }
    }

    /// Returns a value that is a name.
    fn name(&mut self, entry: &KeyValue<'_, 't>, like: &str) -> Option<String> {
        let name = self.reader.string(entry, like)?;
        if is_name(name) {
            return Some(name.to_owned());
        }
        self.reader.invalid(entry, format!("expected {NAME_RULE}; found {name:?}; change it"));
        None
    }

    /// Checks a key that is a name.
    fn key_name(&mut self, entry: &KeyValue<'_, 't>, name: &str) -> bool {
        let valid = is_name(name);
        if !valid {
            let text = format!("expected {NAME_RULE}; found {name:?}; change it");
            self.reader.complain(entry.at, &entry.key, text);
        }
        valid
    }

    fn listen(&mut self, entry: &KeyValue<'_, 't>) -> Vec<SocketAddr> {
        let mut all = Vec::new();
        let values = self.reader.array(entry, true);
        if values.is_empty() {
            let text = "expected an address at least, found an empty list; remove the key";
            self.reader.invalid(entry, text);
        }
        for one in values {
            let expected = "an IP address and a port from 1 to 65535";
            let Some(address) = self.reader.parsed::<SocketAddr>(&one, expected, "127.0.0.1:7447")
            else {
                continue;
            };
            if address.port() == 0 {
                let text = format!("expected {expected}, found port 0; peers need a fixed port");
                self.reader.invalid(&one, text);
            } else if all.contains(&address) {
                let text = format!("expected each address once, found {address} again; remove it");
                self.reader.invalid(&one, text);
            } else {
                all.push(address);
            }
        }
        all
    }

    /// Returns an absolute path.
    fn absolute(&mut self, entry: &KeyValue<'_, 't>, like: &str) -> Option<PathBuf> {
        let path = self.reader.string(entry, like)?;
        if Path::new(path).is_absolute() && !path.contains('\0') {
            return Some(path.into());
        }
        let text = format!("expected an absolute path, found {path:?}; write it like {like:?}");
        self.reader.invalid(entry, text);
        None
    }

    fn status(&mut self, entry: &KeyValue<'_, 't>, path: &Path) {
        let length = path.as_os_str().len();
        if length > MAX_SOCKET_PATH {
            let text = format!(
                "expected a path of at most {MAX_SOCKET_PATH} bytes, found {length}; shorten it"
            );
            self.reader.invalid(entry, text);
        }
        self.addresses.insert(Address::path(path), entry.key.clone());
    }

    fn mode(&mut self, entry: &KeyValue<'_, 't>) -> Option<u32> {
        let text = self.reader.string(entry, "0660")?;
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode <= 0o777 && !text.starts_with('+') => Some(mode),
            _ => {
                let text = format!(
                    "expected octal permissions up to 0777, found {text:?}; write \"0660\""
                );
                self.reader.invalid(entry, text);
                None
            }
        }
    }

    fn users(&mut self, entry: &KeyValue<'_, 't>) -> Vec<u32> {
        let mut users = Vec::new();
        for one in self.reader.array(entry, false) {
            let uid = if Reader::is_string(&one) {
                let Some(name) = self.reader.string(&one, "user") else { continue };
                let uid = uid_of(name);
                if uid.is_none() {
                    let text = format!(
                        "expected a user of /etc/passwd, found {name:?}; create it or write its uid"
                    );
                    self.reader.invalid(&one, text);
                }
                uid
            } else {
                // The largest number is not a user.
                let uid = self.reader.integer(&one, 0, u64::from(u32::MAX - 1));
                uid.and_then(|uid| u32::try_from(uid).ok())
            };
            users.extend(uid);
        }
        users
    }

    fn zenoh(&mut self, entry: &KeyValue<'_, 't>) -> ZenohConfig {
        let mut zenoh = ZenohConfig::default();
        let entries = self.reader.table(entry);
        for one in &entries {
            let file = match one.name {
                "ca" => &mut zenoh.ca,
                "certificate" => &mut zenoh.certificate,
                "private_key" => &mut zenoh.private_key,
                "routers" => {
                    zenoh.routers = self.routers(one);
                    continue;
                }
                _ => {
                    self.reader.unknown(one, &ZENOH_KEYS);
                    continue;
                }
            };
            *file = self.absolute(one, &format!("/etc/tontine/{}.pem", one.name));
        }
        let missing: Vec<_> =
            ZENOH_FILES.into_iter().filter(|key| find(&entries, key).is_none()).collect();
        if !missing.is_empty() && missing.len() < ZENOH_FILES.len() {
            let missing = missing.join(" and ");
            let text = format!(
                "expected ca, certificate and private_key together, found no {missing}; add it"
            );
            self.reader.complain(entry.at, &entry.key, text);
        }
        zenoh
    }

    /// Returns the names and addresses of Zenoh's routers.
    fn routers(&mut self, entry: &KeyValue<'_, 't>) -> Vec<(String, HostPort)> {
        let mut routers = Vec::new();
        for one in self.reader.table(entry) {
            let expected = "a host and a port from 1 to 65535";
            let address = self.reader.parsed::<HostPort>(&one, expected, "10.0.0.1:7447");
            if self.key_name(&one, one.name)
                && let Some(address) = address
            {
                routers.push((one.name.to_owned(), address));
            }
        }
        routers
    }

    /// Checks the names of routers, and the keys that routers replace.
    fn router_rules(&mut self, entries: &[KeyValue<'_, 't>], config: &Config) {
        if let Some(listen) = find(entries, "listen") {
            self.replaced_by_routers(listen);
        }
        for one in keys_below(entries, &["zenoh", "routers"]) {
            let holder = match config.host(one.name) {
                Some(_) => format!("the peer {}", one.name),
                None if one.name == config.name => "this host".into(),
                None => continue,
            };
            let text =
                format!("expected a name of its own, found that of {holder}; rename one of them");
            self.reader.complain(one.at, &one.key, text);
        }
    }

    fn replaced_by_routers(&mut self, entry: &KeyValue<'_, 't>) {
        let text = format!(
            "expected no `{}`, because this gateway reaches all peers through [zenoh.routers]; \
             remove one of them",
            entry.name
        );
        self.reader.complain(entry.at, &entry.key, text);
    }

    /// Checks that no host has a name that a public authority could sign: Zenoh accepts servers
    /// with such certificates.
    fn certificate_rules(&mut self, entries: &[KeyValue<'_, 't>], config: &Config) {
        let text = |name: &str| {
            format!(
                "expected a name without dots, because certificates prove it; found {name:?}; \
                 rename the host"
            )
        };
        if let Some(name) = find(entries, "name")
            && config.name.contains('.')
        {
            self.reader.invalid(name, text(&config.name));
        }
        let mut others = keys_below(entries, &["peers"]);
        others.extend(keys_below(entries, &["zenoh", "routers"]));
        for one in others.iter().filter(|one| one.name.contains('.')) {
            self.reader.complain(one.at, &one.key, text(one.name));
        }
    }

    fn peers(
        &mut self,
        entry: &KeyValue<'_, 't>,
        config: &Config,
        listens: bool,
    ) -> Vec<PeerConfig> {
        let mut peers: Vec<PeerConfig> = Vec::new();
        let entries = self.reader.table(entry);
        if entries.len() > MAX_PEERS {
            let found = entries.len();
            let text = format!("expected at most {MAX_PEERS} peers, found {found}; remove some");
            self.reader.complain(entry.at, &entry.key, text);
            return peers;
        }
        for one in &entries {
            let mut peer =
                PeerConfig { name: one.name.into(), connect: None, unreachable_after: None };
            if self.key_name(one, one.name) && one.name == config.name {
                let text = "expected another host, found this host's own name; rename one of them";
                self.reader.complain(one.at, &one.key, text);
            }
            let keys = self.reader.table(one);
            for key in &keys {
                match key.name {
                    "connect" if !config.zenoh.routers.is_empty() => self.replaced_by_routers(key),
                    "connect" => peer.connect = self.connect(key, config, &peers),
                    "unreachable_after" => peer.unreachable_after = self.duration(key),
                    _ => self.reader.unknown(key, &PEER_KEYS),
                }
            }
            // A peer that was dropped here would make its imports mistakes, too.
            if find(&keys, "connect").is_none() && !listens {
                let text = "expected `connect`, because this gateway does not listen; found none; \
                            add connect = \"HOST:PORT\" here, or listen = \"ADDRESS:PORT\" above";
                self.reader.complain(one.at, &one.key, text);
            }
            peers.push(peer);
        }
        peers
    }

    fn connect(
        &mut self,
        entry: &KeyValue<'_, 't>,
        config: &Config,
        others: &[PeerConfig],
    ) -> Option<HostPort> {
        let expected = "a host and a port from 1 to 65535";
        let address: HostPort = self.reader.parsed(entry, expected, "192.0.2.7:7447")?;
        if config.listen.iter().any(|listen| listen.to_string() == address.to_string()) {
            let text = format!(
                "expected the peer's address, found {address}, at which this gateway listens; \
                 change one of them"
            );
            self.reader.invalid(entry, text);
        }
        if let Some(other) = others.iter().find(|other| other.connect.as_ref() == Some(&address)) {
            let text = format!(
                "expected an address of its own, found that of the peer {}; change one of them",
                other.name
            );
            self.reader.invalid(entry, text);
        }
        Some(address)
    }

    fn duration(&mut self, entry: &KeyValue<'_, 't>) -> Option<Duration> {
        let text = self.reader.string(entry, "60s")?;
        match humantime::parse_duration(text) {
            Ok(duration) if !duration.is_zero() => Some(duration),
            _ => {
                let text =
                    format!("expected a duration above 0, found {text:?}; write it like \"60s\"");
                self.reader.invalid(entry, text);
                None
            }
        }
    }

    fn exports(&mut self, entry: &KeyValue<'_, 't>) -> Vec<ExportConfig> {
        let mut exports = Vec::new();
        for one in &self.reader.table(entry) {
            let named = self.key_name(one, one.name);
            if let (Some(address), true) = (self.mailbox(one, "/run/jobs"), named) {
                exports.push(ExportConfig { name: one.name.into(), address });
            }
        }
        exports
    }

    fn imports(&mut self, entry: &KeyValue<'_, 't>, config: &Config) -> Vec<ImportConfig> {
        let mut imports = Vec::new();
        for one in &self.reader.table(entry) {
            let address = self.mailbox(one, "/run/tontine/hostB/jobs");
            let Some((peer, name)) = one.name.split_once('/') else {
                let found = one.name;
                let text = format!(
                    "expected PEER/NAME, found {found:?}; write it in quotes, like \"hostB/jobs\""
                );
                self.reader.complain(one.at, &one.key, text);
                continue;
            };
            let named = self.key_name(one, name);
            let Some(host) = config.host(peer) else {
                let known = config.peers.iter().map(|peer| peer.name.as_str());
                let fix = match nearest(peer, known) {
                    Some(near) => format!("write {near}"),
                    None => format!("add [peers.{}]", quoted(peer)),
                };
                let text = format!("expected a host of [peers], found {peer:?}; {fix}");
                self.reader.complain(one.at, &one.key, text);
                continue;
            };
            if let (Some(address), true) = (address, named) {
                imports.push(ImportConfig { host, name: name.into(), address });
            }
        }
        imports
    }

    /// Returns the address of a mailbox, which no other key may use.
    fn mailbox(&mut self, entry: &KeyValue<'_, 't>, like: &str) -> Option<Address> {
        let text = self.reader.string(entry, like)?;
        let valid = match text.strip_prefix('@') {
            Some(name) => !name.is_empty() && name.len() < MAX_SOCKET_PATH,
            None => Path::new(text).is_absolute() && !text.contains('\0') && !text.ends_with('/'),
        };
        if !valid {
            let text = format!(
                "expected an absolute path, or @ and a name; found {text:?}; write it like {like:?}"
            );
            self.reader.invalid(entry, text);
            return None;
        }
        let address = Address::from(text);
        match self.addresses.get(&address) {
            Some(other) => {
                let text = format!(
                    "expected an address of its own, found that of {other}; change one of them"
                );
                self.reader.invalid(entry, text);
                None
            }
            None => {
                self.addresses.insert(address.clone(), entry.key.clone());
                Some(address)
            }
        }
    }
}

fn find<'e, 'a, 't>(entries: &'e [KeyValue<'a, 't>], name: &str) -> Option<&'e KeyValue<'a, 't>> {
    entries.iter().find(|entry| entry.name == name)
}

/// Returns the keys of the table to which `path` leads, or none if there is no such table.
fn keys_below<'a, 't>(entries: &[KeyValue<'a, 't>], path: &[&str]) -> Vec<KeyValue<'a, 't>> {
    path.iter().fold(entries.to_vec(), |entries, name| {
        find(&entries, name).map_or_else(Vec::new, Reader::keys)
    })
}

/// Returns `true` if the text may be the name of a host, a realm or a mailbox.
fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=63).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Returns the user's number, by the system's file of users alone.
fn uid_of(name: &str) -> Option<u32> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.exports.is_empty() && config.imports.is_empty() {
        let text =
            "neither [exports] nor [imports] names a mailbox, so the gateway carries nothing";
        warnings.push(text.into());
    } else if config.peers.is_empty() {
        warnings.push("[peers] names no host, so the gateway carries nothing".into());
    }
    warnings
}

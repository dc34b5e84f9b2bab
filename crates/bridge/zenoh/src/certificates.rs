//! Certificates of a realm: [`make`].
//!
//! The authority of a realm is two files, `REALM-ca.pem` and `REALM-ca.key`. The key stays where
//! the certificates are made; each host needs the authority's certificate, and a certificate and a
//! key of its own.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::ZenohError;
use crate::options::check_name;

/// Validity of the certificates.
pub const VALID_DAYS: u32 = 3 * 365;
/// Validity of the authority's certificate.
const AUTHORITY_DAYS: u32 = 10 * 365;
/// Certificates are valid from this long ago, because clocks of hosts differ.
const CLOCK_SKEW: Duration = Duration::from_secs(24 * 3600);

/// A host that gets a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertifiedHost {
    /// Name of the host, which becomes the common name.
    pub name: String,
    /// Other names and IP addresses at which peers connect to the host.
    pub addresses: Vec<String>,
}

/// Accepts `NAME` and `NAME=ADDRESS,…`.
impl FromStr for CertifiedHost {
    type Err = ZenohError;

    fn from_str(text: &str) -> Result<Self, ZenohError> {
        let (name, addresses) = text.split_once('=').unwrap_or((text, ""));
        check_name(name)?;
        if name.contains('.') {
            return Err(ZenohError::DottedName(name.to_owned()));
        }
        let addresses = addresses.split(',').filter(|address| !address.is_empty());
        Ok(Self { name: name.to_owned(), addresses: addresses.map(str::to_owned).collect() })
    }
}

/// Makes a certificate and a private key for each host, `NAME.pem` and `NAME.key`. Returns the
/// paths of the new files.
///
/// Uses the realm's authority in the folder, or makes one.
pub fn make(
    folder: &Path,
    realm: &str,
    hosts: &[CertifiedHost],
    days: u32,
) -> Result<Vec<PathBuf>, ZenohError> {
    check_name(realm)?;
    let file = |name: &str| folder.join(name);
    let failed = |path: &Path, error| ZenohError::File(path.to_owned(), error);
    let mut directory = std::fs::DirBuilder::new();
    directory.recursive(true).mode(0o700).create(folder).map_err(|error| failed(folder, error))?;
    // Nothing is made if something is in the way.
    for (number, host) in hosts.iter().enumerate() {
        let is_same = |other: &CertifiedHost| other.name == host.name;
        if hosts[..number].iter().any(is_same) {
            return Err(ZenohError::DuplicateName(host.name.clone()));
        }
        for path in [file(&format!("{}.pem", host.name)), file(&format!("{}.key", host.name))] {
            if path.exists() {
                return Err(ZenohError::FileExists(path));
            }
        }
    }
    let mut made = Vec::new();
    let mut write = |path: PathBuf, mode: u32, text: &str| {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(mode).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| ZenohError::File(path.clone(), error))?;
        made.push(path);
        Ok::<(), ZenohError>(())
    };
    let (authority_path, key_path) =
        (file(&format!("{realm}-ca.pem")), file(&format!("{realm}-ca.key")));
    let authority = authority_params(realm)?;
    let authority_key = if key_path.exists() {
        let text = std::fs::read_to_string(&key_path).map_err(|error| failed(&key_path, error))?;
        KeyPair::from_pem(&text).map_err(refused)?
    } else {
        let key = KeyPair::generate().map_err(refused)?;
        write(key_path, 0o600, &key.serialize_pem())?;
        let certificate = authority.self_signed(&key).map_err(refused)?;
        write(authority_path, 0o644, &certificate.pem())?;
        key
    };
    let issuer = Issuer::new(authority, authority_key);
    for host in hosts {
        let key = KeyPair::generate().map_err(refused)?;
        let certificate = host_params(host, days)?.signed_by(&key, &issuer).map_err(refused)?;
        write(file(&format!("{}.key", host.name)), 0o600, &key.serialize_pem())?;
        write(file(&format!("{}.pem", host.name)), 0o644, &certificate.pem())?;
    }
    Ok(made)
}

fn authority_params(realm: &str) -> Result<CertificateParams, ZenohError> {
    let mut params = params(&format!("Tontine realm {realm}"), Vec::new(), AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn host_params(host: &CertifiedHost, days: u32) -> Result<CertificateParams, ZenohError> {
    let mut names = vec![host.name.clone()];
    names.extend(host.addresses.iter().map(|address| {
        let bare = address.trim_start_matches('[').trim_end_matches(']');
        if bare.parse::<IpAddr>().is_ok() { bare.to_owned() } else { address.clone() }
    }));
    let mut params = params(&host.name, names, days)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Each host accepts connections and makes them.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn params(
    common_name: &str,
    names: Vec<String>,
    days: u32,
) -> Result<CertificateParams, ZenohError> {
    let mut params = CertificateParams::new(names).map_err(refused)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + (now + Duration::from_secs(u64::from(days) * 24 * 3600));
    Ok(params)
}

fn refused(error: rcgen::Error) -> ZenohError {
    ZenohError::Certificate(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn hosts(names: &[&str]) -> Vec<CertifiedHost> {
        names.iter().map(|name| name.parse().expect("a host")).collect()
    }

    #[test]
    fn keys_are_private_and_never_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("new");
        let made = make(&folder, "plant", &hosts(&["a", "b"]), 1).expect("made");
        assert_eq!(made.len(), 6);
        for path in &made {
            let mode = std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
            let is_key = path.extension().is_some_and(|extension| extension == "key");
            assert_eq!(mode & 0o077 == 0, is_key, "{}", path.display());
        }
        let key = std::fs::read(folder.join("a.key")).expect("a key");
        let error = make(&folder, "plant", &hosts(&["c", "a"]), 1).expect_err("exists");
        assert!(error.to_string().contains("a.pem: exists already"), "{error}");
        assert!(!folder.join("c.pem").exists());
        assert_eq!(std::fs::read(folder.join("a.key")).expect("a key"), key);
    }

    #[test]
    fn later_hosts_get_same_authority() {
        let folder = tempfile::tempdir().expect("a folder");
        make(folder.path(), "plant", &hosts(&["a"]), 1).expect("made");
        let made = make(folder.path(), "plant", &hosts(&["b=10.0.0.2,b.lan"]), 1).expect("made");
        assert_eq!(made.len(), 2);
        let made = make(folder.path(), "other", &hosts(&["c"]), 1).expect("made");
        assert_eq!(made.len(), 4);
    }

    #[test]
    fn host_has_name_without_dots_and_addresses() {
        let host: CertifiedHost = "b=10.0.0.2,b.lan".parse().expect("a host");
        assert_eq!((host.name.as_str(), host.addresses.len()), ("b", 2));
        for text in ["b.lan", "", "=10.0.0.2", "a/b", &"b".repeat(64)] {
            assert!(text.parse::<CertifiedHost>().is_err(), "{text}");
        }
        for text in ["B_2-", "-b", &"b".repeat(63)] {
            assert!(text.parse::<CertifiedHost>().is_ok(), "{text}");
        }
        let error = make(Path::new("/proc/none"), "plant", &[], 1).expect_err("no folder");
        assert!(error.to_string().contains("/proc/none"), "{error}");
    }
}

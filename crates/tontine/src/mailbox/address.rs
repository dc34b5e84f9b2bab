//! Where a mailbox is found: [`Address`].

use std::fmt;
use std::path::{Path, PathBuf};

/// A path in the file system, or a name in Linux's abstract namespace.
///
/// Text that begins with `@` is an abstract name: it needs no folder, no permissions guard it, it
/// ends with its owner, and it is local to a network namespace. Anything else is a path.
///
/// ```
/// use tontine::mailbox::Address;
///
/// assert_eq!(Address::from("@jobs"), Address::abstract_name("jobs"));
/// assert_eq!(Address::from("/run/jobs").to_string(), "/run/jobs");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address(pub(crate) Place);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Path(PathBuf),
    Abstract(Vec<u8>),
}

impl Address {
    /// A path in the file system, whatever it begins with.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self(Place::Path(path.into()))
    }

    /// A name in the abstract namespace, without an `@` before it.
    pub fn abstract_name(name: impl AsRef<[u8]>) -> Self {
        Self(Place::Abstract(name.as_ref().to_vec()))
    }
}

/// A file, whatever its names: device and inode.
pub(crate) type FileId = (u64, u64);

impl Address {
    /// What the path leads to now; none where there is nothing, or the address is no path.
    pub(crate) fn leads_to(&self) -> Option<FileId> {
        use std::os::unix::fs::MetadataExt;
        let Place::Path(path) = &self.0 else { return None };
        std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
    }
}

impl From<&str> for Address {
    fn from(text: &str) -> Self {
        match text.strip_prefix('@') {
            Some(name) => Self::abstract_name(name),
            None => Self::path(text),
        }
    }
}

impl From<&String> for Address {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<&Path> for Address {
    fn from(path: &Path) -> Self {
        Self::path(path)
    }
}

impl From<PathBuf> for Address {
    fn from(path: PathBuf) -> Self {
        Self::path(path)
    }
}

impl From<&PathBuf> for Address {
    fn from(path: &PathBuf) -> Self {
        Self::path(path)
    }
}

impl From<&Self> for Address {
    fn from(address: &Self) -> Self {
        address.clone()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Path(path) => write!(f, "{}", path.display()),
            Place::Abstract(name) => write!(f, "@{}", name.escape_ascii()),
        }
    }
}

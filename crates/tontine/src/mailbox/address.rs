//! Where a mailbox is found: [`Address`].

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A path in the file system, or a name in Linux's abstract namespace.
///
/// Text that begins with `@` is an abstract name: it needs no folder, no permissions guard it, and
/// it is local to a network namespace. It ends with its owner and with the children that the owner
/// has forked: as long as one of them lives, the killed owner's name stays in use. A child that
/// calls `exec` does not hold it. The kernel has no other way to end an inherited listener.
///
/// Anything else is a path. It is free as soon as its owner has ended, whatever children live.
/// `bind` and `connect` make a relative path absolute, so a later `chdir` changes nothing. A path
/// of 103 bytes or less works everywhere; a longer one needs `/proc`, and one of more than 107
/// bytes a last part of 82 bytes at most.
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
    /// Returns this address, independent of the working directory. Symbolic links stay what they
    /// are.
    ///
    /// # Errors
    /// [`Error::SystemAt`] if the path is relative and the working directory was removed.
    pub(crate) fn into_absolute(self) -> Result<Self> {
        match self.0 {
            // An empty path is refused where it is used.
            Place::Path(path) if path.is_relative() && !path.as_os_str().is_empty() => {
                let absolute = std::path::absolute(&path)
                    .map_err(|error| Error::io("getcwd", &error).at(path.display()))?;
                Ok(Self(Place::Path(absolute)))
            }
            place => Ok(Self(place)),
        }
    }

    /// What the path leads to now; none where there is nothing, or the address is no path.
    pub(crate) fn leads_to(&self) -> Option<FileId> {
        let Place::Path(path) = &self.0 else { return None };
        std::fs::metadata(path).ok().as_ref().map(file_id)
    }
}

/// The identity of a file.
pub(crate) fn file_id(file: &Metadata) -> FileId {
    (file.dev(), file.ino())
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

//! The address of a mailbox: [`Address`].

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The address of a mailbox: a path in the file system, or a name in Linux's abstract namespace.
///
/// [`Mailbox::bind`](super::Mailbox::bind) and [`Sender::connect`](super::Sender::connect) accept
/// every value that converts into an address: a text or a path.
///
/// **Text that begins with `@`** is an abstract name. It needs no folder, has no permissions, and
/// is local to a network namespace. The kernel frees it when its owner and all children that the
/// owner forked have ended or called `exec`: while such a child lives, a killed owner's name stays
/// in use, because the kernel offers no other way to end an inherited listener.
///
/// **Any other text, and every path type,** is a path. It is free as soon as its owner has ended,
/// even while children of the owner live. `bind` and `connect` make a relative path absolute, so a
/// later `chdir` changes nothing. A path of at most 103 bytes works everywhere; a longer one needs
/// `/proc`, and the last component of a path of more than 107 bytes may have at most 82 bytes.
///
/// # Examples
/// ```
/// use std::path::Path;
/// use tontine::mailbox::Address;
///
/// assert_eq!(Address::from("@jobs"), Address::abstract_name("jobs"));
/// assert_eq!(Address::from("/run/jobs"), Address::path("/run/jobs"));
/// assert_eq!(Address::from(format!("/run/jobs-{}", 7)).to_string(), "/run/jobs-7");
/// assert_eq!(Address::from(Path::new("@jobs")), Address::path("@jobs")); // a path stays a path
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address(pub(crate) AddressKind);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum AddressKind {
    Path(PathBuf),
    Abstract(Vec<u8>),
}

impl Address {
    /// Returns the address of a path in the file system, even if the path begins with `@`.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self(AddressKind::Path(path.into()))
    }

    /// Returns the address of a name in the abstract namespace. `name` has no leading `@`.
    pub fn abstract_name(name: impl AsRef<[u8]>) -> Self {
        Self(AddressKind::Abstract(name.as_ref().to_vec()))
    }
}

/// The identity of a file, independent of its names: device and inode.
pub(crate) type SocketId = (u64, u64);

impl Address {
    /// Makes the address independent of the working directory. Symbolic links are not resolved.
    ///
    /// # Errors
    /// [`Error::SystemAt`] if the path is relative and the working directory was removed.
    pub(crate) fn into_absolute(self) -> Result<Self> {
        match self.0 {
            // An empty path stays as it is. Its first use is refused with an error that names the
            // reason.
            AddressKind::Path(path) if path.is_relative() && !path.as_os_str().is_empty() => {
                let absolute = std::path::absolute(&path)
                    .map_err(|error| Error::io("getcwd", &error).at(path.display()))?;
                Ok(Self(AddressKind::Path(absolute)))
            }
            place => Ok(Self(place)),
        }
    }

    /// Returns the file that the path leads to now. Returns `None` if no file exists or the address
    /// is abstract.
    pub(crate) fn leads_to(&self) -> Option<SocketId> {
        let AddressKind::Path(path) = &self.0 else { return None };
        std::fs::metadata(path).ok().as_ref().map(file_id)
    }
}

/// Returns the identity of a file.
pub(crate) fn file_id(file: &Metadata) -> SocketId {
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

/// Implements the conversion from `$text` as from `&str`: a leading `@` begins an abstract name.
macro_rules! from_text {
    ($($text:ty),*) => {$(
        impl From<$text> for Address {
            fn from(text: $text) -> Self {
                Self::from(AsRef::<str>::as_ref(&text))
            }
        }
    )*};
}

/// Implements the conversion from `$path` to a path in the file system, even if it begins with `@`.
macro_rules! from_path {
    ($($path:ty),*) => {$(
        impl From<$path> for Address {
            fn from(path: $path) -> Self {
                Self::path(path)
            }
        }
    )*};
}

from_text!(String, &String, Box<str>, Cow<'_, str>);
from_path!(&Path, PathBuf, &PathBuf, Box<Path>, Cow<'_, Path>, &OsStr, OsString, &OsString);

impl From<&Self> for Address {
    fn from(address: &Self) -> Self {
        address.clone()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            AddressKind::Path(path) => write!(f, "{}", path.display()),
            AddressKind::Abstract(name) => write!(f, "@{}", name.escape_ascii()),
        }
    }
}

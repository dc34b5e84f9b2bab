//! Paths as addresses of sockets: [`SocketPath`].
//!
//! A socket's address holds 107 bytes of a path. A longer path is reached through a descriptor of
//! its folder, as `/proc/self/fd/N/NAME`, which needs `/proc`.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Display, Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags};

use super::NAME_SPACE;
use crate::error::{Error, Result};

/// Bytes of `/proc/self/fd/2147483647/` and of the zero at the end of the name.
const FOLDER_SPACE: usize = 26;

/// Maximum number of bytes in the last component of a path of more than 107 bytes.
const MAX_NAME: usize = NAME_SPACE - FOLDER_SPACE;

/// A path that fits into a socket's address and leads to the same file as the caller's path.
#[derive(Debug)]
pub(crate) struct SocketPath {
    path: PathBuf,
    /// The path without the `/proc` prefix, for errors.
    plain: PathBuf,
    /// Must stay open while `path` is used.
    _folder: Option<OwnedFd>,
}

impl SocketPath {
    /// Returns the address of `path`.
    ///
    /// # Errors
    /// [`Error::InvalidAddress`] if the path is empty, contains a zero byte, has more than 107
    /// bytes and a last component of more than 82, or has more than 107 bytes and there is no
    /// `/proc`; [`Error::SystemAt`] if its folder cannot be opened.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        if let Some(reason) = refusal(path) {
            return Err(Error::InvalidAddress { address: path.display().to_string(), reason });
        }
        match path.file_name() {
            Some(name) if !fits(path) => Self::in_folder(path, name),
            _ => Ok(Self::plain(path.into())),
        }
    }

    /// Returns the address of a temporary name in the folder of `path`: `PATH.tmp` if that has at
    /// most 107 bytes, otherwise a hash. The name is the same for every caller, so that an owner
    /// finds and removes a file that a killed owner left.
    ///
    /// # Errors
    /// The errors of [`SocketPath::new`].
    pub(crate) fn temporary(path: &Path) -> Result<Self> {
        let mut appended = path.as_os_str().to_owned();
        appended.push(".tmp");
        if fits(Path::new(&appended)) {
            return Ok(Self::plain(appended.into()));
        }
        let mut hasher = DefaultHasher::new();
        path.file_name().hash(&mut hasher);
        Self::in_folder(path, OsStr::new(&format!(".{:016x}.tmp", hasher.finish())))
    }

    fn plain(path: PathBuf) -> Self {
        Self { plain: path.clone(), path, _folder: None }
    }

    fn in_folder(path: &Path, name: &OsStr) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder.unwrap_or(Path::new(".")), flags, Mode::empty())
            .map_err(|errno| Error::system("open of the folder", errno).at(path.display()))?;
        let link = format!("/proc/self/fd/{}", folder.as_raw_fd());
        if rustix::fs::access(&link, Access::EXISTS).is_err() {
            let reason = "a path of more than 103 bytes needs /proc/self/fd, which does not exist; \
                          mount /proc, or choose a shorter folder";
            return Err(Error::InvalidAddress { address: path.display().to_string(), reason });
        }
        let (path, plain) = (Path::new(&link).join(name), path.with_file_name(name));
        Ok(Self { path, plain, _folder: Some(folder) })
    }

    /// Returns the path for `bind`, `connect` and other calls.
    pub(crate) fn as_path(&self) -> &Path {
        &self.path
    }

    /// Returns the path for errors.
    pub(crate) fn display(&self) -> Display<'_> {
        self.plain.display()
    }
}

fn fits(path: &Path) -> bool {
    path.as_os_str().len() < NAME_SPACE
}

/// Returns the reason why no socket can have this path, or `None` if a socket can have it.
fn refusal(path: &Path) -> Option<&'static str> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        Some("it is empty; expected a path, or a name that begins with @")
    } else if bytes.ends_with(b"/") {
        Some("it ends with a slash; expected the path of a socket; add a name")
    } else if bytes.contains(&0) {
        Some("it contains a zero byte; remove that byte")
    } else if fits(path) {
        None
    } else if path.file_name().is_none_or(|name| name.len() > MAX_NAME) {
        Some("beyond 107 bytes the last part may have 82 and has more; shorten that part")
    } else {
        None
    }
}

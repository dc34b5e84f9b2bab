//! The location at which the ends of a mechanism find each other by name: [`Location`].

use std::ffi::CString;
use std::path::{Path, PathBuf};

/// A directory whose name is also the prefix of other names, such as the names of shared memory.
#[derive(Debug, Clone)]
pub struct Location(PathBuf);

impl Location {
    /// Returns the location of this directory.
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Returns the directory.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Returns the directory's name, which is unique to this location.
    ///
    /// # Panics
    /// Panics if the directory's name is not UTF-8. No substitute is possible, because an explorer
    /// removes everything with this name from shared memory.
    pub fn name(&self) -> &str {
        let name = self.0.file_name().and_then(|name| name.to_str());
        name.expect("a location's folder has a name in UTF-8")
    }

    /// Returns the name in the form that POSIX requires for shared memory and message queues.
    ///
    /// # Panics
    /// Never panics: a file name contains no zero byte.
    pub fn posix_name(&self) -> CString {
        CString::new(format!("/{}", self.name())).expect("a file name holds no zero byte")
    }
}

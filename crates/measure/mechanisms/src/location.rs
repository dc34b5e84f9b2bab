//! The location at which the ends of a mechanism find each other by name: [`Location`].

use std::ffi::CString;
use std::path::{Path, PathBuf};

/// A directory whose name is also the prefix of other names, such as the names of shared memory.
#[derive(Debug, Clone)]
pub struct Location(PathBuf);

impl Location {
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Returns the directory's name, which is unique to this location.
    pub fn name(&self) -> &str {
        let name = self.0.file_name().and_then(|name| name.to_str());
        name.expect("a location's folder has a name in UTF-8")
    }

    /// Returns the name in the form that POSIX requires for shared memory and message queues.
    pub fn posix_name(&self) -> CString {
        CString::new(format!("/{}", self.name())).expect("a file name holds no zero byte")
    }
}

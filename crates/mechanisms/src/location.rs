//! Location at which the ends of a mechanism find each other by name: [`Location`].

use std::ffi::CString;
use std::path::{Path, PathBuf};

/// A folder, whose own name starts the names of other kinds, such as those of shared memory.
#[derive(Debug, Clone)]
pub struct Location(PathBuf);

impl Location {
    /// The location of that folder.
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// A word that no other location has.
    pub fn name(&self) -> &str {
        self.0.file_name().and_then(|name| name.to_str()).unwrap_or("tontine")
    }

    /// The same as POSIX wants the names of shared memory and message queues.
    ///
    /// # Panics
    /// Never: the name of a file has no zero byte.
    pub fn posix_name(&self) -> CString {
        CString::new(format!("/{}", self.name())).expect("a file name holds no zero byte")
    }
}

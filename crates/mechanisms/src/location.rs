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

    /// The folder's name, which no other location has.
    ///
    /// # Panics
    /// The folder has no name in UTF-8. There is no substitute: an explorer removes what has this
    /// name from shared memory.
    pub fn name(&self) -> &str {
        let name = self.0.file_name().and_then(|name| name.to_str());
        name.expect("a location's folder has a name in UTF-8")
    }

    /// The same as POSIX wants the names of shared memory and message queues.
    ///
    /// # Panics
    /// Never: the name of a file has no zero byte.
    pub fn posix_name(&self) -> CString {
        CString::new(format!("/{}", self.name())).expect("a file name holds no zero byte")
    }
}

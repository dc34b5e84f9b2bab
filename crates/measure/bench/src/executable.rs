//! The program that made a run: [`Executable`].
//!
//! A comparison measures flagged rows again with the programs that made the two runs. A run
//! therefore records the path of its program and the means to recognise it: the build id that the
//! linker stored, which is a digest of the contents, or else the length and the time of the last
//! change.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use object::{Object, ReadCache};
use serde::{Deserialize, Serialize};

/// A program on disk that can be recognised later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executable {
    /// Path at the time of the run.
    pub path: PathBuf,
    /// Length of the file.
    pub bytes: u64,
    /// Time of the last change, in RFC 3339 format, UTC; `null` if the file system does not report
    /// it.
    pub modified: Option<String>,
    /// The linker's build id in hexadecimal; `null` if the linker wrote none.
    pub build_id: Option<String>,
}

impl Executable {
    pub fn running() -> io::Result<Self> {
        Self::at(&std::env::current_exe()?)
    }

    pub fn at(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let file = File::open(&path)?;
        let about = file.metadata()?;
        let modified = about.modified().ok();
        let cache = ReadCache::new(file);
        let parsed = object::File::parse(&cache).ok();
        let build_id = parsed.and_then(|parsed| parsed.build_id().ok().flatten().map(hexadecimal));
        Ok(Self { path, bytes: about.len(), modified: modified.and_then(stamp), build_id })
    }

    /// Returns `true` if `other` is the same program. Compares the build ids if both have one.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let alike = match (&self.build_id, &other.build_id) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self.modified.is_some() && self.modified == other.modified,
        };
        alike && self.bytes == other.bytes
    }

    pub fn is_still_there(&self) -> bool {
        Self::at(&self.path).is_ok_and(|now| now.is_same_as(self))
    }
}

/// Returns a time in RFC 3339 format, or `None` if its year is not from 1970 to 9999.
fn stamp(time: SystemTime) -> Option<String> {
    let mut text = String::new();
    let written =
        write!(text, "{}", humantime::format_rfc3339((time >= UNIX_EPOCH).then_some(time)?));
    written.ok().map(|()| text)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn executable_is_recognised_until_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let program = Executable::at(&path).unwrap();
        assert!(program.is_still_there());
        // If the linker stored a build id, the contents count, not the path.
        let running = Executable::running().unwrap();
        assert_eq!(program.is_same_as(&running), running.build_id.is_some());
        std::fs::copy("/bin/sh", &path).unwrap();
        assert!(!program.is_still_there());
        std::fs::remove_file(&path).unwrap();
        assert!(!program.is_still_there());
    }

    #[test]
    fn time_out_of_range_has_no_stamp() {
        let before = UNIX_EPOCH - Duration::from_secs(1);
        let year_10000 = UNIX_EPOCH + Duration::from_secs(253_402_300_800);
        assert_eq!([before, year_10000].map(stamp), [None, None]);
        assert_eq!(stamp(UNIX_EPOCH).as_deref(), Some("1970-01-01T00:00:00Z"));
    }

    #[test]
    fn script_has_no_build_id() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "#!/bin/sh\n").unwrap();
        let script = Executable::at(file.path()).unwrap();
        assert_eq!((script.bytes, script.build_id.clone()), (10, None));
        assert!(script.is_still_there());
    }
}

//! Directory and name prefix of one run: [`RunDir`], which removes them when dropped.
//!
//! Every name starts with `tontine-crash-`, the number of the PID namespace and the explorer's pid.
//! All names of a run have the same length, because a longer name would move the stack of the
//! process that receives it. [`sweep`] removes what killed explorers left behind.

#![allow(unsafe_code, reason = "POSIX message queues")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tontine_bench::error::{ErrorContext, Result};
use tontine_bench::leftovers::{self, SEMAPHORES, SHARED_MEMORY};
use tontine_mechanisms::location::Location;

const START: &str = "tontine-crash-";

/// The directory that holds all named objects of one run of a target.
#[derive(Debug)]
pub struct RunDir {
    location: Location,
    /// `true` if dropping this handle removes the directory: for the explorer's handle, not a
    /// worker's.
    owned: bool,
}

impl RunDir {
    pub fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{:010}-{count:08}", start(), std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).setting_up("mkdir of a temporary folder")?;
        Ok(Self { location: Location::new(folder), owned: true })
    }

    /// Returns a worker's handle to a directory that an explorer created.
    pub fn of(folder: PathBuf) -> Self {
        Self { location: Location::new(folder), owned: false }
    }

    /// Returns the location by which the ends of a mechanism find each other.
    pub fn location(&self) -> &Location {
        &self.location
    }

    pub fn folder(&self) -> &Path {
        self.location.folder()
    }

    /// Returns the directory's unique name, a prefix for names of other kinds.
    pub fn name(&self) -> &str {
        self.location.name()
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.owned {
            clear(&self.location);
        }
    }
}

/// Removes everything that ended explorers of this PID namespace left behind.
pub fn sweep() {
    for folder in leftovers::left_in(&std::env::temp_dir(), &start()) {
        clear(&Location::new(folder));
    }
}

/// Removes a directory, and the shared memory and message queues with its name.
fn clear(location: &Location) {
    let _ = fs::remove_dir_all(location.folder());
    for start in ["", SEMAPHORES] {
        let names = format!("{start}{}", location.name());
        leftovers::remove_all(Path::new(SHARED_MEMORY), &names);
    }
    let name = location.posix_name();
    // SAFETY: `name` is a C string that outlives the call.
    unsafe { libc::mq_unlink(name.as_ptr()) };
}

/// Returns the prefix of all names of explorers in this PID namespace, with 0 for a namespace that
/// `/proc` does not report.
fn start() -> String {
    format!("{START}{}p", leftovers::namespace().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_run_dir_removes_files_with_prefix() {
        let place = RunDir::new().expect("a place");
        let folder = place.folder().to_owned();
        let shared = [format!("{}-memory", place.name()), format!("{SEMAPHORES}{}", place.name())]
            .map(|name| Path::new(SHARED_MEMORY).join(name));
        for file in &shared {
            fs::write(file, "left").expect("a file in /dev/shm");
        }
        fs::write(folder.join("left"), "left").expect("a file");
        drop(RunDir::of(folder.clone()));
        assert!(folder.exists(), "an actor's handle leaves it alone");
        drop(place);
        assert!(!folder.exists() && !shared.iter().any(|file| file.exists()));
    }

    #[test]
    fn sweep_removes_only_files_of_ended_explorers() {
        let mut child = std::process::Command::new("true").spawn().expect("true starts");
        let dead = child.id();
        child.wait().expect("reaped");
        let left = std::env::temp_dir().join(format!("{}{dead:010}-00000000", start()));
        fs::create_dir(&left).expect("a folder");
        let mine = RunDir::new().expect("a place");
        sweep();
        assert!(!left.exists() && mine.folder().exists());
    }
}

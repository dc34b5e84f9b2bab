//! The names of one run: [`Place`], a folder and a prefix that go with it, whoever was killed.
//!
//! Every name starts with `tontine-crash-`, the number of the PID namespace and the explorer's pid.
//! All of a run are equally long: a longer name would move the stack of the process that gets it.
//! [`sweep`] removes what explorers left that were themselves killed.

#![allow(unsafe_code, reason = "POSIX message queues")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tontine_host::leftovers::{self, SHARED_MEMORY};
use tontine_host::trouble::{During, Result};
use tontine_mechanisms::location::Location;

const START: &str = "tontine-crash-";

/// Where one run of a subject keeps what has a name.
#[derive(Debug)]
pub struct Place {
    location: Location,
    /// Whether it goes with this handle: with the explorer's, not with an actor's.
    owned: bool,
}

impl Place {
    /// A fresh one.
    ///
    /// # Errors
    /// Skipped, where no temporary folder can be made.
    pub fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{:010}-{count:08}", start(), std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).setting_up("mkdir of a temporary folder")?;
        Ok(Self { location: Location::new(folder), owned: true })
    }

    /// The one that an explorer made, as its actors see it.
    pub fn of(folder: PathBuf) -> Self {
        Self { location: Location::new(folder), owned: false }
    }

    /// The location by which the ends of a mechanism find each other.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// A folder of its own.
    pub fn folder(&self) -> &Path {
        self.location.folder()
    }

    /// A word that no other place has, for names of other kinds to start with.
    pub fn name(&self) -> &str {
        self.location.name()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.owned {
            clear(&self.location);
        }
    }
}

/// Removes all that explorers of our PID namespace which have ended left behind.
pub fn sweep() {
    for folder in leftovers::left_in(&std::env::temp_dir(), &start()) {
        clear(&Location::new(folder));
    }
}

/// Removes a folder and everything among shared memory and message queues that has its name.
fn clear(location: &Location) {
    let _ = fs::remove_dir_all(location.folder());
    leftovers::remove_all(Path::new(SHARED_MEMORY), location.name());
    let name = location.posix_name();
    // SAFETY: `name` is a C string that outlives the call.
    unsafe { libc::mq_unlink(name.as_ptr()) };
}

/// What all names of explorers in our PID namespace start with; 0 stands for a namespace that
/// `/proc` does not tell.
fn start() -> String {
    format!("{START}{}p", leftovers::namespace().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_takes_everything_of_its_name_along() {
        let place = Place::new().expect("a place");
        let folder = place.folder().to_owned();
        let shared = Path::new(SHARED_MEMORY).join(format!("{}-memory", place.name()));
        fs::write(&shared, "left").expect("a file in /dev/shm");
        fs::write(folder.join("left"), "left").expect("a file");
        drop(Place::of(folder.clone()));
        assert!(folder.exists(), "an actor's handle leaves it alone");
        drop(place);
        assert!(!folder.exists() && !shared.exists());
    }

    #[test]
    fn what_a_killed_explorer_left_is_swept_and_a_live_one_s_is_not() {
        let mut child = std::process::Command::new("true").spawn().expect("true starts");
        let dead = child.id();
        child.wait().expect("reaped");
        let left = std::env::temp_dir().join(format!("{}{dead:010}-00000000", start()));
        fs::create_dir(&left).expect("a folder");
        let mine = Place::new().expect("a place");
        sweep();
        assert!(!left.exists() && mine.folder().exists());
    }
}

//! The wait of a connecting sender for an owner of its address: [`OwnerWait`].
//!
//! A bound socket is renamed to its path, which inotify reports. Neighbours: [`super::outbound`]
//! makes the attempts, [`super::succession`] connects.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::mailbox::address::{Address, AddressKind};

/// Maximum time between two attempts while the folder is watched: an owner that listens only after
/// its path exists causes no event when it does.
const WATCHED: Duration = Duration::from_millis(100);

/// Time between two attempts if nothing reports an owner: for an abstract name, without the folder,
/// or at the user's limit of inotify instances.
const UNWATCHED: Duration = Duration::from_millis(10);

/// Maximum number of events read per wake-up.
const EVENTS: usize = 64;

/// The wait for the first owner of an address.
pub(super) struct OwnerWait {
    deadline: Option<Instant>,
    interruptible: bool,
    /// The watch, once the first attempt has failed.
    folder: Option<FolderWatch>,
}

/// A watch on the folder of a path for files that get the path's name.
struct FolderWatch {
    /// `None` if the folder cannot be watched.
    inotify: Option<OwnedFd>,
    name: OsString,
}

impl OwnerWait {
    /// Begins a wait for `timeout`, which a signal handler ends if it is `interruptible`.
    pub(super) fn new(timeout: Duration, interruptible: bool) -> Self {
        let deadline = Instant::now().checked_add(timeout);
        Self { deadline, interruptible, folder: None }
    }

    /// Waits until another attempt may succeed, after one has failed with `error`.
    ///
    /// # Errors
    /// `error` once the timeout has expired; [`Error::Interrupted`]; [`Error::System`] if the
    /// kernel refuses to wait.
    pub(super) fn wait(&mut self, address: &Address, error: Error) -> Result<()> {
        let now = Instant::now();
        let left = self.deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(now));
        if left.is_zero() {
            return Err(error);
        }
        let Some(folder) = &self.folder else {
            // An owner may have bound between the attempt and this watch: attempt again.
            self.folder = Some(FolderWatch::new(address));
            return Ok(());
        };
        let longest = if folder.inotify.is_some() { WATCHED } else { UNWATCHED };
        match folder.wait(longest.min(left)) {
            Err(Errno::INTR) if self.interruptible => Err(Error::Interrupted),
            Ok(()) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::system("poll", errno)),
        }
    }
}

impl FolderWatch {
    fn new(address: &Address) -> Self {
        let AddressKind::Path(path) = &address.0 else {
            return Self { inotify: None, name: OsString::new() };
        };
        let name = path.file_name().unwrap_or_default().to_owned();
        let watch = || {
            let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
            let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
            inotify::add_watch(&inotify, path.parent()?, flags).ok()?;
            Some(inotify)
        };
        Self { inotify: watch(), name }
    }

    /// Waits for at most `longest` until a file gets the name.
    fn wait(&self, longest: Duration) -> Result<(), Errno> {
        let until = Instant::now() + longest;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let timeout = Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            let watched =
                self.inotify.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
            if poll(&mut watched.collect::<Vec<_>>(), Some(&timeout))? > 0 && self.has_event() {
                return Ok(());
            }
        }
    }

    /// Returns `true` if one of the events that it reads concerns the name, or the watch itself.
    fn has_event(&self) -> bool {
        let Some(inotify) = &self.inotify else { return false };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(inotify, &mut buffer);
        let mut found = false;
        for _ in 0..EVENTS {
            let Ok(event) = events.next() else { break };
            found |= event.file_name().is_none_or(|name| name.to_bytes() == self.name.as_bytes());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than the test waits.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn folder_watch_reports_only_files_with_the_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jobs");
        let watch = FolderWatch::new(&Address::path(&path));
        let make = |name: &str| std::fs::write(folder.path().join(name), "").expect("written");
        for number in 0..2 * EVENTS {
            make(&format!("other-{number}"));
        }
        let began = Instant::now();
        watch.wait(Duration::from_millis(50)).expect("a poll");
        assert!(began.elapsed() >= Duration::from_millis(50), "other files end no wait");
        make("jobs");
        watch.wait(LONG).expect("a poll");
        make("jobs.tmp");
        std::fs::rename(folder.path().join("jobs.tmp"), &path).expect("renamed");
        watch.wait(LONG).expect("a poll");
        assert!(began.elapsed() < LONG, "each event ends a wait at once");
    }

    #[test]
    fn first_failure_is_followed_by_attempt_without_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let address = Address::path(folder.path().join("jobs"));
        let error = || Error::NoMailbox { address: "jobs".into() };
        let mut wait = OwnerWait::new(LONG, false);
        let began = Instant::now();
        assert_eq!(wait.wait(&address, error()), Ok(()));
        assert!(began.elapsed() < WATCHED);
        let mut wait = OwnerWait::new(Duration::ZERO, false);
        assert_eq!(wait.wait(&address, error()), Err(error()));
    }
}

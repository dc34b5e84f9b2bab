//! Detection of the last reference to a memfd: [`ReleaseWatch`].
//!
//! An inotify watch ends with its file, which the kernel reports as IN_IGNORED. A memfd has no
//! name, so its file ends with the last reference to it in any process: a descriptor (including one
//! opened with `O_PATH`), a mapping, a message in a socket's queue. A peer cannot cause any other
//! event, because the watched event, IN_MOVE_SELF, needs a name. A page that the peer has spliced
//! into a pipe or a socket outlives the file, within the kernel's limits for pipes and sockets.
//!
//! A write lease (`fcntl(F_SETLEASE)`) is not suitable: the kernel grants it while `O_PATH`
//! descriptors exist, and opening the file through such a descriptor breaks the lease, upon which
//! the kernel sends SIGIO, which terminates a process.
//!
//! The process has one inotify instance. The first watch makes it, and it is kept, since closing an
//! instance takes up to 20 ms. Neighbours: `mailbox::sender::account` counts the chunks that a
//! receiver holds.

#![allow(unsafe_code, reason = "tests: a handle that a forked child inherits")]

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::fork::{Guard, PerProcess};

/// The watches of this process.
static WATCHES: PerProcess<Mutex<Watches>> = PerProcess::new(Mutex::default);

/// A watch on a memfd for the end of its last reference.
#[derive(Debug)]
pub(crate) struct ReleaseWatch {
    /// The kernel's number for the watch.
    id: i32,
    released: Arc<AtomicBool>,
    guard: Guard,
}

/// The inotify instance, and the watches that have not ended.
#[derive(Debug, Default)]
struct Watches {
    inotify: Option<OwnedFd>,
    live: BTreeMap<i32, Arc<AtomicBool>>,
}

impl ReleaseWatch {
    /// Watches the file of `memfd`, which can be closed afterwards. Returns `None` if watching is
    /// impossible: without `/proc`, without a free descriptor, or at the user's limit of instances
    /// or watches (`/proc/sys/fs/inotify`).
    pub(crate) fn new(memfd: BorrowedFd<'_>) -> Option<Self> {
        let guard = Guard::here().ok()?;
        let mut watches = lock()?;
        // Read the events here too, so that events of watches that no caller queries do not fill
        // the queue.
        watches.read_events();
        let id = watches.add(memfd)?;
        let released = Arc::new(AtomicBool::new(false));
        watches.live.insert(id, Arc::clone(&released));
        Some(Self { id, released, guard })
    }

    /// Returns `true` if the memfd had no reference when [`ReleaseWatch::update`] was last called.
    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::Relaxed)
    }

    /// Reads the kernel's reports for all watches of this process.
    pub(crate) fn update() {
        if let Some(mut watches) = lock() {
            watches.read_events();
        }
    }
}

impl Drop for ReleaseWatch {
    fn drop(&mut self) {
        // A forked child shares the instance, and its parent still needs the watch.
        if self.guard.is_forked() || self.is_released() {
            return;
        }
        let Some(mut watches) = lock() else { return };
        if watches.live.remove(&self.id).is_some()
            && let Some(inotify) = &watches.inotify
        {
            // EINVAL means that the watch has ended and its event has not been read yet.
            let _ = inotify::remove_watch(inotify, self.id);
        }
    }
}

impl Watches {
    fn add(&mut self, memfd: BorrowedFd<'_>) -> Option<i32> {
        let path = format!("/proc/thread-self/fd/{}", memfd.as_raw_fd());
        let add =
            |inotify: &OwnedFd| inotify::add_watch(inotify, path.as_str(), WatchFlags::MOVE_SELF);
        if let Some(inotify) = &self.inotify {
            match add(inotify) {
                // The program has closed this descriptor, for example together with all others.
                // Another file may now have its number, and must not be closed here.
                Err(Errno::BADF | Errno::INVAL) => {
                    std::mem::forget(self.inotify.take());
                    self.live.clear();
                }
                added => return added.ok(),
            }
        }
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let added = add(&inotify).ok();
        self.inotify = Some(inotify);
        added
    }

    /// Reads the queue, which has at most one report for each watch ever made. If the queue has
    /// overflowed, reports are lost, and the files that they concern still count as referenced.
    fn read_events(&mut self) {
        let Some(inotify) = self.inotify.as_ref().filter(|_| !self.live.is_empty()) else { return };
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut reader = Reader::new(inotify.as_fd(), &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::IGNORED)
                && let Some(released) = self.live.remove(&event.wd())
            {
                released.store(true, Ordering::Relaxed);
            }
        }
    }
}

fn lock() -> Option<MutexGuard<'static, Watches>> {
    Some(WATCHES.get().ok()?.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::fs::{MemfdFlags, Mode, OFlags};
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;
    use crate::sys::child::in_child;
    use crate::sys::region::{OwnRegion, PeerRegion};
    use crate::sys::socket;

    const SIZE: usize = 8192;

    fn is_released(watch: &ReleaseWatch) -> bool {
        ReleaseWatch::update();
        watch.is_released()
    }

    /// Waits, because a child that another test forks refers to all open files for a short time.
    fn is_soon_released(watch: &ReleaseWatch) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_released(watch) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        watch.is_released()
    }

    fn memfd() -> (OwnedFd, ReleaseWatch) {
        let fd = rustix::fs::memfd_create("watched", MemfdFlags::CLOEXEC).expect("memfd");
        let watch = ReleaseWatch::new(fd.as_fd()).expect("a watch");
        (fd, watch)
    }

    #[test]
    fn memory_is_released_with_its_last_mapping() {
        let (own, fd) = OwnRegion::new("test", SIZE).expect("region");
        let watch = ReleaseWatch::new(fd.as_fd()).expect("a watch");
        let peer = PeerRegion::map(fd.as_fd(), SIZE).expect("fit");
        drop(fd);
        assert!(!is_released(&watch));
        drop(own);
        assert!(!is_released(&watch), "the peer's mapping");
        drop(peer);
        assert!(is_soon_released(&watch));
    }

    /// A write lease would not detect these references: the kernel grants a lease while only such
    /// descriptors are left.
    #[test]
    fn path_descriptor_and_queued_message_keep_memory_held() {
        let (fd, watch) = memfd();
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let path = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let (domain, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let pair = rustix::net::socketpair(domain, kind, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair.expect("a pair");
        socket::send(&ours, b"x", &[fd.as_fd()]).expect("sent");
        drop(fd);
        assert!(!is_released(&watch));
        drop(path);
        assert!(!is_released(&watch), "in the queue");
        drop((ours, theirs));
        assert!(is_soon_released(&watch));
    }

    #[test]
    fn dropped_watch_does_not_affect_other_watches() {
        let (first, dropped) = memfd();
        let (second, watch) = memfd();
        drop(dropped);
        drop(first);
        assert!(!is_released(&watch));
        drop(second);
        assert!(is_soon_released(&watch));
    }

    #[test]
    fn drop_in_forked_child_keeps_watch_of_parent() {
        let (fd, watch) = memfd();
        let inherited = &watch;
        assert!(in_child(move || {
            // SAFETY: this is a copy of the parent's handle; each process uses only its own copy.
            drop(unsafe { std::ptr::read(inherited) });
            let (own, watch) = memfd();
            drop(own);
            is_soon_released(&watch)
        }));
        assert!(!is_released(&watch));
        drop(fd);
        assert!(is_soon_released(&watch));
    }
}

//! Another process's life, seen from here: [`Watch`].
//!
//! A watch maps the other's page read-only after checking what the kernel says of it, and believes
//! nothing that stands in it except where the life word is, after checking that it lies inside the
//! mutex. A process that lies can look alive for ever or dead at will; it can do no other harm.
//!
//! Neighbours: [`crate::sys::region`] checks and maps, [`super::word`] knows the layout. A watch
//! does not wait: for that there are pidfds and connections.

#![allow(unsafe_code, reason = "reads words that another process writes")]

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::word::{self, DESKS, Layout, MAGIC, MUTEX_AT, MUTEX_END, PAGE_SIZE, VERSION};
use crate::error::{Error, Peer, Result};
use crate::sys::region::PeerRegion;

/// The kernel's own name for a user that it cannot name.
const NOBODY: u32 = 65534;

/// Tells whether another process is still alive, for the price of one load.
///
/// A forked child inherits it in working order.
#[derive(Debug)]
pub struct Watch {
    /// The life word, inside `region`.
    word: NonNull<AtomicU32>,
    region: PeerRegion,
}

// SAFETY: the mapping is the process's, not a thread's, and is unmapped by whoever drops it last.
unsafe impl Send for Watch {}
// SAFETY: shared access is loads of atomics.
unsafe impl Sync for Watch {}

impl Watch {
    /// Watches the process whose [`Life::descriptor`](super::Life::descriptor) this is. The
    /// descriptor is not needed afterwards.
    ///
    /// # Errors
    /// [`Error::Protocol`] where it is something else, [`Error::Version`] where it is another
    /// version's, [`Error::System`] where it cannot be mapped.
    pub fn from_descriptor(descriptor: impl AsFd) -> Result<Self> {
        let fd = descriptor.as_fd();
        let peer = || Peer { pid: None, uid: maker(fd).unwrap_or(NOBODY) };
        let region = PeerRegion::map(fd, PAGE_SIZE).map_err(|unfit| unfit.into_error(peer()))?;
        Self::new(region, peer)
    }

    /// Like [`Watch::from_descriptor`], but of a page that is mapped already, and of a peer that
    /// the kernel has named.
    ///
    /// # Errors
    /// [`Error::Protocol`] and [`Error::Version`].
    pub(crate) fn of_peer(page: PeerRegion, peer: Peer) -> Result<Self> {
        Self::new(page, || peer)
    }

    /// Returns the page, still mapped.
    pub(crate) fn into_page(self) -> PeerRegion {
        self.region
    }

    /// Whether it is alive: one load, one test.
    ///
    /// *Dead* is final. *Alive* was true a moment ago; a stopped process is alive.
    #[inline]
    pub fn is_alive(&self) -> bool {
        // SAFETY: the word lies inside the mapping, which lives as long as `self`, and is aligned
        // (checked in `map`); the memory is written by atomic instructions only.
        word::is_held(unsafe { self.word.as_ref() })
    }

    /// The word that says whether the receiver at this desk sleeps; none where there is no such
    /// desk. The index is the peer's claim.
    #[inline]
    pub(crate) fn sleeping(&self, desk: u32) -> Option<&AtomicU32> {
        (desk < DESKS).then(|| &self.layout().desks[desk as usize].sleeping)
    }

    fn new(region: PeerRegion, peer: impl Fn() -> Peer) -> Result<Self> {
        let wrong = |what| Err(Error::Protocol { peer: peer(), what });
        if region.size() != PAGE_SIZE {
            return wrong("expected a process page, found memory of another size");
        }
        let mut watch = Self { word: region.base().cast(), region };
        let page = watch.layout();
        if page.magic.load(Ordering::Relaxed) != MAGIC {
            return wrong("expected a process page, found other bytes at its start");
        }
        let theirs = page.version.load(Ordering::Relaxed);
        if theirs != VERSION {
            return Err(Error::Version { ours: VERSION, theirs });
        }
        // Read once: the owner may change it at any time.
        let at = page.life.load(Ordering::Relaxed) as usize;
        if !(MUTEX_AT..=MUTEX_END - size_of::<u32>()).contains(&at) || !at.is_multiple_of(4) {
            return wrong("expected the life word inside the page's mutex, found it elsewhere");
        }
        // SAFETY: `at` lies inside the mapping, by the check above and the layout's.
        watch.word = unsafe { watch.region.base().add(at) }.cast();
        Ok(watch)
    }

    #[inline]
    fn layout(&self) -> &Layout {
        // SAFETY: the mapping is as large as the layout, aligned to a page, and lives as long as
        // `self`. What is read through it are atomics, valid whatever stands in them.
        unsafe { self.region.base().cast().as_ref() }
    }
}

/// The user that made a memfd. A file of another kind is not asked: its file system might never
/// answer.
fn maker(fd: BorrowedFd<'_>) -> Option<u32> {
    rustix::fs::fcntl_get_seals(fd).ok()?;
    rustix::fs::fstat(fd).ok().map(|file| file.st_uid)
}

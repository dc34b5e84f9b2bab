//! The life of another process, read from this one: [`Watch`].
//!
//! A [`Watch`] maps the peer's page read-only after checking what the kernel reports about the
//! page. It uses no content of the page except the offset of the liveness word, after checking that
//! the word is inside the mutex. A malicious process can look alive indefinitely, or dead at
//! will, but can do no other harm.
//!
//! Neighbours: [`crate::sys::region`] checks and maps the page, [`super::word`] defines its layout.
//! A watch does not wait; callers wait on pidfds and connections.

#![allow(unsafe_code, reason = "reads words that another process writes")]

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::word::{self, DESKS, Layout, MAGIC, MUTEX_AT, MUTEX_END, PAGE_SIZE, VERSION};
use crate::error::{Error, Peer, Result};
use crate::sys::region::PeerRegion;

/// The kernel's overflow uid, for a user without an id in this user namespace.
const OVERFLOW_UID: u32 = 65534;

/// Another process's liveness word, which one load reads.
///
/// A `Watch` is [`Send`] and [`Sync`]. A forked child inherits it and can use it.
///
/// # Examples
/// ```
/// use std::os::fd::OwnedFd;
/// use tontine::life::{Life, Watch};
///
/// # use std::os::fd::AsFd;
/// # let received = Life::register()?.as_fd().try_clone_to_owned().expect("a descriptor");
/// // The descriptor of the other process's `Life`, received over a Unix socket.
/// let received: OwnedFd = received;
/// let watch = Watch::from_fd(&received)?;
/// drop(received);
/// if watch.is_alive() {
///     println!("its process was alive a moment ago");
/// }
/// # Ok::<(), tontine::Error>(())
/// ```
#[derive(Debug)]
pub struct Watch {
    /// The liveness word, inside `region`.
    word: NonNull<AtomicU32>,
    region: PeerRegion,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is unmapped by the thread that
// drops the watch.
unsafe impl Send for Watch {}
// SAFETY: shared access only loads atomics.
unsafe impl Sync for Watch {}

impl Watch {
    /// Watches the process to whose [`Life`](super::Life) this descriptor belongs. The watch does
    /// not need the descriptor afterwards.
    ///
    /// # Errors
    /// - [`Error::Protocol`] if the descriptor does not belong to a life.
    /// - [`Error::VersionMismatch`] if it belongs to a life of another layout version.
    /// - [`Error::System`] if its page cannot be mapped.
    pub fn from_fd(fd: impl AsFd) -> Result<Self> {
        let fd = fd.as_fd();
        let peer = || Peer { pid: None, uid: maker(fd).unwrap_or(OVERFLOW_UID) };
        let region = PeerRegion::map(fd, PAGE_SIZE).map_err(|unfit| unfit.into_error(peer()))?;
        Self::new(region, peer)
    }

    /// Like [`Watch::from_fd`], but for a page that is mapped already and a peer that the kernel
    /// has identified.
    ///
    /// # Errors
    /// [`Error::Protocol`] and [`Error::VersionMismatch`], like [`Watch::from_fd`].
    pub(crate) fn of_peer(page: PeerRegion, peer: Peer) -> Result<Self> {
        Self::new(page, || peer)
    }

    /// Returns the page, still mapped.
    pub(crate) fn into_page(self) -> PeerRegion {
        self.region
    }

    /// Returns `true` while the process lives (one load, one test).
    ///
    /// `false` is final. `true` may already be outdated. A stopped process is alive.
    ///
    /// # Examples
    /// ```
    /// use tontine::life::{Life, Watch};
    ///
    /// // Usually the descriptor of another process's life; here this process watches itself.
    /// let watch = Watch::from_fd(Life::register()?)?;
    /// assert!(watch.is_alive());
    /// # Ok::<(), tontine::Error>(())
    /// ```
    #[inline]
    pub fn is_alive(&self) -> bool {
        // SAFETY: the word is inside the mapping, which exists as long as `self` does, and is
        // aligned (checked in `new`); its owner and the kernel write it only through atomic
        // instructions.
        word::is_held(unsafe { self.word.as_ref() })
    }

    /// Returns the word that is not 0 while the receiver of the mailbox slot with this index
    /// sleeps, or `None` if the page has no such slot. The index is an untrusted value from the
    /// peer.
    #[inline]
    pub(crate) fn sleeping(&self, desk: u32) -> Option<&AtomicU64> {
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
            return Err(Error::VersionMismatch { ours: VERSION, theirs });
        }
        // The offset is read once, because the owner may change it at any time.
        let at = page.life.load(Ordering::Relaxed) as usize;
        if !(MUTEX_AT..=MUTEX_END - size_of::<u32>()).contains(&at) || !at.is_multiple_of(4) {
            return wrong("expected the liveness word inside the page's mutex, found it elsewhere");
        }
        // SAFETY: `at` is inside the mapping, by the check above and those of the layout.
        watch.word = unsafe { watch.region.base().add(at) }.cast();
        Ok(watch)
    }

    #[inline]
    fn layout(&self) -> &Layout {
        // SAFETY: the mapping is as large as the layout, aligned to a page, and exists as long as
        // `self` does. All fields that are read are atomics, for which each bit pattern is valid.
        unsafe { self.region.base().cast().as_ref() }
    }
}

/// Returns the user that made a memfd. Does not call `fstat` for any other kind of file, because
/// its file system might never answer.
fn maker(fd: BorrowedFd<'_>) -> Option<u32> {
    rustix::fs::fcntl_get_seals(fd).ok()?;
    rustix::fs::fstat(fd).ok().map(|file| file.st_uid)
}

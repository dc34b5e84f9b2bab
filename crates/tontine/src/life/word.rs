//! The process page and its liveness word, which the kernel marks: [`LifePage`].
//!
//! The word is the lock word of a robust, process-shared pthread mutex. Its offset in the mutex
//! depends on the C library; [`robust_list`] finds it once. One test of the word is enough: when
//! the kernel sets the mark, it also clears the thread id (`handle_futex_death`), so a word with a
//! thread id has a live owner.
//!
//! Neighbours: [`super::Life`] owns a page permanently, [`super::watch`] reads a peer's page,
//! [`super::mailbox_slot`] uses the words after the mutex. Nothing here waits for the mutex.

#![allow(unsafe_code, reason = "a robust mutex in shared memory")]

use std::cell::UnsafeCell;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::sys::region::OwnRegion;

pub(super) use super::robust_list::is_held;
use super::robust_list::{self, lock_word};

/// Bytes of a process page: the smallest multiple of 4,096 with space for all slots. Slots that no
/// mailbox uses stay zero.
pub(crate) const PAGE_SIZE: usize = 69_632;
/// The bytes `TONTPROC`, in memory order.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"TONTPROC");
/// Version of the protocol.
pub(super) const VERSION: u32 = 4;
/// Number of mailbox slots in a page.
pub(super) const DESKS: u32 = 1024;

/// Number of bytes that the page reserves for the mutex, enough for any C library.
const MUTEX_SPACE: usize = 64;

/// The page, as its owner and its peers see it. The owner may write all of it at any time.
#[repr(C, align(64))]
pub(super) struct Layout {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU32,
    /// Bytes from the page's start to the liveness word.
    pub(super) life: AtomicU32,
    /// The process id, for debugging only: in another PID namespace it identifies no process.
    pub(super) pid: AtomicU32,
    unused: [AtomicU32; 11],
    mutex: UnsafeCell<[u64; MUTEX_SPACE / 8]>,
    pub(super) desks: [DeskLayout; DESKS as usize],
}

/// The words by which one mailbox of the process informs its senders.
#[repr(C, align(64))]
pub(super) struct DeskLayout {
    /// The number of the wait, not 0, while the mailbox's receiver sleeps, or is about to sleep.
    pub(super) sleeping: AtomicU64,
}

/// Offset of the mutex, which contains the liveness word.
pub(super) const MUTEX_AT: usize = offset_of!(Layout, mutex);
/// Offset of the first byte after the mutex.
pub(super) const MUTEX_END: usize = MUTEX_AT + MUTEX_SPACE;

const _: () = {
    assert!(offset_of!(Layout, magic) == 0);
    assert!(offset_of!(Layout, version) == 8);
    assert!(offset_of!(Layout, life) == 12);
    assert!(offset_of!(Layout, pid) == 16);
    assert!(offset_of!(Layout, mutex) == 64);
    assert!(offset_of!(Layout, desks) == 128);
    assert!(offset_of!(DeskLayout, sleeping) == 0);
    assert!(size_of::<DeskLayout>() == 64);
    assert!(size_of::<Layout>().next_multiple_of(4096) == PAGE_SIZE);
    assert!(size_of::<libc::pthread_mutex_t>() <= MUTEX_SPACE);
    assert!(align_of::<libc::pthread_mutex_t>() <= 64);
};

/// This process's page, whose word is held by the thread that made the page.
#[derive(Debug)]
pub(super) struct LifePage {
    region: OwnRegion,
    fd: OwnedFd,
    /// Bytes from the page's start to the liveness word.
    word_at: usize,
}

// SAFETY: threads that share `&LifePage` access only atomics, in memory that stays mapped as long
// as the page exists. Only the thread that makes the page accesses the mutex, and only while it
// makes the page.
unsafe impl Sync for LifePage {}

impl AsFd for LifePage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl LifePage {
    /// Makes a page whose word the calling thread holds permanently. Dropping a held page would
    /// leave a dangling entry in the thread's list, so [`super::Life`] leaks the page.
    ///
    /// # Errors
    /// [`Error::CannotRegister`] if the kernel would never mark the word; else [`Error::System`].
    pub(super) fn hold() -> Result<Self> {
        // The check precedes the C library's first access to its list: a process made by a bare
        // clone inherits a list whose entries are not mapped in it.
        if cfg!(target_env = "gnu") {
            robust_list::own()?;
        }
        let (region, fd) = OwnRegion::new("tontine-life", PAGE_SIZE)?;
        let mut page = Self { region, fd, word_at: MUTEX_AT };
        page.make_mutex()?;
        // SAFETY: the mutex was just initialised, and no other thread can access it yet.
        zero_is_ok("pthread_mutex_lock", unsafe { libc::pthread_mutex_lock(page.mutex()) })?;
        // SAFETY: this thread locked the mutex above; a page whose word is found is never unmapped.
        match unsafe { lock_word(page.mutex()) } {
            Ok(word) => page.word_at = word as usize - page.region.base().as_ptr() as usize,
            Err(error) => {
                // SAFETY: this thread locked the mutex above; unlocking removes the mutex from the
                // list before it is unmapped.
                unsafe { libc::pthread_mutex_unlock(page.mutex()) };
                return Err(error);
            }
        }
        let layout = page.layout();
        layout.version.store(VERSION, Ordering::Relaxed);
        layout.life.store(page.word_at as u32, Ordering::Relaxed);
        layout.pid.store(std::process::id(), Ordering::Relaxed);
        // The descriptor is passed later, by a system call, so no process sees a half-made page.
        layout.magic.store(MAGIC, Ordering::Relaxed);
        Ok(page)
    }

    /// Returns `true` while the thread that made the page lives.
    pub(super) fn is_held(&self) -> bool {
        is_held(self.word())
    }

    pub(super) fn layout(&self) -> &Layout {
        // SAFETY: the mapping is at least as large as the layout, aligned to a page, and exists as
        // long as `self` does; all fields are atomics, cells or unused.
        unsafe { self.region.base().cast().as_ref() }
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: `word_at` is inside the mutex and is aligned (`lock_word`); the C library, the
        // kernel and this module access the word through atomic instructions.
        unsafe { self.region.base().add(self.word_at).cast().as_ref() }
    }

    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        self.layout().mutex.get().cast()
    }

    fn make_mutex(&self) -> Result<()> {
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are initialised first and destroyed last; no thread uses the mutex
        // yet, and its memory is large and aligned enough (asserted above).
        let code = unsafe {
            libc::pthread_mutexattr_init(attributes);
            let mut code =
                libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED);
            if code == 0 {
                code = libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST);
            }
            if code == 0 {
                code = libc::pthread_mutex_init(self.mutex(), attributes);
            }
            libc::pthread_mutexattr_destroy(attributes);
            code
        };
        zero_is_ok("pthread_mutex_init", code)
    }
}

fn zero_is_ok(call: &'static str, code: i32) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::system(call, rustix::io::Errno::from_raw_os_error(code))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_held_until_creating_thread_ends() {
        let page = std::thread::spawn(|| {
            let page = LifePage::hold().expect("page");
            assert!(page.is_held());
            page
        });
        let page = page.join().expect("thread");
        // `join` returns once the C library has ended the thread; the kernel may still be ending
        // it.
        for _ in 0..60_000 {
            if !page.is_held() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the word is held a minute after its thread ended");
    }
}

//! The calling thread's list of robust mutexes, which the kernel walks when the thread ends:
//! [`own`], [`lock_word`].
//!
//! The C library registers the list with the kernel and links each robust mutex that the thread
//! holds. The offset of the lock word in a mutex depends on the C library; the list reveals that
//! offset. This module is not part of the public interface; it is `pub` only for the experiment
//! that compares ways to detect a death.
//!
//! Neighbours: `word` uses it to find the liveness word.
//!
//! Sources: Linux `Documentation/locking/robust-futexes.rst`, `kernel/futex/core.c`
//! (`handle_futex_death`); `get_robust_list(2)`.

#![allow(unsafe_code, reason = "walks a list that belongs to the C library")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};

/// The bits of a lock word that hold the id of the owning thread: 0 when the mutex is unlocked, and
/// 0 again once the kernel has marked the owner's death.
pub const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

/// Maximum number of entries of a robust list that the kernel walks (`ROBUST_LIST_LIMIT`).
const LIST_LIMIT: usize = 2048;

const NOT_REGISTERED: Error = Error::CannotRegister {
    reason: "expected a list of robust mutexes, registered by the C library, and found none, as in \
             a process or thread made by a bare clone; make it by fork, or by pthread_create",
};
const NO_ROBUST_LISTS: Error = Error::CannotRegister {
    reason: "expected a kernel that marks the locks of dead threads (get_robust_list), and found \
             none, as in qemu-user; run the program on a kernel, or in a virtual machine",
};
const NOT_LISTED: Error = Error::CannotRegister {
    reason: "expected the mutex that it locked in its list of robust mutexes and did not find it; \
             use a C library that keeps this list, such as glibc or musl",
};
const NOT_THIS_THREAD: Error = Error::CannotRegister {
    reason: "expected its own thread id in the mutex that it locked and found another thread's, as \
             in a process made by a bare clone; make it by fork",
};

/// `struct robust_list_head`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Head {
    /// The first entry, or the head itself.
    pub next: *mut c_void,
    /// Bytes from an entry to its lock word.
    pub futex_offset: libc::c_long,
    /// The entry that is being added or removed.
    pub pending: *mut c_void,
}

/// Returns `true` if the word has a live owner (one load, one test).
#[inline(always)]
pub fn is_held(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) & FUTEX_TID_MASK != 0
}

/// Returns the calling thread's list.
///
/// # Errors
/// [`Error::CannotRegister`] if no list of the expected length is registered; [`Error::System`] if
/// the kernel does not return it.
pub fn own() -> Result<*const Head> {
    let mut head: *const Head = std::ptr::null();
    let mut length = 0_usize;
    // SAFETY: the call writes one pointer and one length to two local variables.
    let code =
        unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut length) };
    if code != 0 {
        return Err(match Error::last("get_robust_list") {
            error if error.errno() == libc::ENOSYS => NO_ROBUST_LISTS,
            error => error,
        });
    }
    if head.is_null() || length != size_of::<Head>() { Err(NOT_REGISTERED) } else { Ok(head) }
}

/// Returns the lock word of a robust mutex that the calling thread has just locked.
///
/// # Errors
/// - [`Error::CannotRegister`] if the kernel would never mark the word: it is not in this thread's
///   list, or names another thread, because in a process made by a bare `clone` the C library still
///   has the parent's thread id.
/// - [`Error::System`] if the kernel does not return the list.
///
/// # Safety
/// 1. `mutex` is valid for reads and writes as long as the returned word is used.
/// 2. The calling thread holds `mutex`.
pub unsafe fn lock_word(mutex: *mut libc::pthread_mutex_t) -> Result<*mut u32> {
    let head = own()?;
    let last = size_of::<libc::pthread_mutex_t>() - size_of::<u32>();
    // SAFETY: the head is this thread's, registered by the C library, and no other thread changes
    // it while this thread runs.
    let Head { mut next, futex_offset, .. } = unsafe { *head };
    for _ in 0..LIST_LIMIT {
        if next.cast_const().cast() == head {
            break;
        }
        // The lowest bit distinguishes priority-inheritance mutexes from plain ones.
        let node = next as usize & !1;
        let word = node.wrapping_add_signed(futex_offset as isize);
        let at = word.wrapping_sub(mutex as usize);
        if at <= last && at.is_multiple_of(align_of::<u32>()) {
            // SAFETY: the word is inside the mutex, as was just checked.
            let word: *mut u32 = unsafe { mutex.cast::<u8>().add(at).cast() };
            // SAFETY: the word is aligned, and valid by the caller's guarantee; the C library, the
            // kernel and this function access it through atomic instructions. Relaxed suffices,
            // because this thread's own lock operation stored the word.
            let owner = unsafe { AtomicU32::from_ptr(word) }.load(Ordering::Relaxed);
            let this = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            return if owner & FUTEX_TID_MASK == this { Ok(word) } else { Err(NOT_THIS_THREAD) };
        }
        // SAFETY: an entry of this thread's list is the node of a mutex that it holds; the link is
        // the node's first field.
        next = unsafe { *(node as *const *mut c_void) };
    }
    Err(NOT_LISTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_held_is_correct_in_every_word_state() {
        const WAITERS: u32 = 1 << 31;
        const OWNER_DIED: u32 = 1 << 30;
        for (word, held) in [
            (0, false),
            (WAITERS, false),
            (4711, true),
            (4711 | WAITERS, true),
            (OWNER_DIED, false),
            (OWNER_DIED | WAITERS, false),
            (FUTEX_TID_MASK, true),
        ] {
            assert_eq!(is_held(&AtomicU32::new(word)), held, "{word:#x}");
        }
    }
}

//! Detection of forked children by handles that their parent made: [`Guard`], [`PerProcess`].
//!
//! A guard is a word in a page that the kernel zeroes in every forked child (`MADV_WIPEONFORK`): 1
//! in the process that made it, 0 in each of its descendants, whether `fork`, a bare `clone` or a
//! library made them. A child that requests its own guard finds the inherited word zeroed and makes
//! a new page, so inherited handles stay invalid and new ones work.
//!
//! A child that shares its parent's memory (`vfork`, threads) is not detected. Neighbours:
//! [`super::region`] keeps a guard in each region that is not inherited; `life` and the path locks
//! keep their process-wide state in a [`PerProcess`].

#![allow(unsafe_code, reason = "an anonymous mapping, and pointers that are never freed")]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::error::{Error, Result};

/// Length in bytes of the mapping, which the kernel rounds up to whole pages.
const PAGE_SIZE: usize = 4096;

/// The word that was made last. In a forked child, the parent's word until the child makes its own.
static NEWEST: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Detects whether the current process is the process that made the guard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard(&'static AtomicU32);

impl Guard {
    /// Returns a guard of the calling process. All guards of a process share one word, unless
    /// several threads make the first guard at the same time.
    ///
    /// # Errors
    /// [`Error::System`] if no page can be mapped.
    pub(crate) fn here() -> Result<Self> {
        // SYNC newest-guard: pairs with the exchange below, so that the word is seen as 1.
        let newest = NEWEST.load(Ordering::Acquire);
        // SAFETY: a word that was published is never unmapped.
        if let Some(word) = unsafe { newest.as_ref() }
            && word.load(Ordering::Relaxed) != 0
        {
            return Ok(Self(word));
        }
        let word = wiped_on_fork()?;
        word.store(1, Ordering::Relaxed);
        // If another thread was faster, both words stay in use, because both belong to this
        // process.
        // SYNC newest-guard: pairs with the load above.
        let _ = NEWEST.compare_exchange(
            newest,
            ptr::from_ref(word).cast_mut(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        Ok(Self(word))
    }

    /// Returns `true` if this process is a forked descendant of the process that made the guard
    /// (one load).
    #[inline(always)]
    pub(crate) fn is_forked(self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// A `T` per process, made at its first use. A forked child makes its own value, so that no
/// thread that does not exist in the child can hold a lock in it.
#[derive(Debug)]
pub(crate) struct PerProcess<T: 'static> {
    newest: AtomicPtr<ForkMarker<T>>,
    make: fn() -> T,
}

#[derive(Debug)]
struct ForkMarker<T> {
    guard: Guard,
    value: T,
}

impl<T: Sync> PerProcess<T> {
    pub(crate) const fn new(make: fn() -> T) -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()), make }
    }

    /// Returns this process's value, if it was already made.
    #[inline]
    pub(crate) fn peek(&'static self) -> Option<&'static T> {
        // SYNC per-process: pairs with the exchange in `get`.
        let newest = self.newest.load(Ordering::Acquire);
        // SAFETY: a published value is never freed; `T: Sync` allows threads to share it.
        let made = unsafe { newest.as_ref() }?;
        (!made.guard.is_forked()).then_some(&made.value)
    }

    /// Returns this process's value, and makes it if necessary.
    ///
    /// # Errors
    /// The errors of [`Guard::here`].
    pub(crate) fn get(&'static self) -> Result<&'static T> {
        if let Some(value) = self.peek() {
            return Ok(value);
        }
        let stale = self.newest.load(Ordering::Relaxed);
        if let Some(value) = self.peek() {
            return Ok(value);
        }
        let made =
            Box::into_raw(Box::new(ForkMarker { guard: Guard::here()?, value: (self.make)() }));
        // SYNC per-process: pairs with the load in `peek`, and with itself in another thread.
        match self.newest.compare_exchange(stale, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the value was just made by `Box::into_raw`, was published, and is never
            // freed.
            Ok(_) => Ok(unsafe { &(*made).value }),
            Err(newer) => {
                // SAFETY: `made` was not published. `newer` has just replaced `stale`, so another
                // thread of this process published it; it is never freed.
                unsafe {
                    drop(Box::from_raw(made));
                    Ok(&(*newer).value)
                }
            }
        }
    }
}

fn wiped_on_fork() -> Result<&'static AtomicU32> {
    let flags = MapFlags::PRIVATE;
    // SAFETY: this is a new mapping at an address that the kernel chooses; no other memory is
    // changed.
    unsafe {
        let page = rustix::mm::mmap_anonymous(
            ptr::null_mut(),
            PAGE_SIZE,
            ProtFlags::READ | ProtFlags::WRITE,
            flags,
        )
        .map_err(|errno| Error::system("mmap", errno))?;
        if let Err(errno) = rustix::mm::madvise(page, PAGE_SIZE, Advice::LinuxWipeOnFork) {
            let _ = rustix::mm::munmap(page, PAGE_SIZE);
            return Err(Error::system("madvise(MADV_WIPEONFORK)", errno));
        }
        Ok(&*page.cast::<AtomicU32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::child::in_child;

    static COUNTED: PerProcess<AtomicU32> = PerProcess::new(|| AtomicU32::new(0));

    #[test]
    fn guard_distinguishes_each_forked_generation() {
        let ours = Guard::here().expect("guard");
        assert!(!ours.is_forked());
        assert!(in_child(|| {
            let inherited_is_dead = ours.is_forked();
            let Ok(childs) = Guard::here() else { return false };
            let grandchild = in_child(|| {
                let both_dead = ours.is_forked() && childs.is_forked();
                both_dead && Guard::here().is_ok_and(|own| !own.is_forked())
            });
            inherited_is_dead && !childs.is_forked() && ours.is_forked() && grandchild
        }));
        assert!(!ours.is_forked());
        assert!(!Guard::here().expect("guard").is_forked());
    }

    #[test]
    fn forked_child_creates_fresh_value() {
        COUNTED.get().expect("value").store(5, Ordering::Relaxed);
        assert!(in_child(|| {
            COUNTED.peek().is_none()
                && COUNTED.get().is_ok_and(|value| value.load(Ordering::Relaxed) == 0)
                && COUNTED.peek().is_some()
        }));
        assert_eq!(COUNTED.peek().expect("value").load(Ordering::Relaxed), 5);
    }
}

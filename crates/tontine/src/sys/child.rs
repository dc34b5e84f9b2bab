//! Forked children for tests: [`in_child`].

#![allow(unsafe_code, reason = "fork")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Time in seconds after which a hanging child is killed.
const LIMIT_S: u32 = 60;

/// Number of children of this process.
static CHILDREN: Mutex<usize> = Mutex::new(0);

/// Notified when there is no child.
static NO_CHILD: Condvar = Condvar::new();

/// `true` in a child.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Waits until no other test has a child, and keeps other tests from forking while the guard
/// exists. A child holds copies of all descriptors, so a test that expects an effect of closing the
/// last one needs this guard.
pub(crate) fn no_children() -> MutexGuard<'static, usize> {
    NO_CHILD.wait_while(children(), |count| *count > 0).unwrap_or_else(PoisonError::into_inner)
}

fn children() -> MutexGuard<'static, usize> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a child while it exists.
struct CountedChild;

impl CountedChild {
    fn new() -> Self {
        *children() += 1;
        Self
    }
}

impl Drop for CountedChild {
    fn drop(&mut self) {
        *children() -= 1;
        NO_CHILD.notify_all();
    }
}

/// Forks a child that runs `body` and exits. Returns `true` if `body` returned `true`, and the
/// child neither was killed nor panicked.
///
/// The C library's allocator works in the child. Locks that another thread of this process held at
/// the fork stay locked, so `body` must not print.
pub(crate) fn in_child(body: impl FnOnce() -> bool) -> bool {
    // A child's copy of the lock may be held by a thread that the child does not have.
    let _counted = (!IS_CHILD.load(Ordering::Relaxed)).then(CountedChild::new);
    // SAFETY: the child runs on a copy of this thread and exits through `_exit`, without returning
    // to the caller's frames.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            IS_CHILD.store(true, Ordering::Relaxed);
            let body = AssertUnwindSafe(body);
            // SAFETY: the calls take integers; the second ends the process.
            unsafe {
                libc::alarm(LIMIT_S);
                libc::_exit(i32::from(!catch_unwind(body).unwrap_or(false)))
            }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` is writable.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1 {
                let error = std::io::Error::last_os_error();
                assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "waitpid: {error}");
            }
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

//! Forked children for tests: [`in_child`].

#![allow(unsafe_code, reason = "fork")]

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Time in seconds after which a hanging child is killed.
const LIMIT_S: u32 = 60;

/// Forks a child that runs `body` and exits. Returns `true` if `body` returned `true`, and the
/// child neither was killed nor panicked.
///
/// The C library's allocator works in the child. Locks that another thread of this process held at
/// the fork stay locked, so `body` must not print.
pub(crate) fn in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs on a copy of this thread and exits through `_exit`, without returning
    // to the caller's frames.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
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

//! For tests: a forked child that runs a check and leaves.

#![allow(unsafe_code, reason = "fork")]

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A child that hangs is killed after so long.
const LIMIT_S: u32 = 60;

/// Forks; the child runs `body` and leaves. Whether it returned true, not killed and not panicked.
///
/// The C library's allocator works in the child. What another thread of this process may have
/// locked at the moment of the fork does not: `body` prints nothing.
pub(crate) fn in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs on a copy of this thread and leaves by `_exit`, never returning into
    // the caller's frames.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let body = AssertUnwindSafe(body);
            // SAFETY: a timer, and the process's end.
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

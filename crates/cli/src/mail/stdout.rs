//! A check that standard output was closed before the program began: [`was_closed`].
//!
//! Before `main`, Rust's runtime opens `/dev/null` for those of the descriptors 0 to 2 that are
//! closed. After that, a closed standard output is the same as a `/dev/null` that the user chose,
//! and accepts all output. A function in `.init_array` runs before the runtime and checks the
//! descriptor.

#![allow(unsafe_code, reason = "runs before main, and checks a descriptor that may be closed")]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls each function in this section once, before `main`, with arguments that a
// function without parameters ignores. The function makes only a system call and a store, which
// need no preparation by the runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static CHECK: extern "C" fn() = check;

extern "C" fn check() {
    // SAFETY: the descriptor is used for one call, which fails if it is not open.
    let stdout = unsafe { BorrowedFd::borrow_raw(1) };
    let closed = rustix::io::fcntl_getfd(stdout).is_err();
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Returns `true` if standard output was closed when the program began.
pub(super) fn was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

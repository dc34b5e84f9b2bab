//! What is written to a terminal arrives by a worker of the kernel: [`settle`] waits until it has.

#![allow(unsafe_code, reason = "terminals by their descriptors")]

use std::sync::atomic::Ordering::SeqCst;

use super::region::Shared;

/// So long the worker is waited for, in microseconds.
const WORKER_US: u32 = 300;

/// Called by who has just written to `descriptor`. To look whether a terminal can be read makes the
/// kernel empty what was typed into the line discipline first, in this thread: signals included.
/// The other end is opened for that where there is one; a program's output goes the other way, and
/// is the conductor's to wait for.
pub(super) fn settle(shared: &Shared, descriptor: i32) {
    // SAFETY: calls that take any descriptor; what is opened here is closed here.
    unsafe {
        if libc::isatty(descriptor) == 0 {
            return;
        }
        shared.typed.store(1, SeqCst);
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let other = libc::ioctl(descriptor, libc::TIOCGPTPEER, flags);
        for end in [other, descriptor] {
            let mut ready = libc::pollfd { fd: end, events: libc::POLLIN, revents: 0 };
            libc::poll(&raw mut ready, 1, 0);
            // Where something can be read already nothing was emptied: the worker has to come.
            if ready.revents & libc::POLLIN != 0 {
                libc::usleep(WORKER_US);
            }
        }
        if other >= 0 {
            libc::close(other);
        }
    }
}

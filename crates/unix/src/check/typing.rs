//! What is written to a terminal arrives by a worker of the kernel: [`settle`] waits until it has.

#![allow(unsafe_code, reason = "terminals by their descriptors")]

use std::sync::atomic::Ordering::SeqCst;

use super::gates::{nap, now_ns};
use super::region::{SeatWords, Shared, place};

/// So long the kernel's worker may take.
const WORKER_NS: u64 = 2_000_000;
/// The worker may want the processor of who waits for it.
const NAP_NS: u64 = 100_000;
/// What was written is on its way, and nobody but a reader can notice.
pub(super) const TO_READERS: u32 = 1;
/// What was written is on its way, and may make signals.
pub(super) const TO_ANYBODY: u32 = 2;

/// Called by who has just written to `descriptor`. To look whether a terminal can be read makes the
/// kernel empty what was typed into the line discipline first, in this thread: signals included;
/// not so if there was something to read before. The other end is opened for that where there is
/// one. A program's output goes the other way. What may still be on its way is the conductor's to
/// wait for.
pub(super) fn settle(shared: &Shared, words: &SeatWords, descriptor: i32) {
    // SAFETY: calls that take any descriptor; what is opened here is closed here.
    unsafe {
        if libc::isatty(descriptor) == 0 {
            return;
        }
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let other = libc::ioctl(descriptor, libc::TIOCGPTPEER, flags);
        let is_readable = |end| {
            let mut ready = libc::pollfd { fd: end, events: libc::POLLIN, revents: 0 };
            libc::poll(&raw mut ready, 1, 0) > 0
        };
        if other < 0 {
            shared.typed.fetch_max(TO_READERS, SeqCst);
        } else {
            if is_readable(other) {
                // The worker has to come by itself. Whoever typed may be whom it signals, and is to
                // be in its call still.
                let until = now_ns() + WORKER_NS;
                while now_ns() < until {
                    // Handlers pass gates meanwhile, and end the nap.
                    words.place.store(place::SETTLES, SeqCst);
                    nap(NAP_NS);
                }
                words.place.store(place::THROUGH, SeqCst);
                shared.typed.fetch_max(TO_ANYBODY, SeqCst);
            } else {
                shared.typed.fetch_max(TO_READERS, SeqCst);
            }
            libc::close(other);
        }
        is_readable(descriptor);
    }
}

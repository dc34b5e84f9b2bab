//! Delivery of the bytes that are written to a terminal. A kernel worker delivers the bytes, and
//! may run late. [`settle`], [`push`] and [`carry`] make the kernel deliver the bytes before they
//! return.
//!
//! A poll for input on a terminal delivers the bytes, unless unread input is already available. In
//! that case a mark is typed after the earlier bytes: a character that stops output, and a
//! character that resumes output. A poll for output on the terminal shows whether the mark has
//! arrived.

#![allow(unsafe_code, reason = "terminals by their descriptors")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
use rustix::termios::{InputModes, SpecialCodeIndex, tcgetattr};

use super::region::{RegionShared, ThreadWords, place};
use super::time::{nap, now_ns};

/// Maximum wait for the kernel's worker.
const WORKER_NS: u64 = 500_000_000;
/// Length of a waiter's naps, during which the worker may use the waiter's processor.
const NAP_NS: u64 = 100_000;
/// Number of polls before the waiter naps.
const QUICK_LOOKS: u32 = 8;

/// Encodes a descriptor as a word that is not 0.
pub(super) const fn to_word(descriptor: i32) -> u32 {
    descriptor.cast_unsigned() + 1
}

/// Returns `true` if a descriptor refers to a terminal.
pub(super) fn is_terminal(descriptor: i32) -> bool {
    // SAFETY: the call takes any descriptor.
    unsafe { libc::isatty(descriptor) == 1 }
}

/// Delivers typed bytes; called by the thread that has just written to `descriptor`. This thread
/// delivers the bytes and the signals that they cause: if a signal is for this thread, the thread
/// is still in its call. If there was already input to read, the thread waits until the init
/// process calls [`push`]. A program's output is delivered in the other direction, where only a
/// reader can notice it.
pub(super) fn settle(shared: &RegionShared, words: &ThreadWords, descriptor: i32) {
    if !is_terminal(descriptor) {
        return;
    }
    // SAFETY: the borrow ends with this function. Another thread may close or reuse the number
    // during this function; the calls below accept any descriptor.
    let written = unsafe { BorrowedFd::borrow_raw(descriptor) };
    if let Some(other) = other_end(written)
        && can(&other, PollFlags::IN)
    {
        words.typed.store(to_word(descriptor), SeqCst);
        shared.settling.store(1, SeqCst);
        while words.typed.load(SeqCst) != 0 {
            // A handler that runs during the nap passes gates, which change the place, and ends the
            // nap.
            words.place.store(place::SETTLES, SeqCst);
            nap(NAP_NS);
        }
        words.place.store(place::THROUGH, SeqCst);
    }
    // The terminal may have echoed typed bytes.
    can(&written, PollFlags::IN);
}

/// Types a mark to the terminal to which `process` has typed, and waits until the mark has arrived.
/// Returns `None` if this is impossible or the mark does not arrive in time.
pub(super) fn push(process: i32, word: u32) -> Option<()> {
    let user = of_process(process, word)?;
    let terminal = other_end(user.as_fd())?;
    let settings = tcgetattr(&terminal).ok()?;
    let is_started = || can(&terminal, PollFlags::OUT);
    let has_flow_control = settings.input_modes.contains(InputModes::IXON);
    if !has_flow_control || !is_started() || !can(&user, PollFlags::OUT) {
        return None;
    }
    let [stop, start] = [SpecialCodeIndex::VSTOP, SpecialCodeIndex::VSTART];
    rustix::io::write(&user, &[settings.special_codes[stop]]).ok()?;
    let has_stopped = wait_until(|| !is_started());
    rustix::io::write(&user, &[settings.special_codes[start]]).ok()?;
    (has_stopped && wait_until(is_started)).then_some(())
}

/// Delivers the bytes for the thread of `process` that sleeps in a read of a terminal. Returns
/// `true` if input is available, and `None` if the terminal cannot be inspected.
pub(super) fn carry(process: i32, word: u32) -> Option<bool> {
    of_process(process, word).map(|read| can(&read, PollFlags::IN))
}

/// Returns a copy of the descriptor of `process` that `word` encodes.
fn of_process(process: i32, word: u32) -> Option<OwnedFd> {
    let pidfd = pidfd_open(Pid::from_raw(process)?, PidfdFlags::empty()).ok()?;
    let number = word.checked_sub(1)?.cast_signed();
    pidfd_getfd(pidfd, number, PidfdGetfdFlags::empty()).ok()
}

/// Opens the end that programs use, of the terminal whose user end is `user`.
fn other_end(user: BorrowedFd<'_>) -> Option<OwnedFd> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    ioctl_tiocgptpeer(user, flags | OpenptFlags::from_bits_retain(libc::O_NONBLOCK as u32)).ok()
}

/// Returns `true` if `end` is ready for one of these events.
fn can(end: &impl AsFd, what: PollFlags) -> bool {
    let mut polled = [PollFd::new(end, what)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().intersects(what)
}

/// Waits until `is_so` returns `true`. Returns `false` if that takes longer than [`WORKER_NS`].
fn wait_until(is_so: impl Fn() -> bool) -> bool {
    let until = now_ns() + WORKER_NS;
    for looks in 0.. {
        if is_so() {
            return true;
        }
        if looks < QUICK_LOOKS {
            rustix::thread::sched_yield();
        } else if now_ns() < until {
            nap(NAP_NS);
        } else {
            break;
        }
    }
    false
}

//! The life of this process, and a watch on the life of another process.

#![allow(unsafe_code, reason = "handles that a program in C holds")]

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};

use tontine::life::{Life, Watch};

use crate::border::{
    CError, Poisonable, answer, answer_cancellable, behind, borrowed, close, hand_over,
};

/// Gives this process a life, which lasts as long as the process. Does nothing if the process
/// already has a life. If the main thread calls this function, the main thread holds the life;
/// otherwise a new anchor thread holds it. Opening a mailbox or a sender does the same, so no
/// program has to call this function. Returns 0; EAGAIN if no thread can be started.
#[unsafe(no_mangle)]
pub extern "C" fn tontine_life_register() -> c_int {
    answer(|| Ok(Life::register().map(|_| 0)?))
}

/// Gives this process a life, if it has none. The calling thread holds it: the life ends with that
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn tontine_life_register_thread() -> c_int {
    answer(|| Ok(Life::register_thread().map(|_| 0)?))
}

/// Gives this process a life, if it has none. A new anchor thread holds it. Use this function in a
/// program whose main thread exits before the process does. The thread takes 64 KiB of address
/// space.
#[unsafe(no_mangle)]
pub extern "C" fn tontine_life_register_anchor_thread() -> c_int {
    answer(|| Ok(Life::register_anchor_thread().map(|_| 0)?))
}

/// Returns the descriptor of this process's life. Pass it to another process, over a Unix socket or
/// by inheritance; tontine_watch_open() in that process returns a watch on this process. ENODATA if
/// this process has no life.
#[unsafe(no_mangle)]
pub extern "C" fn tontine_life_fd() -> c_int {
    answer(|| match Life::current() {
        Some(life) => Ok(life.as_fd().as_raw_fd()),
        None => Err(CError::new(
            libc::ENODATA,
            "this process has no life; register it, or open a mailbox or a sender first",
        )),
    })
}

/// A watch on another process's life: reports whether that process is alive.
#[derive(Debug)]
pub struct tontine_watch(Poisonable<Watch>);

/// Watches the process whose tontine_life_fd() returned life_fd. The descriptor still belongs to
/// the caller, and can be closed afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_watch_open(life_fd: c_int) -> *mut tontine_watch {
    answer(|| {
        // SAFETY: the caller keeps the descriptor open during the call.
        let descriptor = unsafe { borrowed(life_fd) }?;
        Ok(hand_over(tontine_watch(Poisonable::new(Watch::from_fd(descriptor)?))))
    })
}

/// Returns 1 while the process is alive, 0 once it has ended. The check is one load from memory,
/// without a system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_watch_is_alive(watch: *mut tontine_watch) -> c_int {
    answer_cancellable(|| {
        // SAFETY: the caller upholds the contract at the top of the header.
        unsafe { behind(watch) }?.0.with(|watch| Ok(c_int::from(watch.is_alive())))
    })
}

/// Closes the watch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_watch_close(watch: *mut tontine_watch) {
    // SAFETY: the caller upholds the contract at the top of the header.
    unsafe { close(watch) }
}

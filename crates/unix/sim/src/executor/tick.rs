//! The clock tick, and the level at which it is deferred: [`splhigh`], [`splx`].
//!
//! In the parallel executor each worker has a POSIX timer whose signal, `SIGRTMAX-1`, interrupts
//! the worker's thread; in the simulated executor a tick occurs at points that the chooser picks.
//! In both cases the tick function is called on the interrupted processor, with the context of the
//! fiber that was running there. At high level a tick is deferred until the level falls.
//!
//! The kernel defines the work of a tick: profiling and the CPU limit. The tick function must be
//! async-signal-safe: it allocates no memory, does not block, and takes no lock that is ever held
//! at base level. [`Fiber::unpark`] is allowed.
//!
//! [`Fiber::unpark`]: super::Fiber::unpark
#![allow(unsafe_code, reason = "creates timers and handles their signal")]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence};

use super::here::{HERE, Here, TickFn};

/// Number of clock ticks per second.
pub(crate) const TICKS_A_SECOND: u32 = 100;

/// The frequency and the function of ticks.
#[derive(Clone, Copy)]
pub(super) struct TickSettings {
    pub(super) hz: u32,
    pub(super) call: TickFn,
}

const BASE: u8 = 0;
const HIGH: u8 = 1;

/// Defers ticks on this processor (in the simulated executor, for this fiber). Returns the previous
/// level. A fiber must not park at high level.
#[inline]
pub(crate) fn splhigh() -> u8 {
    HERE.with(|here| {
        let before = here.level.replace(HIGH);
        // SYNC level: pairs with `splx`. A tick interrupts this very thread, so the following code
        // must not move before the level is raised.
        compiler_fence(Ordering::SeqCst);
        before
    })
}

/// Restores the level that [`splhigh`] returned, and runs the ticks that were deferred since.
#[inline]
pub(crate) fn splx(before: u8) {
    HERE.with(|here| {
        // SYNC level: pairs with `splhigh`. The preceding code must not move past the point at
        // which the level is lowered.
        compiler_fence(Ordering::SeqCst);
        here.level.set(before);
        if before == BASE && here.held.get() > 0 {
            release(here);
        }
    });
}

#[cold]
fn release(here: &Here) {
    // A tick that occurs now, at base level, is not deferred, so only this code changes the count.
    for _ in 0..here.held.replace(0) {
        tick(here);
    }
}

/// Handles a tick on this processor.
pub(super) fn tick(here: &Here) {
    let Some(call) = here.tick.get() else { return };
    if here.level.get() > BASE {
        here.held.set(here.held.get().saturating_add(1));
        return;
    }
    here.level.set(HIGH);
    // SYNC context: pairs with `forget_context`.
    call(here.context.get());
    here.level.set(BASE);
}

/// Returns the number of deferred ticks of this processor.
#[cfg(test)]
pub(super) fn held() -> u32 {
    HERE.with(|here| here.held.get())
}

/// Simulated: runs the tick that the chooser placed at this point, if there is one.
pub(super) fn tick_at_point() {
    HERE.with(|here| {
        if here.tick_due.replace(false) {
            tick(here);
            if here.held.get() > 0 && here.level.get() == BASE {
                release(here);
            }
        }
    });
}

extern "C" fn on_tick(_signal: c_int) {
    // SAFETY: this accesses the thread's own `errno`, which the interrupted code may be about to
    // read.
    let error = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *error };
    HERE.with(|here| {
        let interrupted = here.interrupted.replace(true);
        tick(here);
        here.interrupted.set(interrupted);
    });
    // SAFETY: as above.
    unsafe { *error = before };
}

/// Returns the signal of all ticks.
pub(super) fn signal() -> c_int {
    libc::SIGRTMAX() - 1
}

/// Installs the handler for the process, once.
fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // SAFETY: an all-zero action is valid. It has no flags and an empty mask.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = on_tick as *const () as usize;
        // The handler needs its own stack, because a fiber's stack is too small to save the
        // registers of some processors.
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: `on_tick` takes one argument and is async-signal-safe if the tick function is.
        let result = unsafe { libc::sigaction(signal(), &raw const action, ptr::null_mut()) };
        assert_eq!(result, 0, "a real-time signal can be handled");
    });
}

/// The tick timer of this thread. Dropping it stops the ticks.
pub(super) struct TickTimer(libc::timer_t);

impl TickTimer {
    /// Starts the ticks. Fails if the kernel has no timer left.
    pub(super) fn new(ticks: TickSettings) -> std::io::Result<Self> {
        install();
        HERE.with(|here| here.tick.set(Some(ticks.call)));
        // SAFETY: an all-zero event is valid, and the lines below fill it in.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut timer = ptr::null_mut();
        // SAFETY: both pointers are valid for the call.
        let made =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        if made != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let timer = Self(timer);
        let period = libc::timespec {
            tv_sec: i64::from(ticks.hz == 1),
            tv_nsec: if ticks.hz == 1 { 0 } else { i64::from(1_000_000_000 / ticks.hz) },
        };
        let times = libc::itimerspec { it_interval: period, it_value: period };
        // SAFETY: the timer was created above, and the times are valid for the call.
        match unsafe { libc::timer_settime(timer.0, 0, &raw const times, ptr::null_mut()) } {
            0 => Ok(timer),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Drop for TickTimer {
    fn drop(&mut self) {
        // A signal that is already in flight then finds no function to call.
        HERE.with(|here| here.tick.set(None));
        // SAFETY: the timer was created by `new` and is deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

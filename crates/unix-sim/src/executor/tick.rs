//! The clock tick, and the level at which it must wait: [`splhigh`], [`splx`].
//!
//! In the parallel executor each worker has a POSIX timer whose signal, `SIGRTMAX-1`, interrupts
//! whatever its thread is at; in the simulated one a tick lands at points that the chooser picks.
//! Either way the tick function is called on the processor that was interrupted, with the context
//! of the fiber that ran there. At high level a tick is held, and comes when the level falls.
//!
//! What a tick does, profiling and the CPU limit, is the kernel's. It must be async-signal-safe: no
//! memory, no blocking, no lock that is ever held at base level. [`Fiber::unpark`] is allowed.
//!
//! [`Fiber::unpark`]: super::Fiber::unpark
#![allow(unsafe_code, reason = "makes timers and handles their signal")]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence};

use super::here::{HERE, Here, TickFn};

/// How often the clock ticks in a second.
pub(crate) const TICKS_A_SECOND: u32 = 100;

/// How often, and what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticks {
    pub(super) hz: u32,
    pub(super) call: TickFn,
}

const BASE: u8 = 0;
const HIGH: u8 = 1;

/// Holds ticks on this processor, in the simulated executor for this fiber; the level before. A
/// fiber must not park at high level.
#[inline]
pub(crate) fn splhigh() -> u8 {
    HERE.with(|here| {
        let before = here.level.replace(HIGH);
        // SYNC level: pairs with `splx`. A tick interrupts this very thread: what follows must not
        // move before the level rose.
        compiler_fence(Ordering::SeqCst);
        before
    })
}

/// Goes back to the level that [`splhigh`] returned, and lets the ticks in that came since.
#[inline]
pub(crate) fn splx(before: u8) {
    HERE.with(|here| {
        // SYNC level: pairs with `splhigh`. What went before must not move behind the level's fall.
        compiler_fence(Ordering::SeqCst);
        here.level.set(before);
        if before == BASE && here.held.get() > 0 {
            release(here);
        }
    });
}

#[cold]
fn release(here: &Here) {
    // A tick that comes now, at base level, is not held: only this changes the count.
    for _ in 0..here.held.replace(0) {
        tick(here);
    }
}

/// A tick on this processor.
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

/// Ticks held on this processor.
#[cfg(test)]
pub(super) fn held() -> u32 {
    HERE.with(|here| here.held.get())
}

/// Simulated: the tick that the chooser lets land at this point, if it does.
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
    // SAFETY: this thread's own error number, which the interrupted code may be about to read.
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

/// The signal of all ticks.
pub(super) fn signal() -> c_int {
    libc::SIGRTMAX() - 1
}

/// Installs the handler for the process, once.
fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // SAFETY: zeroes are an action without flags and with an empty mask.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = on_tick as *const () as usize;
        // A fiber's stack is too small for the registers of some processors.
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: `on_tick` takes one argument and is async-signal-safe if the tick function is.
        let result = unsafe { libc::sigaction(signal(), &raw const action, ptr::null_mut()) };
        assert_eq!(result, 0, "a real-time signal can be handled");
    });
}

/// Ticks of this thread, as long as this lives.
pub(super) struct TickTimer(libc::timer_t);

impl TickTimer {
    /// Begins.
    ///
    /// # Errors
    ///
    /// The kernel has no timer left.
    pub(super) fn new(ticks: Ticks) -> std::io::Result<Self> {
        install();
        HERE.with(|here| here.tick.set(Some(ticks.call)));
        // SAFETY: zeroes are a valid event, which the lines below fill in.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut timer = ptr::null_mut();
        // SAFETY: both are valid for the call.
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
        // SAFETY: a timer made above, and times that are valid for the call.
        match unsafe { libc::timer_settime(timer.0, 0, &raw const times, ptr::null_mut()) } {
            0 => Ok(timer),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Drop for TickTimer {
    fn drop(&mut self) {
        // A signal that is already on its way finds nothing to call.
        HERE.with(|here| here.tick.set(None));
        // SAFETY: made by `new`, deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

//! Descriptors that tokio watches, for both asynchronous ends: [`Watched`], [`OneShotTimer`].
//!
//! Both ends do the work of `recv` and `send`, but await instead of sleeping. tokio reports
//! *edges*, so each end inspects everything after announcing that it waits and before awaiting; a
//! later event is an edge. If a wait must end at a given time (to drop a silent connecting sender,
//! to return a chunk, to look for a successor), it includes a kernel timer. The runtime therefore
//! needs only its I/O driver.

#![allow(unsafe_code, reason = "the caller of tokio guarantees that descriptors stay open")]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::{Error, Result};
use crate::sys::fork::Guard;

/// A timer that becomes readable once.
pub(super) struct OneShotTimer(Watched<OwnedFd>);

impl OneShotTimer {
    pub(super) fn after(time: Duration) -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|errno| Error::system("timerfd_create", errno))?;
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A timer that is set to zero never fires.
        let time = time.max(Duration::from_nanos(1));
        let value = Timespec {
            tv_sec: time.as_secs().min(i64::MAX as u64).cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        };
        let once = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)
            .map_err(|errno| Error::system("timerfd_settime", errno))?;
        Ok(Self(Watched::new(timer)?))
    }

    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll(context)
    }
}

/// A descriptor that the current runtime watches.
///
/// A forked child shares the runtime's epoll set with its parent, and threads that do not exist in
/// the child may hold the locks of its copy of the runtime. So the child leaves the registration
/// alone and closes only its copy of the descriptor.
pub(super) struct Watched<T> {
    registration: ManuallyDrop<AsyncFd<RawFd>>,
    guard: Guard,
    _descriptor: T,
}

impl<T: AsFd> Watched<T> {
    pub(super) fn new(descriptor: T) -> Result<Self> {
        let guard = Guard::here()?;
        let raw = descriptor.as_fd().as_raw_fd();
        // SAFETY: `_descriptor` keeps the descriptor open, and is dropped after the registration.
        let registration = unsafe { AsyncFd::register_with_interest(raw, Interest::READABLE) }
            .map_err(|error| Error::io("epoll_ctl", &error.into()))?;
        let registration = ManuallyDrop::new(registration);
        Ok(Self { registration, guard, _descriptor: descriptor })
    }
}

impl<T> Watched<T> {
    /// Waits until the descriptor is readable. In a forked child, returns immediately, and the
    /// handle's next call returns [`Error::Forked`].
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.guard.is_forked() {
            ready!(self.registration.poll_read_ready(context))?.clear_ready();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        if !self.guard.is_forked() {
            // SAFETY: the registration is dropped once, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.registration) }
        }
    }
}

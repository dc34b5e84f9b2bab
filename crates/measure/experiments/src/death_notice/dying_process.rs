//! The victim, a process that is ended during the measurement: [`DyingProcess`]; and the cause of
//! its end: [`Cause`].
//!
//! The victim registers like a monitored process, then idles until it is killed or ordered to exit.
//! Before it exits it stamps the time into shared memory. It also holds the only write end of a
//! pipe.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::Signal;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use tontine_mechanisms::descriptor::pipe;

use crate::liveness_check::monitored::{Home, Means, Monitored};
use crate::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Kill,
    Exit,
}

impl Cause {
    pub(super) const ALL: [Self; 2] = [Self::Kill, Self::Exit];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL",
            Self::Exit => "exit",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct DeathPlan {
    pub(super) cause: Cause,
    /// The processor of the observer.
    pub(super) here: usize,
    /// The processor of the victim.
    pub(super) there: usize,
    pub(super) clock: Clock,
}

/// A live process that can be ended once.
pub(super) struct DyingProcess {
    /// The process, as the mechanisms monitor it.
    pub(super) monitored: Monitored,
    pidfd: OwnedFd,
    orders: OwnedFd,
    held: OwnedFd,
    /// The stamp that the victim takes before it exits; 0 until then.
    last: SharedMapping<AtomicU64>,
}

impl DyingProcess {
    pub(super) fn start(plan: &DeathPlan, means: Means) -> Result<Self> {
        Self::start_with(plan, means, || {})
    }

    /// Like [`DyingProcess::start`], but the process first calls `make` and keeps the result until
    /// it dies.
    pub(super) fn start_with<T>(
        plan: &DeathPlan,
        means: Means,
        make: impl FnOnce() -> T,
    ) -> Result<Self> {
        let last = SharedMapping::<AtomicU64>::anonymous()?;
        let (order, orders) = pipe()?;
        let (held, holds) = pipe()?;
        let (clock, stamp) = (plan.clock, &last);
        // All threads of the victim inherit this mask: a thread that dies on the processor on which
        // we spin would have to wait for a time slice.
        let _there = Pinned::to(plan.there)?;
        let monitored = Monitored::start_with(means, Home::Here, move || {
            // On our side `holds` is dropped with this closure; the child never drops it.
            let _holds = holds;
            let _made = make();
            while rustix::io::read(&order, &mut [0_u8; 1]) == Err(Errno::INTR) {}
            stamp.store(clock.stop(), Ordering::Relaxed);
            exit_at_once(0)
        })?;
        let pidfd = pidfd_open(monitored.child().pid(), PidfdFlags::empty());
        let pidfd = pidfd.setting_up("pidfd_open")?;
        Ok(Self { monitored, pidfd, orders, held, last })
    }

    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns the read end of the pipe whose write end the victim holds.
    pub(super) fn held(&self) -> BorrowedFd<'_> {
        self.held.as_fd()
    }

    /// Ends the victim, waits until `notice` returns, and returns the nanoseconds in between.
    pub(super) fn die(&self, plan: &DeathPlan, notice: impl FnOnce() -> Result<()>) -> Result<f64> {
        let killed = plan.clock.start();
        let done = match plan.cause {
            Cause::Kill => pidfd_send_signal(&self.pidfd, Signal::KILL),
            Cause::Exit => self.order_exit(),
        };
        if let Err(error) = done {
            // The victim must end even after an error, because a thread may already be waiting for
            // its end.
            let _ = self.order_exit();
            return Err(error).setting_up("pidfd_send_signal");
        }
        notice()?;
        let noticed = plan.clock.stop();
        let died = match plan.cause {
            Cause::Kill => killed,
            Cause::Exit => self.last.load(Ordering::Relaxed),
        };
        ensure!(died != 0, "the process ended before it stamped its exit");
        Ok(plan.clock.ns_between(died, noticed))
    }

    fn order_exit(&self) -> rustix::io::Result<()> {
        rustix::io::write(&self.orders, &[1]).map(|_| ())
    }
}

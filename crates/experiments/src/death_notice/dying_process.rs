//! The victim, a process that is ended during the measurement: [`DyingProcess`]; and the cause of
//! its end: [`Cause`].
//!
//! The victim registers like a monitored process, then idles until it is killed or told to exit.
//! Before it exits it stamps the time into shared memory. It also holds the only write end of a
//! pipe.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tontine_host::clock::Clock;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::exit_at_once;
use tontine_host::os::pin::Pinned;
use tontine_host::os::shared::SharedMapping;
use tontine_mechanisms::descriptor::pipe;

use crate::liveness_check::monitored::{Home, Means, Monitored};

/// The cause of the victim's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// SIGKILL, sent by the measuring process.
    Kill,
    /// The victim's own `_exit`.
    Exit,
}

impl Cause {
    /// Both causes.
    pub(super) const ALL: [Self; 2] = [Self::Kill, Self::Exit];

    /// Returns the cause's name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL",
            Self::Exit => "exit",
        }
    }
}

/// Parameters shared by all deaths of an invocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeathPlan {
    /// The cause of death.
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
    /// Starts a process that registers by `means` and then idles.
    ///
    /// # Errors
    /// Returns the errors of [`Monitored::start`].
    pub(super) fn start(scene: &DeathPlan, means: Means) -> Result<Self> {
        Self::start_with(scene, means, || {})
    }

    /// Like [`DyingProcess::start`], but the process first calls `make` and keeps the result until
    /// it dies.
    ///
    /// # Errors
    /// Returns the errors of [`Monitored::start`].
    pub(super) fn start_with<T>(
        scene: &DeathPlan,
        means: Means,
        make: impl FnOnce() -> T,
    ) -> Result<Self> {
        let last = SharedMapping::<AtomicU64>::anonymous()?;
        let (told, orders) = pipe()?;
        let (held, holds) = pipe()?;
        let (clock, stamp) = (scene.clock, &last);
        // All threads of the victim inherit this mask: a thread that dies on the processor on which
        // we spin would have to wait for a time slice.
        let _there = Pinned::to(scene.there)?;
        let monitored = Monitored::start_with(means, Home::Here, move || {
            // On our side `holds` is dropped with this closure; the child never drops it.
            let _holds = holds;
            let _made = make();
            while rustix::io::read(&told, &mut [0_u8; 1]) == Err(Errno::INTR) {}
            stamp.store(clock.stop(), Ordering::Relaxed);
            exit_at_once(0)
        })?;
        let pidfd = pidfd_open(monitored.child().pid(), PidfdFlags::empty());
        let pidfd = pidfd.setting_up("pidfd_open")?;
        Ok(Self { monitored, pidfd, orders, held, last })
    }

    /// Returns a pidfd of the process.
    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns the read end of the pipe whose write end the victim holds.
    pub(super) fn held(&self) -> BorrowedFd<'_> {
        self.held.as_fd()
    }

    /// Ends the victim, waits until `told` returns, and returns the nanoseconds in between.
    ///
    /// # Errors
    /// Returns `Skipped` if the system refuses the signal, and otherwise the errors of `told`.
    pub(super) fn die(&self, scene: &DeathPlan, told: impl FnOnce() -> Result<()>) -> Result<f64> {
        let struck = scene.clock.start();
        let done = match scene.cause {
            Cause::Kill => pidfd_send_signal(&self.pidfd, Signal::KILL),
            Cause::Exit => self.order_exit(),
        };
        if let Err(error) = done {
            // The victim must end even after an error, because a thread may already be waiting for
            // its end.
            let _ = self.order_exit();
            return Err(error).setting_up("pidfd_send_signal");
        }
        told()?;
        let heard = scene.clock.stop();
        let died = match scene.cause {
            Cause::Kill => struck,
            Cause::Exit => self.last.load(Ordering::Relaxed),
        };
        if died == 0 {
            return Err(MeasureError::fail("the process ended before it stamped its exit"));
        }
        Ok(scene.clock.ns_between(died, heard))
    }

    fn order_exit(&self) -> rustix::io::Result<()> {
        rustix::io::write(&self.orders, &[1]).map(|_| ())
    }
}

//! The process that is going to die: [`Doomed`], and what it dies of: [`Cause`].
//!
//! It registers as a monitored process does, then idles until it is killed or told to exit. Before
//! it exits it stamps the time into shared memory. It also holds the writing end of a pipe that
//! nobody else has.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tontine_host::clock::Clock;
use tontine_host::os::child::exit_at_once;
use tontine_host::os::pin::Pinned;
use tontine_host::os::shared::Shared;
use tontine_host::trouble::{During, Result, Trouble};
use tontine_mechanisms::descriptor::pipe;

use crate::liveness_check::monitored::{Home, Means, Monitored};

/// What ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// SIGKILL, sent by us.
    Kill,
    /// Its own `_exit`.
    Exit,
}

impl Cause {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Kill, Self::Exit];

    /// Its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL",
            Self::Exit => "exit",
        }
    }
}

/// What is the same for all deaths of an invocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    /// What they die of.
    pub(super) cause: Cause,
    /// Where we wait.
    pub(super) here: usize,
    /// Where they die.
    pub(super) there: usize,
    pub(super) clock: Clock,
}

/// A living process that can be ended once.
pub(super) struct Doomed {
    /// The process, for the mechanisms.
    pub(super) monitored: Monitored,
    pidfd: OwnedFd,
    orders: OwnedFd,
    held: OwnedFd,
    /// Its stamp before it exits; 0 before.
    last: Shared<AtomicU64>,
}

impl Doomed {
    /// A process that registers by `means` and then idles.
    ///
    /// # Errors
    /// As [`Monitored::start`].
    pub(super) fn start(scene: &Scene, means: Means) -> Result<Self> {
        Self::start_with(scene, means, || {})
    }

    /// The same; the process makes something first, which it keeps until it dies.
    ///
    /// # Errors
    /// As [`Monitored::start`].
    pub(super) fn start_with<T>(
        scene: &Scene,
        means: Means,
        make: impl FnOnce() -> T,
    ) -> Result<Self> {
        let last = Shared::<AtomicU64>::anonymous()?;
        let (told, orders) = pipe()?;
        let (held, holds) = pipe()?;
        let (clock, stamp) = (scene.clock, &last);
        // Inherited by all its threads: one that had to die where we spin would wait for a slice.
        let _there = Pinned::to(scene.there)?;
        let monitored = Monitored::start_with(means, Home::Here, move || {
            // Dropped on our side with this closure; here never.
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

    /// A descriptor of the process.
    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The reading end of the pipe that it holds.
    pub(super) fn held(&self) -> BorrowedFd<'_> {
        self.held.as_fd()
    }

    /// Ends it, waits until `told` returns, and says how many nanoseconds lie between.
    ///
    /// # Errors
    /// Skipped, where the system refuses the signal; otherwise as `told`.
    pub(super) fn die(&self, scene: &Scene, told: impl FnOnce() -> Result<()>) -> Result<f64> {
        let struck = scene.clock.start();
        let done = match scene.cause {
            Cause::Kill => pidfd_send_signal(&self.pidfd, Signal::KILL),
            Cause::Exit => self.order_exit(),
        };
        if let Err(error) = done {
            // Somebody may already be waiting for its end.
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
            return Err(Trouble::fail("the process ended before it stamped its exit"));
        }
        Ok(scene.clock.ns_between(died, heard))
    }

    fn order_exit(&self) -> rustix::io::Result<()> {
        rustix::io::write(&self.orders, &[1]).map(|_| ())
    }
}

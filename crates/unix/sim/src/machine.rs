//! A Unix inside this process: [`Virtual`]. A [`Builder`] creates it from a [`SystemConfig`], and a
//! run returns a [`RunReport`].
//!
//! A run combines three parts: the executor, which runs the threads; the locks of the mode; and the
//! [`Kernel`], which implements processes.

#![allow(unsafe_code, reason = "the contract of the mode's locks is met here")]

mod builder;
mod report;
mod watch;

use std::sync::Arc;

use crate::config::{Executor, SystemConfig};
use crate::console::DetachGuard;
use crate::executor::{self, RunEnd, TICKS_A_SECOND};
use crate::kernel::Kernel;
use crate::lock::{HoldClock, LockOptions, Locks};

pub use builder::{BuildError, Builder};
pub use report::{EndReason, RunReport};
use tontine_unix::Sys;
use watch::ExecutorWatch;

/// A Unix in user space, whose processes are closures on stackful coroutines.
///
/// A virtual `fork` copies no address space: the child runs another closure in the same memory, and
/// shares with the parent all data that both can reach.
///
/// ```
/// use tontine_unix_sim::{Executor, Virtual};
///
/// let unix = Virtual::builder().executor(Executor::Simulated { seed: 1 }).build()?;
/// let report = unix.run(|sys| {
///     let child = sys.fork(|_| 7).expect("fork succeeds");
///     let waited = sys.wait().expect("a child exists");
///     assert_eq!(waited.pid, child);
///     waited.status.exited().unwrap_or(1)
/// });
/// assert_eq!(report.status.and_then(|status| status.exited()), Some(7));
/// # Ok::<(), tontine_unix_sim::BuildError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Virtual {
    config: Arc<SystemConfig>,
}

impl Virtual {
    /// Returns a builder with the defaults: mode [`Parallel`](crate::LockingMode::Parallel), one
    /// processor, the parallel executor, and POSIX delivery.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Runs a new system, whose second process runs `program`, until the program has ended. Any
    /// remaining processes are then killed. Each run is an independent system.
    ///
    /// The program begins with descriptors 0, 1 and 2. They are the terminal of the
    /// [`console`](Builder::console) if one was given. Otherwise they are a null device: reads
    /// return end-of-file, and writes are discarded.
    ///
    /// # Panics
    /// Panics if the caller is a virtual program, because a system cannot run inside another. With
    /// debug assertions, also panics if the count of process groups is wrong, which would be a bug
    /// in this crate.
    pub fn run(&self, program: impl FnOnce(&dyn Sys) -> i32 + Send + 'static) -> RunReport {
        let config = Arc::clone(&self.config);
        let _attached = config.console.clone().map(DetachGuard);
        let watch = Arc::new(ExecutorWatch::new(Arc::clone(&config)));
        let executor = self.executor(Arc::clone(&watch));
        let locks = self.locks(&executor);
        let mut kernel = Kernel::boot(config, locks, executor, Box::new(program));
        watch.begin(kernel.handle());
        if self.config.conductor.is_none() {
            kernel.executor.ticks(TICKS_A_SECOND, Kernel::on_tick);
        }
        let outcome = {
            let _attached = self.config.stopper.attach(&kernel.executor);
            kernel.run()
        };
        report(&mut kernel, outcome)
    }

    /// Creates the executor of a run.
    fn executor(&self, watch: Arc<ExecutorWatch>) -> Arc<executor::FiberExecutor> {
        let config = &self.config;
        let options = executor::ExecutorOptions {
            processors: config.processors,
            stop_at: config.stop_at,
            busy_limit: config.busy_limit,
            hooks: watch,
            stacks: config.stacks,
            reused: config.reused.clone(),
            farthest: config.conductor.as_ref().map(|conductor| conductor.farthest()),
            ..executor::ExecutorOptions::default()
        };
        match (config.executor, &config.guide) {
            (Executor::Simulated { .. }, Some(guide)) => {
                executor::FiberExecutor::chosen(guide(), options)
            }
            (Executor::Simulated { seed }, None) => {
                executor::FiberExecutor::chosen(self.random(seed), options)
            }
            (Executor::Modelled { seed }, _) => {
                executor::FiberExecutor::modelled(config.costs, seed, options)
            }
            (Executor::Parallel, _) => {
                executor::FiberExecutor::parallel(config.processors, options)
            }
        }
    }

    /// Creates a chooser that makes random choices.
    fn random(&self, seed: u64) -> Box<dyn executor::Chooser> {
        match self.config.conductor.clone() {
            Some(conductor) => {
                Box::new(executor::ReseedingChooser::new(move || conductor.random()))
            }
            None => {
                let seeded = executor::Seeded::varied(seed);
                Box::new(seeded.preemptions(self.config.preemptions))
            }
        }
    }

    /// Creates the locks of the mode.
    fn locks(&self, executor: &Arc<executor::FiberExecutor>) -> Locks {
        let config = &self.config;
        let clock = Arc::clone(executor);
        let options = LockOptions {
            keep_all: config.keep_locks,
            count: config.statistics,
            explore: config.executor != Executor::Parallel,
            model: matches!(config.executor, Executor::Modelled { .. }),
            hold_clock: config.statistics.then(|| HoldClock::new(move || clock.now_ns())),
            // With a guide, busy waiting is useless because the guide would choose the same fiber
            // again.
            busy_turns: if config.guide.is_some() { 0 } else { LockOptions::default().busy_turns },
        };
        // SAFETY: the kernel has the processors and the master that its mode requires: a
        // uniprocessor has one worker, and `Kernel::on_master` runs calls on processor 0.
        unsafe { Locks::new(config.mode, options) }
    }
}

/// Returns the report of a run with this outcome.
fn report(kernel: &mut Kernel, outcome: RunEnd) -> RunReport {
    let ending = match outcome {
        RunEnd::Finished => EndReason::Finished,
        RunEnd::Deadlocked => EndReason::Deadlocked,
        RunEnd::Stopped => EndReason::Stopped,
    };
    let notes = kernel.notes().clone();
    if let Some(wrong) = notes.wrong {
        kernel.leak_files();
        panic!("{wrong}");
    }
    let stacks = kernel.executor.stacks();
    let report = RunReport {
        status: notes.status,
        ending,
        panicked: notes.panicked,
        abandoned: stacks.abandoned,
        // SAFETY: the run has ended.
        state: (ending != EndReason::Finished).then(|| unsafe { kernel.snapshot() }),
        steps: kernel.executor.steps(),
        digest: kernel.executor.digest(),
        elapsed: kernel.executor.now(),
        locks: kernel.locks.statistics(),
    };
    if ending != EndReason::Finished {
        kernel.leak_files();
    }
    report
}

//! Configuration of a system: [`Builder`].

use std::sync::Arc;
use std::time::Duration;

use tontine_unix::{Resource, Rlimit, Sys};

use super::Virtual;
use crate::config::{BusyThread, Conductor, Delivery, Executor, Masks, SystemConfig};
use crate::console::Console;
use crate::costs::CostModel;
use crate::executor::{Chooser, Reused};
use crate::mode::LockingMode;
use crate::stopper::Stopper;

/// Maximum number of processors of the modelled executor.
const MAX_MODELLED: usize = 4096;

/// Configures and builds a [`Virtual`].
///
/// ```
/// use tontine_unix_sim::{Executor, LockingMode, Virtual};
///
/// let unix = Virtual::builder()
///     .mode(LockingMode::Parallel)
///     .processors(2)
///     .executor(Executor::Simulated { seed: 7 })
///     .build()?;
/// assert!(unix.run(|_| 0).status.is_some());
/// # Ok::<(), tontine_unix_sim::BuildError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder(SystemConfig);

/// The reason why [`Builder::build`] fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// Too many processors for the modelled executor.
    #[error("expected 1 to {MAX_MODELLED} modelled processors, found {0}")]
    TooManyModelled(usize),
    /// The number of processors is 0.
    #[error("expected at least one processor, found 0")]
    NoProcessor,
    /// Several processors in mode [`LockingMode::Uniprocessor`].
    #[error("mode `uniprocessor` has one processor, found {0}: use another mode")]
    ManyProcessors(usize),
    /// The crate was built with `panic = "abort"`, but killed programs must unwind.
    #[error("killed programs must unwind: build with `panic = \"unwind\"`, found `abort`")]
    NoUnwinding,
    /// The highest process number is out of the range that Linux accepts.
    #[error("expected a highest process number from 300 to 4194304, found {0}")]
    Pids(usize),
}

impl Builder {
    pub(super) fn new() -> Self {
        Self(SystemConfig::new())
    }

    /// Sets the locking mode, which determines the set of locks and where calls run.
    pub fn mode(mut self, mode: LockingMode) -> Self {
        self.0.mode = mode;
        self
    }

    /// Sets the number of processors.
    pub fn processors(mut self, processors: usize) -> Self {
        self.0.processors = processors;
        self
    }

    /// Sets the executor that runs virtual threads.
    pub fn executor(mut self, executor: Executor) -> Self {
        self.0.executor = executor;
        self
    }

    /// Sets which thread delivers a signal that was sent to a process.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.0.delivery = delivery;
        self
    }

    /// Sets whether signal masks belong to threads or to processes.
    pub fn masks(mut self, masks: Masks) -> Self {
        self.0.masks = masks;
        self
    }

    /// Sets a resource limit with which every process starts.
    pub fn limit(mut self, resource: Resource, limit: Rlimit) -> Self {
        self.0.limits.push((resource, limit));
        self
    }

    /// Registers a program for `exec` and `spawn` under a name.
    pub fn program(
        mut self,
        name: &str,
        program: impl Fn(&dyn Sys, &[String]) -> i32 + Send + Sync + 'static,
    ) -> Self {
        self.0.programs.insert(name.to_owned(), Arc::new(program));
        self
    }

    /// Sets the highest process number, like `/proc/sys/kernel/pid_max`. The default is 4,194,304.
    pub fn pids(mut self, highest: usize) -> Self {
        self.0.pids = highest;
        self
    }

    /// Sets the processor on which the program runs.
    pub fn first_on(mut self, processor: usize) -> Self {
        self.0.first_on = Some(processor);
        self
    }

    /// Sets the maximum number of threads with a stack, including the system's own threads. The
    /// minimum is 8 and the default is 1,048,576. At the limit, the creation of a thread or process
    /// fails with `EAGAIN`.
    pub fn max_stacks(mut self, stacks: usize) -> Self {
        self.0.stacks = stacks.max(8);
        self
    }

    /// Gives the program a controlling terminal, whose other end is `console`. Without a console,
    /// descriptors 0 to 2 are a null device.
    pub fn console(mut self, console: &Console) -> Self {
        self.0.console = Some(console.clone());
        self
    }

    /// Stops a simulated run after exactly this step; [`RunReport::state`] is the state of the
    /// system at that moment.
    ///
    /// [`RunReport::state`]: super::RunReport::state
    pub fn stop_at(mut self, step: u64) -> Self {
        self.0.stop_at = Some(step);
        self
    }

    /// Lets `stopper` stop the runs of this system.
    pub fn stopper(mut self, stopper: &Stopper) -> Self {
        self.0.stopper = stopper.clone();
        self
    }

    /// Lets `guide` decide at each point of the simulated executor, instead of the seed. If
    /// `reused` is given, the thread that runs the system must already have a signal stack.
    #[doc(hidden)]
    pub fn guided(
        mut self,
        guide: impl Chooser + Clone + Sync + 'static,
        reused: Option<&Reused>,
    ) -> Self {
        self.0.reused = reused.cloned();
        self.0.executor = Executor::Simulated { seed: 0 };
        self.0.guide = Some(Arc::new(move || Box::new(guide.clone())));
        self
    }

    /// Returns the stopper of the run.
    #[doc(hidden)]
    pub fn its_stopper(&self) -> Stopper {
        self.0.stopper.clone()
    }

    /// Lets `conductor` select the next thread when no thread can run. The program's process
    /// receives the number `second`. The thread that runs the system must already have a signal
    /// stack.
    #[doc(hidden)]
    pub fn conducted(mut self, conductor: Arc<dyn Conductor>, second: i32, reused: Reused) -> Self {
        (self.0.conductor, self.0.second) = (Some(conductor), second);
        self.0.reused = Some(reused);
        self
    }

    /// Sets the maximum number of times that a simulated run preempts a thread that could continue.
    /// Most races need few preemptions.
    pub fn max_preemptions(mut self, preemptions: u64) -> Self {
        self.0.preemptions = preemptions;
        self
    }

    /// Sets the cost of each step of the modelled executor. The default is
    /// [`CostModel::published`].
    pub fn costs(mut self, costs: CostModel) -> Self {
        self.0.costs = costs;
        self
    }

    /// Sets whether [`RunReport::locks`] contains, for each class of lock, the figures of section 9
    /// of the paper: the number of acquisitions, how many of them waited, how many slept, and how
    /// long the locks were held. Durations are in nanoseconds of the system's clock, which is
    /// virtual in a simulated run. Counting costs two reads of the clock per acquisition. By
    /// default nothing is counted, at no cost.
    ///
    /// ```
    /// use tontine_unix_sim::{Executor, LockingMode, Virtual};
    ///
    /// let unix = Virtual::builder()
    ///     .mode(LockingMode::Parallel)
    ///     .executor(Executor::Simulated { seed: 1 })
    ///     .statistics(true)
    ///     .build()?;
    /// let report = unix.run(|sys| {
    ///     sys.fork(|_| 0).expect("fork succeeds");
    ///     sys.wait().expect("a child exists");
    ///     0
    /// });
    /// let statistics = report.locks.expect("statistics are on");
    /// println!("{statistics}");
    /// let relations = statistics.rows.iter().find(|row| row.name == "proc_relation_lock");
    /// let relations = relations.expect("each class has a row");
    /// // Fork links the child, its exit unlinks nothing yet, and wait unlinks it.
    /// assert!(relations.acquisitions >= 3);
    /// assert!(relations.waited <= relations.acquisitions);
    /// assert!(relations.held_mean_ns() > Some(0.0));
    /// # Ok::<(), tontine_unix_sim::BuildError>(())
    /// ```
    ///
    /// [`RunReport::locks`]: super::RunReport::locks
    pub fn statistics(mut self, on: bool) -> Self {
        self.0.statistics = on;
        self
    }

    /// Sets the function that another thread of this process calls when a virtual thread computes
    /// for longer than `limit` without a system call (parallel executor). By default, a line is
    /// printed on standard error after two seconds.
    pub fn watchdog(
        mut self,
        limit: Duration,
        notify: impl Fn(BusyThread) + Send + Sync + 'static,
    ) -> Self {
        (self.0.busy_limit, self.0.on_busy) = (limit, Arc::new(notify));
        self
    }

    /// Sets whether the system keeps, for debugging, the locks that the mode does not need (§2.2).
    pub fn keep_locks(mut self, on: bool) -> Self {
        self.0.keep_locks = on;
        self
    }

    /// Builds the system.
    ///
    /// # Errors
    /// Fails if a setting is out of range, or if two settings contradict each other.
    pub fn build(self) -> Result<Virtual, BuildError> {
        let config = self.0;
        if cfg!(panic = "abort") {
            return Err(BuildError::NoUnwinding);
        }
        if config.processors == 0 {
            return Err(BuildError::NoProcessor);
        }
        if config.mode == LockingMode::Uniprocessor && config.processors > 1 {
            return Err(BuildError::ManyProcessors(config.processors));
        }
        let modelled = matches!(config.executor, Executor::Modelled { .. });
        if modelled && config.processors > MAX_MODELLED {
            return Err(BuildError::TooManyModelled(config.processors));
        }
        if !(300..=4_194_304).contains(&config.pids) {
            return Err(BuildError::Pids(config.pids));
        }
        Ok(Virtual { config: Arc::new(config) })
    }
}

//! Says what a system is to be: [`Builder`].

use std::sync::Arc;
use std::time::Duration;

use tontine_unix::{Resource, Rlimit, Sys};

use super::Virtual;
use crate::config::{BusyThread, Conductor, Config, Delivery, Executor, Masks};
use crate::console::Console;
use crate::costs::CostModel;
use crate::executor::{Chooser, Reused};
use crate::mode::LockingMode;
use crate::stopper::Stopper;

/// Processors of a model.
const MOST_MODELLED: usize = 4096;

/// Says what a [`Virtual`] is to be.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder(Config);

/// Why a system cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A model has at most so many processors.
    #[error("a model has at most {MOST_MODELLED} processors; {0} were asked for")]
    TooManyModelled(usize),
    /// There must be a processor.
    #[error("a system needs at least one processor")]
    NoProcessor,
    /// A uniprocessor has one.
    #[error("mode `uniprocessor` has one processor; {0} were asked for: take another mode")]
    ManyProcessors(usize),
    /// Killed programs unwind.
    #[error("this program was built with panic=abort; killed programs need panic=unwind")]
    NoUnwinding,
    /// Linux has no more.
    #[error("the highest process number lies between 300 and 4194304; {0} was asked for")]
    Pids(usize),
}

impl Builder {
    pub(super) fn new() -> Self {
        Self(Config::new())
    }

    /// Which locks exist, and where calls run.
    pub fn mode(mut self, mode: LockingMode) -> Self {
        self.0.mode = mode;
        self
    }

    /// How many processors there are.
    pub fn processors(mut self, processors: usize) -> Self {
        self.0.processors = processors;
        self
    }

    /// What virtual threads run on.
    pub fn executor(mut self, executor: Executor) -> Self {
        self.0.executor = executor;
        self
    }

    /// Which thread delivers what was sent to a process.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.0.delivery = delivery;
        self
    }

    /// Whose the signal mask is.
    pub fn masks(mut self, masks: Masks) -> Self {
        self.0.masks = masks;
        self
    }

    /// A limit that every process begins with.
    pub fn limit(mut self, resource: Resource, limit: Rlimit) -> Self {
        self.0.limits.push((resource, limit));
        self
    }

    /// A program for `exec` and `spawn`, by its name.
    pub fn program(
        mut self,
        name: &str,
        program: impl Fn(&dyn Sys, &[String]) -> i32 + Send + Sync + 'static,
    ) -> Self {
        self.0.programs.insert(name.to_owned(), Arc::new(program));
        self
    }

    /// The highest process number, as `/proc/sys/kernel/pid_max` has it; 4,194,304 if nothing is
    /// said.
    pub fn pids(mut self, highest: usize) -> Self {
        self.0.pids = highest;
        self
    }

    /// On which processor the program runs.
    pub fn first_on(mut self, processor: usize) -> Self {
        self.0.first_on = Some(processor);
        self
    }

    /// How many threads may have a stack at once, the system's own among them, at least 8;
    /// 1,048,576 if nothing is said. A thread or a process for which there is none is refused with
    /// `EAGAIN`.
    pub fn stacks(mut self, most: usize) -> Self {
        self.0.stacks = most.max(8);
        self
    }

    /// Gives the program a controlling terminal, at whose other end `console` is. Without one its
    /// descriptors 0 to 2 are a null device.
    pub fn console(mut self, console: &Console) -> Self {
        self.0.console = Some(console.clone());
        self
    }

    /// Ends a simulated run after exactly so many steps; [`RunReport::state`] is the system at that
    /// moment.
    ///
    /// [`RunReport::state`]: super::RunReport::state
    pub fn stop_at(mut self, step: u64) -> Self {
        self.0.stop_at = Some(step);
        self
    }

    /// Lets `stopper` end the run.
    pub fn stopper(mut self, stopper: &Stopper) -> Self {
        self.0.stopper = stopper.clone();
        self
    }

    /// Lets `guide` decide for the simulated executor, at each point, in the place of its seed.
    /// What is `reused` this thread also has a signal stack for.
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

    /// What ends the run.
    #[doc(hidden)]
    pub fn its_stopper(&self) -> Stopper {
        self.0.stopper.clone()
    }

    /// Lets `conductor` say who goes on when nobody can, from the process with the number `second`
    /// on. What is `reused` this thread also has a signal stack for.
    #[doc(hidden)]
    pub fn conducted(mut self, conductor: Arc<dyn Conductor>, second: i32, reused: Reused) -> Self {
        (self.0.conductor, self.0.second) = (Some(conductor), second);
        self.0.reused = Some(reused);
        self
    }

    /// Simulated: takes the processor at most so often from a thread that could go on. Most races
    /// need few.
    pub fn preemptions(mut self, most: u64) -> Self {
        self.0.preemptions = most;
        self
    }

    /// Modelled: what each step costs; [`CostModel::published`] if nothing is said.
    pub fn costs(mut self, costs: CostModel) -> Self {
        self.0.costs = costs;
        self
    }

    /// Counts for [`RunReport::locks`], lock by lock, what the paper's section 9 reports: how often it
    /// was taken, how often not at once, how often only after a sleep, and how long it was held, in
    /// nanoseconds of the system's clock (simulated: the virtual one). It costs two looks at the
    /// clock an acquisition. Without it nothing is counted, and no lock does anything for it.
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
    ///     sys.fork(|_| 0).expect("there is room");
    ///     sys.wait().expect("there is a child");
    ///     0
    /// });
    /// let statistics = report.locks.expect("they were asked for");
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

    /// Whom to tell, on another thread of this process, of a virtual thread that computes for
    /// longer than `limit` without a system call (parallel executor). Two seconds and a line to
    /// standard error, if nothing is said.
    pub fn watchdog(
        mut self,
        limit: Duration,
        tell: impl Fn(BusyThread) + Send + Sync + 'static,
    ) -> Self {
        (self.0.busy_limit, self.0.on_busy) = (limit, Arc::new(tell));
        self
    }

    /// Builds in the locks that the mode could do without, as one does to debug (§2.2).
    pub fn keep_locks(mut self, on: bool) -> Self {
        self.0.keep_locks = on;
        self
    }

    /// The system.
    ///
    /// # Errors
    /// What was asked for does not go together.
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
        if modelled && config.processors > MOST_MODELLED {
            return Err(BuildError::TooManyModelled(config.processors));
        }
        if !(300..=4_194_304).contains(&config.pids) {
            return Err(BuildError::Pids(config.pids));
        }
        Ok(Virtual { config: Arc::new(config) })
    }
}

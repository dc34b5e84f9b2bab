//! A Unix inside this process: [`Virtual`], how it is built and what a run of it says.

#![allow(unsafe_code, reason = "the mode's promise to its locks is made here")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::console::{Attached, Console};
use crate::executor;
use crate::kernel::{self, Kernel, KernelHandle, State};
use crate::limit::{Limit, Resource};
use crate::lock::{HoldClock, LockStatistics, Locks, Options};
use crate::mode::Mode;
use crate::process::Pid;
use crate::stopper::Stopper;
use crate::sys::Sys;
use crate::wait::Status;

/// A program that `exec` finds by its name: it gets its arguments, its own name first.
pub(crate) type Registered = Arc<dyn Fn(&dyn Sys, &[String]) -> i32 + Send + Sync>;

/// Which thread delivers a signal that was sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// The oldest thread, as OSF/1 has it (§3.1).
    Oldest,
    /// Any thread that does not block it, as POSIX and Linux have it.
    #[default]
    AnyUnblocked,
}

/// Whose the signal mask is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Masks {
    /// The process's, as in OSF/1: what one thread blocks all block. `sigsuspend` suspends one
    /// thread with a mask of its own, and gives it back what the process has (§4.2).
    PerProcess,
    /// Each thread's own, as POSIX and Linux have it.
    #[default]
    PerThread,
}

/// What virtual threads run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// One thread of this process, a scheduler with this seed and a virtual clock: the same seed
    /// gives the same run.
    Simulated {
        /// What decides who runs.
        seed: u64,
    },
    /// As many threads of this process as there are processors.
    Parallel,
}

/// A Unix in user space: processes are closures on stackful coroutines.
///
/// A virtual `fork` copies no address space: the child runs another closure, and what both can
/// reach they share.
///
/// ```
/// use tontine_unix::{Executor, Virtual};
///
/// let unix = Virtual::builder().executor(Executor::Simulated { seed: 1 }).build()?;
/// let report = unix.run(|sys| {
///     let child = sys.fork(|_| 7).expect("there is room");
///     let waited = sys.wait().expect("there is a child");
///     assert_eq!(waited.pid, child);
///     waited.status.exited().unwrap_or(1)
/// });
/// assert_eq!(report.status.and_then(|status| status.exited()), Some(7));
/// # Ok::<(), tontine_unix::BuildError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Virtual {
    config: Arc<Config>,
}

/// What a system is built from.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) mode: Mode,
    pub(crate) processors: usize,
    pub(crate) executor: Executor,
    pub(crate) delivery: Delivery,
    pub(crate) masks: Masks,
    pub(crate) limits: Vec<(Resource, Limit)>,
    pub(crate) programs: BTreeMap<String, Registered>,
    /// The highest process number.
    pub(crate) pids: usize,
    pub(crate) first_on: Option<usize>,
    stacks: usize,
    #[cfg(any(debug_assertions, feature = "mutations"))]
    pub(crate) mutation: Option<crate::mutation::Mutation>,
    pub(crate) console: Option<Console>,
    stop_at: Option<u64>,
    stopper: Stopper,
    preemptions: u64,
    statistics: bool,
    pub(crate) keep_locks: bool,
    busy_limit: Duration,
    on_busy: Arc<dyn Fn(Busy) + Send + Sync>,
}

/// How often the clock ticks in a second.
pub(crate) const TICKS_A_SECOND: u32 = 100;

/// A thread that has not made a system call for long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// The number of its process.
    pub pid: i32,
    /// The program that the process runs: the name under which it was executed, or `program`.
    pub program: String,
    /// Its own.
    pub tid: i32,
    /// For at least so long.
    pub limit: Duration,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, program, tid, limit } = self;
        write!(
            f,
            "thread {tid} of process {pid} ({program}) has made no system call for {limit:?}: it \
             cannot be interrupted; let it call `Sys::poll` now and then"
        )
    }
}

/// What the executor tells, passed on.
struct Watch {
    config: Arc<Config>,
    kernel: OnceLock<KernelHandle>,
}

impl executor::Hooks for Watch {
    fn on_busy(&self, name: usize) {
        let (pid, tid) = kernel::named_by(name);
        let program = self.kernel.get().map_or("", |kernel| kernel.get().program_of(pid));
        let (program, limit) = (program.to_owned(), self.config.busy_limit);
        (self.config.on_busy)(Busy { pid, program, tid, limit });
    }

    fn on_overflow(&self, context: usize) {
        if let Some(kernel) = self.kernel.get() {
            kernel.get().overflowed(context);
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, processors, executor, delivery, .. } = self;
        f.debug_struct("Config")
            .field("mode", mode)
            .field("processors", processors)
            .field("executor", executor)
            .field("delivery", delivery)
            .finish_non_exhaustive()
    }
}

/// Says what a [`Virtual`] is to be.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder(Config);

/// Why a system cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
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

impl Virtual {
    /// Begins with mode [`Mode::Parallel`], one processor, the parallel executor, and POSIX
    /// delivery.
    pub fn builder() -> Builder {
        Builder(Config {
            mode: Mode::Parallel,
            processors: 1,
            executor: Executor::Parallel,
            delivery: Delivery::default(),
            masks: Masks::default(),
            limits: Vec::new(),
            programs: BTreeMap::new(),
            pids: 4_194_304,
            first_on: None,
            stacks: executor::Options::default().stacks,
            #[cfg(any(debug_assertions, feature = "mutations"))]
            mutation: None,
            console: None,
            stop_at: None,
            stopper: Stopper::new(),
            preemptions: u64::MAX,
            statistics: false,
            keep_locks: false,
            busy_limit: Duration::from_secs(2),
            on_busy: Arc::new(|busy| eprintln!("tontine-unix: {busy}")),
        })
    }

    /// Makes a system whose second process runs `program`, and runs it until that has ended;
    /// whoever is left then is killed. Each run is a system of its own.
    ///
    /// # Panics
    /// Within a virtual program: a system cannot run inside of another.
    pub fn run(&self, program: impl FnOnce(&dyn Sys) -> i32 + Send + 'static) -> Report {
        let config = Arc::clone(&self.config);
        let _attached = config.console.clone().map(Attached);
        let watch = Arc::new(Watch { config: Arc::clone(&config), kernel: OnceLock::new() });
        let options = executor::Options {
            processors: config.processors,
            stop_at: config.stop_at,
            busy_limit: config.busy_limit,
            hooks: Arc::clone(&watch) as Arc<dyn executor::Hooks>,
            stacks: config.stacks,
            ..executor::Options::default()
        };
        let executor = match config.executor {
            Executor::Simulated { seed } => {
                let seeded = executor::Seeded::varied(seed).preemptions(config.preemptions);
                executor::Executor::chosen(Box::new(seeded), options)
            }
            Executor::Parallel => executor::Executor::parallel(config.processors, options),
        };
        let clock = Arc::clone(&executor);
        let locks = Options {
            keep_all: config.keep_locks,
            count: config.statistics,
            explore: matches!(config.executor, Executor::Simulated { .. }),
            hold_clock: config.statistics.then(|| HoldClock::new(move || clock.now_ns())),
            ..Options::default()
        };
        // SAFETY: the kernel has the processors, the master and the coarse lock that its mode says:
        // a uniprocessor has one worker, `Kernel::on_master` runs calls on processor 0, and in mode
        // `Coarse` the classes that the lock replaces are taken under `Kernel::coarse` alone.
        let locks = unsafe { Locks::new(config.mode, locks) };
        let stopper = config.stopper.clone();
        let mut kernel = Kernel::boot(config, locks, executor, Box::new(program));
        let _ = watch.kernel.set(kernel.handle());
        kernel.executor.ticks(TICKS_A_SECOND, Kernel::on_tick);
        let outcome = {
            let _attached = stopper.attach(&kernel.executor);
            kernel.run()
        };
        let ending = match outcome {
            executor::Outcome::Finished => Ending::Finished,
            executor::Outcome::Stalled => Ending::Stalled,
            executor::Outcome::Stopped => Ending::Stopped,
        };
        let notes = kernel.notes().clone();
        let stacks = kernel.executor.stacks();
        let report = Report {
            status: notes.status,
            ending,
            panicked: notes.panicked,
            abandoned: stacks.abandoned,
            // SAFETY: the run has ended.
            state: (ending != Ending::Finished).then(|| unsafe { kernel.snapshot() }),
            steps: kernel.executor.steps(),
            digest: kernel.executor.digest(),
            elapsed: kernel.executor.now(),
            locks: kernel.locks.statistics(),
        };
        if ending != Ending::Finished {
            kernel.leak_files();
        }
        report
    }
}

impl Builder {
    /// Which locks exist, and where calls run.
    pub fn mode(mut self, mode: Mode) -> Self {
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
    pub fn limit(mut self, resource: Resource, limit: Limit) -> Self {
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

    /// Gives the program a controlling terminal, at whose other end `console` is.
    pub fn console(mut self, console: &Console) -> Self {
        self.0.console = Some(console.clone());
        self
    }

    /// Ends a simulated run after exactly so many steps; [`Report::state`] is the system at that
    /// moment.
    pub fn stop_at(mut self, step: u64) -> Self {
        self.0.stop_at = Some(step);
        self
    }

    /// Lets `stopper` end the run.
    pub fn stopper(mut self, stopper: &Stopper) -> Self {
        self.0.stopper = stopper.clone();
        self
    }

    /// What ends the run.
    pub(crate) fn its_stopper(&self) -> Stopper {
        self.0.stopper.clone()
    }

    /// Simulated: takes the processor at most so often from a thread that could go on. Most races
    /// need few.
    pub fn preemptions(mut self, most: u64) -> Self {
        self.0.preemptions = most;
        self
    }

    /// Counts for [`Report::locks`], lock by lock, what the paper's section 9 reports: how often it
    /// was taken, how often not at once, how often only after a sleep, and how long it was held, in
    /// nanoseconds of the system's clock (simulated: the virtual one). It costs two looks at the
    /// clock an acquisition. Without it nothing is counted, and no lock does anything for it.
    ///
    /// ```
    /// use tontine_unix::{Executor, Mode, Virtual};
    ///
    /// let unix = Virtual::builder()
    ///     .mode(Mode::Parallel)
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
    /// # Ok::<(), tontine_unix::BuildError>(())
    /// ```
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
        tell: impl Fn(Busy) + Send + Sync + 'static,
    ) -> Self {
        (self.0.busy_limit, self.0.on_busy) = (limit, Arc::new(tell));
        self
    }

    /// Builds in the locks that the mode could do without, as one does to debug (§2.2).
    pub fn keep_locks(mut self, on: bool) -> Self {
        self.0.keep_locks = on;
        self
    }

    /// Takes a protection out of the kernel, for a test that is to notice.
    #[doc(hidden)]
    #[cfg(any(debug_assertions, feature = "mutations"))]
    pub fn mutate(mut self, mutation: crate::mutation::Mutation) -> Self {
        self.0.mutation = Some(mutation);
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
        if config.mode == Mode::Uniprocessor && config.processors > 1 {
            return Err(BuildError::ManyProcessors(config.processors));
        }
        if !(300..=4_194_304).contains(&config.pids) {
            return Err(BuildError::Pids(config.pids));
        }
        Ok(Virtual { config: Arc::new(config) })
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The program ended, and everybody else.
    Finished,
    /// Everybody waits for ever: [`Report::state`] says for what.
    Stalled,
    /// At the step that was asked for, or by a [`Stopper`].
    Stopped,
}

/// What a run says.
#[derive(Debug, Clone)]
pub struct Report {
    /// How the program ended; `None` where the run ended before.
    pub status: Option<Status>,
    /// How the run ended.
    pub ending: Ending,
    /// Processes whose program panicked: they ended as by SIGABRT.
    pub panicked: Vec<Pid>,
    /// Stacks that were given up: their program did not let itself be unwound, or the run ended
    /// before.
    pub abandoned: usize,
    /// The system at the end, unless everybody had ended.
    pub state: Option<State>,
    /// Simulated: places where another thread could have run.
    pub steps: u64,
    /// Simulated: a hash of who ran when.
    pub digest: u64,
    /// On the system's clock.
    pub elapsed: Duration,
    /// With [`Builder::statistics`].
    pub locks: Option<LockStatistics>,
}

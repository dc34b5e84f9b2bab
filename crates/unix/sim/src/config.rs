//! Configuration of a system: [`SystemConfig`], which [`Builder`](crate::Builder) fills in, and the
//! public types of its fields.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tontine_unix::{Resource, Rlimit, Sys};

use crate::console::Console;
use crate::costs::CostModel;
use crate::executor::{self, Chooser, Reused};
use crate::mode::LockingMode;
use crate::stopper::Stopper;

/// A program registered for `exec`. Its first argument is its own name.
pub(crate) type Registered = Arc<dyn Fn(&dyn Sys, &[String]) -> i32 + Send + Sync>;

/// The rule that selects the thread that delivers a signal sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// The oldest thread delivers it, as in OSF/1 (§3.1).
    Oldest,
    /// A thread that does not block the signal delivers it, as POSIX requires. If there are several
    /// such threads, the system selects one as Linux does: the first thread (for SIGCHLD, the
    /// thread that forked), or else the next in turn, skipping threads that already have a signal
    /// to handle.
    #[default]
    AnyUnblocked,
}

/// The owner of a signal mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Masks {
    /// The process has one mask, as in OSF/1: a signal that one thread blocks is blocked for all
    /// threads. `sigsuspend` suspends one thread with a separate mask, and restores the mask of the
    /// process when it returns (§4.2).
    PerProcess,
    /// Each thread has its own mask, as in POSIX and Linux.
    #[default]
    PerThread,
}

/// The executor on which virtual threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// A single thread of this process, with a virtual clock and a scheduler that uses this seed.
    /// The same seed gives the same run.
    Simulated {
        /// The seed of the scheduler.
        seed: u64,
    },
    /// A thread of this process for each processor of the system.
    Parallel,
    /// A single thread of this process that models any number of processors. Each processor has a
    /// clock, and every step advances it by its cost ([`Builder::costs`](crate::Builder::costs)),
    /// so times are those of the model. The same seed and costs give the same run.
    Modelled {
        /// The seed for the variation of costs.
        seed: u64,
    },
}

/// A component that, instead of the clock, releases threads that wait for an event outside the
/// system.
pub trait Conductor: Send + Sync {
    /// Called when no thread can run until time passes. Returns `true` if a thread can run now.
    fn at_rest(&self) -> bool;
    /// Returns the longest time that the system waits for a timer when all threads sleep.
    fn farthest(&self) -> Duration;
    /// Returns the seed of the generator that chooses the next thread; a changed value reseeds it.
    fn random(&self) -> u64;
}

/// A thread that has made no system call for a long time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyThread {
    /// The number of its process.
    pub pid: i32,
    /// The program that the process runs: the name that was passed to exec, or `program`.
    pub program: String,
    /// The number of the thread.
    pub tid: i32,
    /// The minimum time for which the thread has computed without a system call.
    pub limit: Duration,
}

impl fmt::Display for BusyThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, program, tid, limit } = self;
        write!(
            f,
            "thread {tid} of process {pid} ({program}) has made no system call for {limit:?}: it \
             cannot be interrupted; let it call `Sys::poll` now and then"
        )
    }
}

/// The configuration of a system.
#[derive(Clone)]
pub(crate) struct SystemConfig {
    pub(crate) mode: LockingMode,
    pub(crate) processors: usize,
    pub(crate) executor: Executor,
    pub(crate) delivery: Delivery,
    pub(crate) masks: Masks,
    pub(crate) limits: Vec<(Resource, Rlimit)>,
    pub(crate) programs: BTreeMap<String, Registered>,
    /// The highest process number.
    pub(crate) pids: usize,
    pub(crate) first_on: Option<usize>,
    pub(crate) stacks: usize,
    pub(crate) console: Option<Console>,
    pub(crate) stop_at: Option<u64>,
    /// Creates the chooser that replaces the seed's decisions in the simulated executor.
    pub(crate) guide: Option<Arc<dyn Fn() -> Box<dyn Chooser> + Send + Sync>>,
    pub(crate) reused: Option<Reused>,
    pub(crate) stopper: Stopper,
    pub(crate) preemptions: u64,
    pub(crate) costs: CostModel,
    pub(crate) statistics: bool,
    pub(crate) keep_locks: bool,
    /// The conductor. If it is set, the clock does not tick.
    pub(crate) conductor: Option<Arc<dyn Conductor>>,
    /// The number of the program's process; later processes receive the next numbers.
    pub(crate) second: i32,
    pub(crate) busy_limit: Duration,
    pub(crate) on_busy: Arc<dyn Fn(BusyThread) + Send + Sync>,
}

impl SystemConfig {
    /// Returns the defaults of [`Virtual::builder`](crate::Virtual::builder).
    pub(crate) fn new() -> Self {
        Self {
            mode: LockingMode::Parallel,
            processors: 1,
            executor: Executor::Parallel,
            delivery: Delivery::default(),
            masks: Masks::default(),
            limits: Vec::new(),
            programs: BTreeMap::new(),
            pids: 4_194_304,
            first_on: None,
            stacks: executor::ExecutorOptions::default().stacks,
            console: None,
            stop_at: None,
            guide: None,
            reused: None,
            stopper: Stopper::new(),
            preemptions: u64::MAX,
            costs: CostModel::published(),
            statistics: false,
            keep_locks: false,
            conductor: None,
            second: 2,
            busy_limit: Duration::from_secs(2),
            on_busy: Arc::new(|busy| eprintln!("tontine-unix: {busy}")),
        }
    }
}

impl SystemConfig {
    /// Returns `true` if the objects that a run leaves behind must be counted from scratch, because
    /// many runs follow one another.
    pub(crate) fn is_audited(&self) -> bool {
        self.guide.is_some()
    }
}

impl fmt::Debug for SystemConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, processors, executor, delivery, .. } = self;
        f.debug_struct("SystemConfig")
            .field("mode", mode)
            .field("processors", processors)
            .field("executor", executor)
            .field("delivery", delivery)
            .finish_non_exhaustive()
    }
}

//! What a system is built from: [`Config`], and the choices in it that are types of their own.
//! [`Builder`](crate::Builder) fills it in.

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

/// A program that `exec` finds by its name: it gets its arguments, its own name first.
pub(crate) type Registered = Arc<dyn Fn(&dyn Sys, &[String]) -> i32 + Send + Sync>;

/// The thread that delivers a signal that was sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// The oldest thread, as OSF/1 has it (§3.1).
    Oldest,
    /// A thread that does not block it, as POSIX has it; which one, as Linux has it: the first, of
    /// SIGCHLD the one that forked, else the next in turn, and nobody who has one to see to.
    #[default]
    AnyUnblocked,
}

/// The owner of a signal mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Masks {
    /// The process's, as in OSF/1: what one thread blocks all block. `sigsuspend` suspends one
    /// thread with a mask of its own, and gives it back what the process has (§4.2).
    PerProcess,
    /// Each thread's own, as POSIX and Linux have it.
    #[default]
    PerThread,
}

/// The executor on which virtual threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// One thread of this process, a scheduler with this seed and a virtual clock: the same seed
    /// gives the same run.
    Simulated {
        /// The seed of the scheduler.
        seed: u64,
    },
    /// As many threads of this process as there are processors.
    Parallel,
    /// One thread of this process that models any number of processors, each with a clock that
    /// every step advances by its cost ([`Builder::costs`](crate::Builder::costs)): times are those
    /// of the model. The same seed and costs give the same run.
    Modelled {
        /// The seed of the variation of costs.
        seed: u64,
    },
}

/// Lets threads go on that wait for nothing in the system, in place of the clock.
pub trait Conductor: Send + Sync {
    /// Nobody can go on until time passes. Whether somebody can now.
    fn at_rest(&self) -> bool;
    /// A timer that is farther off when everybody sleeps is waited for by nobody.
    fn farthest(&self) -> Duration;
    /// What the dice begin with that choose who goes on now; others begin where it is another.
    fn dice(&self) -> u64;
}

/// A thread that has made no system call for a long time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyThread {
    /// The number of its process.
    pub pid: i32,
    /// The program that the process runs: the name under which it was executed, or `program`.
    pub program: String,
    /// The number of the thread.
    pub tid: i32,
    /// The minimum duration without a call.
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

/// What a system is built from.
#[derive(Clone)]
pub(crate) struct Config {
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
    /// Decides for the simulated executor in the place of its seed.
    pub(crate) guide: Option<Arc<dyn Fn() -> Box<dyn Chooser> + Send + Sync>>,
    pub(crate) reused: Option<Reused>,
    pub(crate) stopper: Stopper,
    pub(crate) preemptions: u64,
    pub(crate) costs: CostModel,
    pub(crate) statistics: bool,
    pub(crate) keep_locks: bool,
    /// With one, the clock does not tick.
    pub(crate) conductor: Option<Arc<dyn Conductor>>,
    /// The number of the program's process; those that follow have the next.
    pub(crate) second: i32,
    pub(crate) busy_limit: Duration,
    pub(crate) on_busy: Arc<dyn Fn(BusyThread) + Send + Sync>,
}

impl Config {
    /// What [`Virtual::builder`](crate::Virtual::builder) begins with.
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
            stacks: executor::Options::default().stacks,
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

impl Config {
    /// Whether what a run leaves is counted from scratch: where many are run one after another.
    pub(crate) fn is_audited(&self) -> bool {
        self.guide.is_some()
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
